package changefeed_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// The receiver of a lease ends in order just before the lease is given to it: nobody will ever accept the lease, so it
// must not wait for its expiry.
func TestAGiftWhoseReceiverHasJustEndedDoesNotWaitForItsExpiry(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		var stopped atomic.Bool
		started := make(chan *process, 1)
		giver := &hookedStore{Leases: w.leases}
		giver.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLease && l.Owner == "b" && stopped.CompareAndSwap(false, true) {
				(<-started).stop(t)
			}
			return w.leases.Update(ctx, l)
		}
		a := w.runWith(w.orders, giver, "a", &tally{}, changefeed.Options{})
		w.balanced(1)
		time.Sleep(time.Minute)
		started <- w.run("b", &tally{}, changefeed.Options{})
		w.until(time.Minute, "gift", func() bool { return stopped.Load() && w.owners()["b"] > 0 })
		took := w.until(5*time.Minute, "owner of all", func() bool { return w.owners()["a"] == 4 })
		if took > 20*time.Second {
			t.Errorf("the lease was without a worker for %v", took)
		}
		a.stop(t)
	})
}
