package dispatch

import (
	"fmt"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/instance"
)

// A batch is slow after a time in the handler longer than [slowAfter] and [slowTimes] the usual time, or for half of
// HandlerTimeout.
const (
	slowAfter = 30 * time.Second
	slowTimes = 10
)

// weightOfLast is the part of the last call in the usual time, as a divisor.
const weightOfLast = 8

// watchCall calls the hook if a batch stays in the handler for too long. The caller calls left when the call is over.
func (d *delegate) watchCall(b *feed.Batch, begun time.Time) (left func(how outcome, took time.Duration)) {
	usual := time.Duration(d.usual.Load())
	slow := feed.SlowBatch{Lease: b.LeaseToken, Changes: len(b.Changes), Since: begun, Usual: usual}
	var name string // made for a slow batch alone, because every call comes here
	told := make(chan struct{})
	limit := min(max(slowAfter, slowTimes*usual), d.in.Options.HandlerTimeout/2)
	timer := time.AfterFunc(limit, func() {
		defer close(told)
		// Several may begin at the same time.
		name = fmt.Sprintf("%s %s %p", b.LeaseToken, begun.Format(time.RFC3339Nano), b)
		d.in.Slow.Put(name, slow)
		instance.CallHook(d.in, d.in.Hooks.Slow, slow)
	})
	return func(how outcome, took time.Duration) {
		if how == hasSucceeded {
			d.learnUsual(took)
		}
		if timer.Stop() {
			return
		}
		<-told
		d.in.Slow.Remove(name)
		if how != isStuck { // otherwise the batch is in the handler still
			slow.Ended = begun.Add(took)
			instance.CallHook(d.in, d.in.Hooks.Slow, slow)
		}
	}
}

// learnUsual adds the time of a call to the usual time. Of calls at the same time a result may be lost, which is
// harmless.
func (d *delegate) learnUsual(took time.Duration) {
	usual := d.usual.Load()
	if usual == 0 {
		usual = int64(took)
	}
	d.usual.Store(usual + (int64(took)-usual)/weightOfLast)
}
