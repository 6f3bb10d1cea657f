// Load calls one unary RPC as fast as a number of callers in flight can, and tells how long the calls took.
//
// Jobs come as JSON lines on stdin and are answered by one line each on stdout, so that connections stay open between
// them. Requests are bytes: a request_id that was never used and the next Session, before a part that is always the
// same. No generated code is needed, and the client costs as little as it can.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

// Job is what to measure.
type Job struct {
	Address  string   `json:"address"`
	Token    string   `json:"token"`
	Method   string   `json:"method"`
	Sessions []string `json:"sessions"` // in turn; none means that the request is Rest alone
	Rest     []byte   `json:"rest"`     // the fields behind request_id and session_id
	Wrapped  bool     `json:"wrapped"`  // the request is field 1 of another message
	InFlight int      `json:"in_flight"`
	Seconds  float64  `json:"seconds"`
	Warmup   float64  `json:"warmup"` // seconds whose calls are not counted
	Follow   bool     `json:"follow"` // InFlight streams that stay open until the next job, see follow.go
}

// Report is what came of it. Latencies are in milliseconds.
type Report struct {
	Calls   int     `json:"calls"`
	Rate    float64 `json:"rate"`
	Mean    float64 `json:"mean"`
	P50     float64 `json:"p50"`
	P90     float64 `json:"p90"`
	P99     float64 `json:"p99"`
	Errors  int64   `json:"errors"`
	Example string  `json:"example,omitempty"` // the first error
}

// raw hands bytes through.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error)      { return v.([]byte), nil }
func (raw) Unmarshal(data []byte, v any) error { *v.(*[]byte) = data; return nil }
func (raw) Name() string                       { return "proto" }

const connections = 4

var (
	dialled = map[string][]*grpc.ClientConn{}
	serial  atomic.Int64
	born    = time.Now().UnixNano()
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var job Job
		if err := json.Unmarshal(lines.Bytes(), &job); err != nil {
			log.Fatal(err)
		}
		unfollow()
		do := run
		if job.Follow {
			do = follow
		}
		report, err := do(&job)
		if err != nil {
			log.Fatal(err)
		}
		if err := out.Encode(report); err != nil {
			log.Fatal(err)
		}
	}
}

func dial(address string) ([]*grpc.ClientConn, error) {
	if known := dialled[address]; known != nil {
		return known, nil
	}
	made, err := connect(address, connections)
	if err == nil {
		dialled[address] = made
	}
	return made, err
}

func connect(address string, count int) ([]*grpc.ClientConn, error) {
	var made []*grpc.ClientConn
	for range count {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})))
		if err != nil {
			return nil, err
		}
		made = append(made, conn)
	}
	return made, nil
}

func run(job *Job) (*Report, error) {
	conns, err := dial(job.Address)
	if err != nil {
		return nil, err
	}
	var (
		wait    sync.WaitGroup
		errors  atomic.Int64
		example atomic.Value
		next    atomic.Int64
		taken   = make([][]time.Duration, job.InFlight)
		start   = time.Now().Add(time.Duration(job.Warmup * float64(time.Second)))
		stop    = start.Add(time.Duration(job.Seconds * float64(time.Second)))
	)
	ctx := identified(job)
	for worker := range job.InFlight {
		conn := conns[worker%len(conns)]
		wait.Go(func() {
			for {
				began := time.Now()
				if began.After(stop) {
					return
				}
				var answer []byte
				if err := conn.Invoke(ctx, job.Method, request(job, next.Add(1)), &answer); err != nil {
					errors.Add(1)
					example.CompareAndSwap(nil, err.Error())
					time.Sleep(time.Millisecond)
					continue
				}
				if ended := time.Now(); began.After(start) && ended.Before(stop) {
					taken[worker] = append(taken[worker], ended.Sub(began))
				}
			}
		})
	}
	wait.Wait()
	report := summary(slices.Concat(taken...), job.Seconds)
	report.Errors = errors.Load()
	if text, ok := example.Load().(string); ok {
		report.Example = text
	}
	return report, nil
}

func identified(job *Job) context.Context {
	if job.Token == "" {
		return context.Background()
	}
	return metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+job.Token)
}

func request(job *Job, turn int64) []byte {
	if len(job.Sessions) == 0 {
		return job.Rest
	}
	made := make([]byte, 0, len(job.Rest)+128)
	made = field(made, 1, fmt.Sprintf("%x-%x", born, serial.Add(1)))
	made = field(made, 2, job.Sessions[int(turn)%len(job.Sessions)])
	made = append(made, job.Rest...)
	if !job.Wrapped {
		return made
	}
	return field(make([]byte, 0, len(made)+8), 1, made)
}

// field appends a length-delimited field of protobuf.
func field[T string | []byte](to []byte, number byte, value T) []byte {
	to = append(to, number<<3|2)
	size := len(value)
	for ; size > 0x7f; size >>= 7 {
		to = append(to, byte(size)|0x80)
	}
	return append(append(to, byte(size)), value...)
}

func summary(taken []time.Duration, seconds float64) *Report {
	if len(taken) == 0 {
		return &Report{}
	}
	slices.Sort(taken)
	var sum time.Duration
	for _, each := range taken {
		sum += each
	}
	at := func(share float64) float64 {
		return float64(taken[min(len(taken)-1, int(share*float64(len(taken))))].Microseconds()) / 1000
	}
	return &Report{
		Calls: len(taken),
		Rate:  float64(len(taken)) / seconds,
		Mean:  float64(sum.Microseconds()) / 1000 / float64(len(taken)),
		P50:   at(0.50),
		P90:   at(0.90),
		P99:   at(0.99),
	}
}
