package jobq

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Handler does the work of one job.
type Handler func(ctx context.Context, job *Job) error

// Pool runs handlers in a fixed number of goroutines.
type Pool struct {
	client   *Client
	handlers map[string]Handler
	size     int
}

// NewPool makes a pool of size goroutines; a size below one means one.
func NewPool(client *Client, size int) *Pool {
	if size < 1 {
		size = 1
	}
	return &Pool{client: client, handlers: map[string]Handler{}, size: size}
}

// Handle registers the handler for a kind of job. It must be called before Run.
func (p *Pool) Handle(kind string, h Handler) { p.handlers[kind] = h }

// Run works until ctx is done, and returns when every goroutine has finished the job at hand.
func (p *Pool) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for i := 0; i < p.size; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			p.loop(ctx)
		}()
	}
	wg.Wait()
}

func (p *Pool) loop(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		job, err := p.client.Claim(ctx)
		switch {
		case err != nil:
			failures++
			sleep(ctx, backoff(failures))
		case job == nil:
			failures = 0
			sleep(ctx, time.Second)
		default:
			failures = 0
			p.do(ctx, job)
		}
	}
}

// do runs one job. A handler that panics fails its job, and the pool goes on.
func (p *Pool) do(ctx context.Context, job *Job) {
	err := func() (err error) {
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("panic: %v", r)
			}
		}()
		handler, ok := p.handlers[job.Kind]
		if !ok {
			return fmt.Errorf("no handler for %q", job.Kind)
		}
		return handler(ctx, job)
	}()
	// The end is recorded also when the pool is being stopped.
	end := context.WithoutCancel(ctx)
	if err != nil {
		_ = p.client.Fail(end, job, err)
		return
	}
	_ = p.client.Complete(end, job)
}
