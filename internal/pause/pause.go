// Package pause waits, in a way that the end of a context cuts short, and says for how long.
package pause

import (
	"context"
	"math/bits"
	"math/rand/v2"
	"time"
)

// For waits for d, or returns the cause of the end of ctx when that comes first.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// UntilClosed waits until a channel is closed, at most for a time, and reports whether it was.
func UntilClosed(c <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
		return false
	}
}

// Linger returns a context for a write that the end of ctx should not cut off, because its outcome
// would be unknown: it ends so much later, or at a timeout that counts from now.
func Linger(ctx context.Context, after, timeout time.Duration) (context.Context, context.CancelFunc) {
	lingering, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	stop := context.AfterFunc(ctx, func() {
		if For(lingering, after) == nil {
			cancel()
		}
	})
	return lingering, func() { stop(); cancel() }
}

// Doubled is a duration, doubled so many times, and most at most.
func Doubled(d time.Duration, times int, most time.Duration) time.Duration {
	times = max(0, times)
	if times > bits.LeadingZeros64(uint64(d))-2 { // the first bit is the sign
		return most
	}
	return min(d<<times, most)
}

// Jitter varies d by a tenth, so that those who wait alike do not stay in step.
func Jitter(rng *rand.Rand, d time.Duration) time.Duration {
	return d - d/10 + time.Duration(rng.Int64N(int64(d/5)+1))
}

// Backoff bounds the pause before a request that has failed is repeated.
type Backoff struct{ Min, Max time.Duration }

// After is the pause after so many failures in a row: it doubles, and varies by half.
func (b Backoff) After(rng *rand.Rand, failures int) time.Duration {
	wait := Doubled(b.Min, failures-1, b.Max)
	return wait/2 + time.Duration(rng.Int64N(int64(wait/2)+1))
}

// Asked is the pause for somebody who is asked for one, within the bounds. It varies by Min, so
// that those who were asked alike do not come back at once.
func (b Backoff) Asked(rng *rand.Rand, wait time.Duration) time.Duration {
	return min(max(wait, b.Min), b.Max) + time.Duration(rng.Int64N(int64(b.Min)))
}
