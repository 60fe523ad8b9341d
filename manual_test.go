package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// A checkpoint by hand whose answer does not come is stored by the next write all the
// same. So the batch does not come again though its handler then fails, and that is nothing
// against the batch after it.
func TestAFailureAfterACheckpointIsNotCountedForTheNextBatch(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		store := &hookedStore{Leases: w.leases}
		var cut atomic.Bool
		store.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if cut.Load() && l.Kind == feed.KindLease {
				<-ctx.Done()
				return l, context.Cause(ctx)
			}
			return w.leases.Update(ctx, l)
		}
		w.fill(1)
		var calls atomic.Int64
		h := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
			if calls.Add(1); b.Attempt > 1 {
				t.Errorf("attempt %d of %s", b.Attempt, b.Changes[0].ID)
			}
			cut.Store(true)
			defer cut.Store(false)
			asking, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return errors.Join(b.Checkpoint(asking), errors.New("failed"))
		})
		p := w.runWith(w.orders, store, "a", h, changefeed.Options{Start: feed.FromBeginning(), Manual: true})
		time.Sleep(time.Minute)
		l := w.records(feed.KindLease)[0]
		if next := w.pending(); next != 0 || l.Attempts != 0 || calls.Load() != 1 {
			t.Errorf("the lease is at %v with %d attempts, %d pending, after %d calls; want none of either after one",
				l.Position, l.Attempts, next, calls.Load())
		}
		w.put("oslo", "next", 1)
		time.Sleep(time.Minute)
		if calls.Load() != 2 {
			t.Errorf("%d calls, want one more for the next batch", calls.Load())
		}
		p.stop(t)
	})
}

// The leases of the parts begin where the lease was when it began to split. A checkpoint
// that comes later would be forgotten, so it is refused.
func TestACheckpointDuringASplitIsRefusedOrKept(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(3)
		var batch atomic.Pointer[feed.Batch]
		var late atomic.Pointer[error]
		store := &hookedStore{Leases: w.leases}
		store.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if b := batch.Load(); b != nil && l.Kind == feed.KindLease {
				err := b.Checkpoint(ctx)
				late.CompareAndSwap(nil, &err)
			}
			return w.leases.Create(ctx, l)
		}
		var again atomic.Int64
		h := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
			if !batch.CompareAndSwap(nil, b) {
				again.Add(1)
			}
			return nil
		})
		p := w.runWith(w.orders, store, "a", h, changefeed.Options{Start: feed.FromBeginning(), Manual: true})
		time.Sleep(time.Second)
		w.split(0)
		w.fill(3)
		time.Sleep(time.Minute)
		switch err := late.Load(); {
		case err == nil:
			t.Error("no checkpoint was asked for during the split")
		case !errors.Is(*err, feed.ErrLeaseLost):
			t.Errorf("a checkpoint during a split: %v, and %d batches came again; want %v", *err, again.Load(),
				feed.ErrLeaseLost)
		}
		p.stop(t)
	})
}

// A batch that was confirmed before the split is done for the leases of the parts, too. To confirm it again is no
// error.
func TestAConfirmedBatchMayBeConfirmedAgainDuringASplit(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(3)
		var batch atomic.Pointer[feed.Batch]
		var again atomic.Pointer[error]
		store := &hookedStore{Leases: w.leases}
		store.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if b := batch.Load(); b != nil && l.Kind == feed.KindLease {
				err := b.Checkpoint(ctx)
				again.CompareAndSwap(nil, &err)
			}
			return w.leases.Create(ctx, l)
		}
		h := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
			batch.CompareAndSwap(nil, b)
			return b.Checkpoint(ctx)
		})
		p := w.runWith(w.orders, store, "a", h, changefeed.Options{Start: feed.FromBeginning(), Manual: true})
		time.Sleep(time.Second)
		w.split(0)
		w.fill(3)
		time.Sleep(time.Minute)
		switch err := again.Load(); {
		case err == nil:
			t.Error("no checkpoint was asked for during the split")
		case *err != nil:
			t.Errorf("a second checkpoint during a split: %v", *err)
		}
		p.stop(t)
		if n := w.pending(); n != 0 {
			t.Errorf("%d changes are pending", n)
		}
	})
}

// A checkpoint by hand takes in every batch before it, also those whose lane was empty in between.
func TestAManualCheckpointTakesInAllBatchesBeforeItOfItsKey(t *testing.T) {
	for _, o := range []changefeed.Options{{Concurrency: 1}, {Concurrency: 1, MaxWait: time.Second}, {Concurrency: 8}} {
		t.Run(fmt.Sprint(o.Concurrency, o.MaxWait), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				h := &tally{before: func(ctx context.Context, b *feed.Batch) error {
					if b.Changes[0].ID == "second" {
						return b.Checkpoint(ctx)
					}
					return nil
				}}
				o.Start, o.Manual = feed.FromBeginning(), true
				p := w.run("a", h, o)
				w.put("oslo", "first", 1)
				time.Sleep(time.Minute)
				w.put("oslo", "second", 2)
				time.Sleep(time.Minute)
				p.stop(t)
				if n := w.pending(); n != 0 {
					t.Errorf("%d changes are pending though the later batch of the key was checkpointed", n)
				}
			})
		})
	}
}
