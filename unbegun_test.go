package changefeed_test

import (
	"context"
	"slices"
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

// An instance that ends in order finishes the batch that its handler has, up to Drain. Until then nobody takes the
// lease, because the lease is not a gift that waits for somebody who is gone.
func TestALeaseThatWasBegunIsFinishedBeforeAnotherTakesIt(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var working, met atomic.Int64
		began, slow := make(chan struct{}), atomic.Bool{}
		handler := func(isFirst bool) *tally {
			return &tally{before: func(context.Context, *feed.Batch) error {
				if working.Add(1) > 1 {
					met.Add(1)
				}
				defer working.Add(-1)
				if isFirst && slow.CompareAndSwap(true, false) {
					close(began)
					time.Sleep(40 * time.Second)
				}
				return nil
			}}
		}
		a, b := handler(true), handler(false)
		o := changefeed.Options{Start: feed.FromBeginning(), Drain: time.Minute}
		first := w.run("a", a, o)
		time.Sleep(time.Minute)
		second := w.run("b", b, o)
		time.Sleep(time.Minute)
		slow.Store(true)
		w.put("oslo", "last", 1)
		<-began
		first.stop(t)
		w.put("oslo", "next", 2)
		w.until(time.Minute, "the other goes on", func() bool { return slices.Contains(b.ids(), "next") })
		if n := met.Load(); n > 0 {
			t.Errorf("%d batches of the lease were handled while the first instance had one", n)
		}
		if got := b.ids(); slices.Contains(got, "last") {
			t.Errorf("the other handled %v, and the first instance %v", got, a.ids())
		}
		second.stop(t)
	})
}
