package docstore

import (
	"sync/atomic"
	"time"
)

// clock is the time of a container. It is the machine's and, where that is less than a
// commit had, as after it was set back, goes on from the last commit by the monotonic
// clock: a time that stood still would let nothing expire, no lease of a dead owner
// either.
//
// A restart forgets the monotonic clock. Where the machine's time is less than the last
// commit's, time goes on from there, without the time that the store was closed.
type clock struct {
	begin time.Time
	ahead atomic.Int64 // least value of the clock at begin, Unix ms
}

func newClock() *clock { return &clock{begin: time.Now()} }

// now is in Unix milliseconds; it is never less than a time that was committed.
func (k *clock) now() int64 {
	return max(time.Now().UnixMilli(), k.ahead.Load()+k.running())
}

// committed notes the time of a commit.
func (k *clock) committed(at int64) { raise(&k.ahead, at-k.running()) }

// running is how long the clock has run, in milliseconds.
func (k *clock) running() int64 { return time.Since(k.begin).Milliseconds() }

// until is how long it takes the clock to reach a time.
func (k *clock) until(at int64) time.Duration {
	return time.Duration(at-k.now()) * time.Millisecond
}

// now is the container's time, which no commit is after.
func (c *Container) now() time.Time { return time.UnixMilli(c.clock.now()).UTC() }
