package docstore

import (
	"sync/atomic"
	"time"
)

// clock is the time of a container: the machine's or, where that is earlier than a
// commit, as after the machine's clock was set back, the time that goes on from the
// last commit by the monotonic clock. Were time to stand still until the machine has
// caught up, nothing would expire meanwhile: no document, and no lease of a dead owner.
//
// A restart loses the monotonic clock. Where the machine's time is earlier than the
// last commit, the container's time goes on from there, and the time for which the
// store was closed is left out.
type clock struct {
	begin time.Time
	ahead atomic.Int64 // least value of the clock at begin, Unix ms
}

func newClock() *clock { return &clock{begin: time.Now()} }

// now returns Unix milliseconds, never fewer than a commit had.
func (k *clock) now() int64 {
	return max(time.Now().UnixMilli(), k.ahead.Load()+k.running())
}

// recordCommit records the time of a commit.
func (k *clock) recordCommit(at int64) { raise(&k.ahead, at-k.running()) }

// running is how long the clock has run, in milliseconds, by the monotonic clock.
func (k *clock) running() int64 { return time.Since(k.begin).Milliseconds() }

// until is how long the clock takes to reach a time.
func (k *clock) until(at int64) time.Duration {
	return time.Duration(at-k.now()) * time.Millisecond
}

// time is the time of now.
func (k *clock) time() time.Time { return time.UnixMilli(k.now()).UTC() }
