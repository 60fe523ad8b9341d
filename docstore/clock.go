package docstore

import (
	"sync/atomic"
	"time"
)

// clock is the time of a container. This is the machine's time, unless the machine's time is earlier than the last
// commit, for example because the machine's clock was set back. Then the container's time goes on from the last
// commit by the monotonic clock. If time stood still until the machine's clock had caught up, nothing would expire
// meanwhile: no document, and no lease of a dead owner.
//
// A restart loses the monotonic clock. If the machine's time is then earlier than the last commit, the container's
// time goes on from the last commit, and the time while the store was closed is not counted.
type clock struct {
	begin time.Time
	ahead atomic.Int64 // lowest value of the clock at begin, Unix ms
}

func newClock() *clock { return &clock{begin: time.Now()} }

// now returns Unix milliseconds, and never less than the time of a commit.
func (k *clock) now() int64 {
	return max(time.Now().UnixMilli(), k.ahead.Load()+k.running())
}

// recordCommit records the time of a commit.
func (k *clock) recordCommit(at int64) { raise(&k.ahead, at-k.running()) }

// running is how long the clock has run, in milliseconds, by the monotonic clock.
func (k *clock) running() int64 { return time.Since(k.begin).Milliseconds() }

// until returns how long the clock takes to reach a time.
func (k *clock) until(at int64) time.Duration {
	return time.Duration(at-k.now()) * time.Millisecond
}

// time returns now as a time.Time in UTC.
func (k *clock) time() time.Time { return time.UnixMilli(k.now()).UTC() }
