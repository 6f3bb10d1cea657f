package jobq

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	firstDelay   = 200 * time.Millisecond
	longestDelay = 30 * time.Second
)

// backoff is how long to wait after so many failures to reach the server: doubled each time, half of it by chance.
func backoff(failures int) time.Duration {
	delay := longestDelay
	if failures < 8 {
		delay = min(longestDelay, firstDelay<<(failures-1))
	}
	return delay/2 + rand.N(delay/2)
}

// sleep waits for d or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
