package changefeed

import (
	"context"
	"errors"
	"hash/fnv"
	mathrand "math/rand/v2"
	"time"
)

// backoff is the pause after so many failures in a row: it doubles, and varies by half.
func (r *run) backoff(rng *mathrand.Rand, failures int) time.Duration {
	wait := r.opts.RetryMin << min(failures-1, maxDoublings)
	if wait > r.opts.RetryMax || wait <= 0 {
		wait = r.opts.RetryMax
	}
	return wait/2 + time.Duration(rng.Int64N(int64(wait/2)+1))
}

const maxDoublings = 30

// paced calls f, and again after each pause that the store asks for, because pauses that
// double would leave a throttled store idle. They do double where the store does not say how
// long. Throttling is no news before it has lasted for a while.
func (r *run) paced(ctx context.Context, rng *mathrand.Rand, lease string, f func() error) error {
	begun := time.Now()
	for failures := 1; ; failures++ {
		err := f()
		throttled, ok := errors.AsType[*ThrottledError](err)
		if !ok {
			return err
		}
		if time.Since(begun) > r.opts.Renew {
			r.report(ctx, OriginLeaseStore, lease, err)
		}
		wait := r.backoff(rng, failures)
		if throttled.After > 0 {
			wait = min(max(throttled.After, r.opts.RetryMin), r.opts.RetryMax) + time.Duration(rng.Int64N(int64(r.opts.RetryMin)))
		}
		if !pause(ctx, wait) {
			return err
		}
	}
}

// linger is a context for a write that the end of ctx should not cut off, because its outcome
// would be unknown: it ends so much later, or at the store's timeout.
func linger(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc) {
	lingering, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	stop := context.AfterFunc(ctx, func() {
		if pause(lingering, after) {
			cancel()
		}
	})
	return lingering, func() { stop(); cancel() }
}

// jitter varies d by a tenth, so that instances do not stay in step.
func jitter(rng *mathrand.Rand, d time.Duration) time.Duration {
	return d - d/10 + time.Duration(rng.Int64N(int64(d/5)+1))
}

// pause waits and reports whether it was for the whole time.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// timestamp is our clock, as finely as lease documents hold it.
func timestamp() time.Time { return time.Now().UTC().Truncate(timestampGrain) }

const timestampGrain = 100 * time.Nanosecond

// random is a source of random numbers for one goroutine, the same for the same run.
func (r *run) random(of string) *mathrand.Rand {
	h := fnv.New64a()
	h.Write([]byte(of))
	return mathrand.New(mathrand.NewPCG(r.seed, h.Sum64()))
}

// rest waits after an empty page, until there may be more.
func (w *worker) rest() {
	w.activity.Set(ActivityWaiting)
	if waiter, ok := w.r.source.(Waiter); ok {
		w.await(waiter)
		return
	}
	pause(w.untilStopped, min(w.r.opts.Poll, firstPoll<<min(w.idle-1, maxDoublings)))
}

// await waits until the source says that there may be more. A quiet range is read now and
// then all the same, so that its position moves on with its container's and does not fall
// out of the retention.
func (w *worker) await(waiter Waiter) {
	// Writes to other leases of the partition wake us too: do not read for each of them.
	if w.idle > 1 && !pause(w.untilStopped, min(maxGather, time.Millisecond<<min(w.idle, maxDoublings))) {
		return
	}
	p := w.keeper.soFar()
	most := w.r.opts.Renew
	if p.Unsaved > 0 && p.Every > 0 {
		most = min(most, p.Every)
	}
	waiting, cancel := context.WithTimeout(w.untilStopped, most)
	defer cancel()
	begun := time.Now()
	err := waiter.Wait(waiting, w.lease.Range, p.Read)
	waited := time.Since(begun)
	w.r.hooks.WaitDone(WaitDone{Lease: w.lease.Token, Duration: waited, Err: err})
	if err != nil && waiting.Err() == nil {
		w.report(w.untilStopped, OriginSource, err)
		pause(w.untilStopped, w.r.opts.Poll)
	}
	if waited > maxGather {
		w.idle = 0
	}
}

const (
	firstPoll = 5 * time.Millisecond   // first pause after activity
	maxGather = 128 * time.Millisecond // longest pause before a range waits again that is woken for others all the time
)
