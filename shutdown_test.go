package changefeed_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
)

// hanging is a lease store whose updates hang, of the records that which tells and as
// long as it is on, until their context ends.
func (w *world) hanging(on *atomic.Bool, hung *atomic.Int64, which func(changefeed.Lease) bool) *hookedStore {
	return &hookedStore{Leases: w.leases, update: func(ctx context.Context, l changefeed.Lease) (changefeed.Lease, error) {
		if on.Load() && which(l) {
			hung.Add(1)
			<-ctx.Done()
			return l, context.Cause(ctx)
		}
		return w.leases.Update(ctx, l)
	}}
}

func every(changefeed.Lease) bool { return true }

// Many leases are being taken, and the lease store hangs, when the processor stops.
func TestAStopWhileManyLeasesAreBeingTakenIsBounded(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		setup := w.run("setup", &tally{}, changefeed.Options{MinLeases: 120})
		time.Sleep(time.Minute)
		setup.stop(t)
		time.Sleep(3 * time.Minute)
		var on atomic.Bool
		var hung atomic.Int64
		on.Store(true)
		const drain = 10 * time.Second
		p := w.runWith(w.orders, w.hanging(&on, &hung, every), "a", &tally{}, changefeed.Options{Drain: drain})
		time.Sleep(5 * time.Second)
		if hung.Load() < 10 {
			t.Errorf("%d leases are being taken, want several at a time", hung.Load())
		}
		if took := p.took(t); took > 3*drain {
			t.Errorf("Run returned %v after its context ended, with a Drain of %v", took, drain)
		}
	})
}

// A batch is done as the processor stops, and the lease store hangs.
func TestAStopIsBoundedWhileTheLeaseStoreHangs(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var on atomic.Bool
		var hung atomic.Int64
		h := changefeed.HandlerFunc(func(context.Context, *changefeed.Batch) error { time.Sleep(2 * time.Second); return nil })
		const drain = 5 * time.Second
		p := w.runWith(w.orders, w.hanging(&on, &hung, every), "a", h, changefeed.Options{
			Start: changefeed.FromBeginning(), Drain: drain, Expiration: 10 * time.Minute,
		})
		time.Sleep(20 * time.Second)
		on.Store(true)
		w.put("oslo", "1", 1)
		time.Sleep(time.Second)
		if took := p.took(t); took > 4*drain {
			t.Errorf("Run returned %v after its context ended, with a Drain of %v", took, drain)
		}
		if hung.Load() == 0 {
			t.Error("nothing hung")
		}
	})
}

// A request that is slow when the processor stops must not keep the workers going.
func TestNothingNewIsHandedOutAfterTheEnd(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var on atomic.Bool
		var hung atomic.Int64
		presence := func(l changefeed.Lease) bool { return l.Kind == changefeed.KindHost }
		var last time.Time
		h := changefeed.HandlerFunc(func(context.Context, *changefeed.Batch) error { last = time.Now(); return nil })
		p := w.runWith(w.orders, w.hanging(&on, &hung, presence), "a", h, changefeed.Options{Start: changefeed.FromBeginning()})
		time.Sleep(5 * time.Second)
		w.put("oslo", "x", 0)
		time.Sleep(time.Second)
		on.Store(true)
		ended := time.Now()
		p.cancel()
		for n := range 20 {
			time.Sleep(time.Second)
			w.put("oslo", "x", n)
		}
		p.stop(t)
		if last.IsZero() || hung.Load() == 0 {
			t.Errorf("last batch %v, %d requests hung: the test shows nothing", last, hung.Load())
		}
		if late := last.Sub(ended); late > 0 {
			t.Errorf("the last new batch was handed out %v after ctx had ended", late)
		}
	})
}
