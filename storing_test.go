package changefeed_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// While the position of a batch is written, the next batch is handled: a backlog costs the longer of both times, not
// their sum.
func TestABatchIsHandledDuringTheWriteBefore(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(10)
		store := &hookedStore{Leases: w.leases, update: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLease {
				time.Sleep(time.Second)
			}
			return w.leases.Update(ctx, l)
		}}
		var begun, ended time.Time
		h := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
			if begun.IsZero() {
				begun = time.Now()
			}
			time.Sleep(time.Second)
			ended = time.Now()
			return nil
		})
		p := w.runWith(w.orders, store, "a", h, changefeed.Options{Start: feed.FromBeginning(), MaxItems: 1})
		time.Sleep(time.Minute)
		p.stop(t)
		if took := ended.Sub(begun); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("10 batches took %v, want 10 s", took)
		}
		if n := w.pending(); n != 0 {
			t.Errorf("%d changes are not stored after an orderly stop", n)
		}
	})
}

// As long as a position cannot be stored, only one more batch is handled: so a crash has at most two batches
// redelivered, and no batch if the next one was not handled yet.
func TestACrashHasAtMostTwoBatchesRedelivered(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var away atomic.Bool
		store := &hookedStore{Leases: w.leases, update: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if away.Load() && l.Kind == feed.KindLease {
				<-ctx.Done()
				return l, ctx.Err()
			}
			return w.leases.Update(ctx, l)
		}}
		var first atomic.Int64
		h := feed.HandlerFunc(func(context.Context, *feed.Batch) error {
			time.Sleep(time.Millisecond) // the position before is stored
			away.Store(first.Add(1) >= 3)
			return nil
		})
		p := w.runWith(w.orders, store, "a", h, changefeed.Options{Start: feed.FromBeginning(), MaxItems: 1})
		w.fill(10)
		time.Sleep(20 * time.Second)
		if n := first.Load(); n != 4 {
			t.Errorf("%d batches were handled, want 4: the position of the third cannot be stored", n)
		}
		if l := p.processor.Status()[0].Leases[0]; l.Activity != feed.ActivityStoring || l.Unsaved != 2 {
			t.Errorf("while it cannot be stored: %+v", l)
		}
		p.stop(t) // and none of its writes arrives
		if n := w.pending(); n != 8 {
			t.Errorf("%d changes are pending, want 8: two are stored", n)
		}
		away.Store(false)
		next := &tally{}
		q := w.run("b", next, changefeed.Options{MaxItems: 1})
		time.Sleep(3 * time.Minute)
		q.stop(t)
		if n := len(next.attempts); n != 8 {
			t.Errorf("the next owner handled %d batches, want 8", n)
		}
	})
}

// A failure is stored before the batch is called again, also during the write of the batch before: a process that is
// killed then has counted the failure.
func TestAFailureIsStoredBeforeTheNextCall(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		store := &hookedStore{Leases: w.leases, update: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLease {
				time.Sleep(100 * time.Millisecond)
			}
			return w.leases.Update(ctx, l)
		}}
		var counted []int
		h := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
			if b.Changes[0].LSN == 1 {
				return nil
			}
			if counted = append(counted, w.inLease()); len(counted) < 4 {
				return errDownstream
			}
			return nil
		})
		p := w.runWith(w.orders, store, "a", h, changefeed.Options{
			Start: feed.FromBeginning(), MaxItems: 1,
			RetryMin: time.Millisecond, RetryMax: time.Millisecond,
		})
		w.fill(2)
		time.Sleep(20 * time.Second)
		p.stop(t)
		if want := []int{0, 1, 2, 3}; !slices.Equal(counted, want) {
			t.Errorf("before its calls the lease counted %v, want %v", counted, want)
		}
	})
}

// A lease that is lost during the write ends the call of the next batch.
func TestALeaseThatIsLostDuringTheWriteEndsTheNextCall(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var away atomic.Bool
		store := &hookedStore{Leases: w.leases, update: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if away.Load() && l.Kind == feed.KindLease {
				time.Sleep(time.Second)
				return l, feed.ErrPrecondition
			}
			return w.leases.Update(ctx, l)
		}}
		cause := make(chan error, 1)
		h := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
			if !away.Swap(true) {
				return nil
			}
			<-ctx.Done()
			select {
			case cause <- context.Cause(ctx):
			default:
			}
			return ctx.Err()
		})
		p := w.runWith(w.orders, store, "a", h, changefeed.Options{
			Start: feed.FromBeginning(), MaxItems: 1,
			Hooks: changefeed.Hooks{Error: func(context.Context, *feed.Error) {}},
		})
		w.fill(2)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		select {
		case err := <-cause:
			if !errors.Is(err, feed.ErrLeaseLost) {
				t.Errorf("the call has ended with %v, want that the lease is lost", err)
			}
		default:
			t.Error("the call has not ended")
		}
		away.Store(false)
		p.stop(t)
	})
}
