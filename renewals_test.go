package changefeed_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// A checkpoint whose answer was lost may have arrived all the same. The next one then meets a
// conflict, and is told to be stored when it is, not when that one was.
func TestACheckpointAfterOneThatArrivedUnheardIsStored(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var unheard atomic.Bool
		store := &hookedStore{Leases: w.leases, update: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			got, err := w.leases.Update(ctx, l)
			if l.Kind == feed.KindLease && unheard.CompareAndSwap(true, false) {
				<-ctx.Done()
				return l, context.Cause(ctx)
			}
			return got, err
		}}
		results := make(chan error, 2)
		h := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			results <- b.Checkpoint(ctx)
			return nil
		})
		p := w.runWith(w.orders, store, "a", h, changefeed.Options{Start: feed.FromBeginning(), Manual: true})
		time.Sleep(time.Minute)
		unheard.Store(true)
		w.put("oslo", "a", 1)
		if err := <-results; err == nil {
			t.Error("a checkpoint without an answer succeeded")
		}
		w.put("oslo", "b", 1)
		if err := <-results; err != nil || w.pending() != 0 {
			t.Errorf("%d changes are pending after a checkpoint that gave %v", w.pending(), err)
		}
		p.stop(t)
	})
}

// A store may ask for longer pauses than a lease is trusted, and it may refuse for a moment
// only. That it refuses for long is told while there is time.
func TestAStoreThatAsksForLongPausesCostsNoLease(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var throttle atomic.Bool
		var lost atomic.Int64
		store := &hookedStore{Leases: w.leases, update: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if throttle.Load() && l.Kind == feed.KindLease {
				return l, &feed.ThrottledError{After: 10 * time.Minute}
			}
			return w.leases.Update(ctx, l)
		}}
		p := w.runWith(w.orders, store, "a", &tally{}, changefeed.Options{
			Hooks: changefeed.Hooks{Released: func(context.Context, feed.Lease, feed.Reason) { lost.Add(1) }},
		})
		time.Sleep(time.Minute)
		renewed := w.records(feed.KindLease)[0].Updated
		throttle.Store(true)
		time.Sleep(time.Until(renewed.Add(20 * time.Second)))
		if err := p.errs.find(feed.ErrThrottled); err != nil {
			t.Errorf("reported after 3 seconds: %v", err)
		}
		time.Sleep(20 * time.Second)
		if err := p.errs.find(feed.ErrThrottled); err == nil || err.Lease == "" || lost.Load() != 0 {
			t.Errorf("reported after 23 seconds: %v; %d leases lost", err, lost.Load())
		}
		throttle.Store(false)
		time.Sleep(5 * time.Minute)
		if lost.Load() != 0 {
			t.Error("the lease was lost")
		}
		p.stop(t)
	})
}

// A record that was deleted is a lease that is lost now, not when it would have expired.
func TestADeletedRecordEndsItsHandlerAtTheNextWrite(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.put("oslo", "a", 1)
		ended := make(chan error, 1)
		h := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
			<-ctx.Done()
			select {
			case ended <- context.Cause(ctx):
			default:
			}
			return context.Cause(ctx)
		})
		p := w.run("a", h, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		w.deleteLeases()
		begun := time.Now()
		if err := <-ended; !errors.Is(err, feed.ErrLeaseLost) || time.Since(begun) > 20*time.Second {
			t.Errorf("the handler's context ended with %v after %v, want the next renewal to end it", err,
				time.Since(begun))
		}
		p.stop(t)
	})
}

// A lease that was lost while its handler was deaf is not begun with beside that handler.
func TestADeafHandlerOfALostLeaseKeepsItsRange(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.put("oslo", "a", 1)
		var calls atomic.Int64
		deaf := make(chan struct{})
		h := feed.HandlerFunc(func(context.Context, *feed.Batch) error {
			calls.Add(1)
			<-deaf
			return nil
		})
		p := w.run("a", h, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		p.wire.Cut()
		time.Sleep(90 * time.Second)
		p.wire.Mend()
		time.Sleep(5 * time.Minute)
		if n := calls.Load(); n != 1 || p.errs.find(feed.ErrHandlerStuck) == nil {
			t.Errorf("%d handlers work on one range; reported %v", n, first(p.errs.all()))
		}
		close(deaf)
		w.until(2*time.Minute, "done", func() bool { return calls.Load() == 2 && w.pending() == 0 })
		p.stop(t)
	})
}
