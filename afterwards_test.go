package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// What a lease and its status say after something has passed: a timeout, a failure, a slow write, a gap.

// deliveries are the ways in which changes of several keys come to the handler.
func deliveries() map[string]changefeed.Options {
	return map[string]changefeed.Options{
		"as read":          {},
		"with a policy":    {OnFailure: changefeed.FailurePolicy{MaxAttempts: 5, DeadLetters: &letterBox{}}},
		"after a wait":     {MaxWait: time.Second},
		"keys in parallel": {Concurrency: 4},
	}
}

// Each change takes a second, and a batch of sixteen is too much for 10 s. A batch of eight takes 8 s: nothing says
// that there is time for more.
func TestBatchesDoNotGrowWhileTheyTakeMostOfTheirTime(t *testing.T) {
	for name, o := range deliveries() {
		if o.OnFailure.MaxAttempts == 0 {
			t.Run(name, func(t *testing.T) {
				inWorld(t, 1, func(t *testing.T, w *world) { w.takesMostOfItsTime(o) })
			})
		}
	}
}

// It is the same for a unit that parks what fails, though its pages come anew each time.
func TestBatchesWithAPolicyDoNotGrowWhileTheyTakeMostOfTheirTime(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) { w.takesMostOfItsTime(deliveries()["with a policy"]) })
}

// takesMostOfItsTime checks the sizes of batches of one key after one that took too long.
func (w *world) takesMostOfItsTime(o changefeed.Options) {
	const changes = 80
	for i := range changes {
		w.put("oslo", fmt.Sprint("item-", i), i)
	}
	h := &slow{each: time.Second}
	o.Start, o.MaxItems, o.HandlerTimeout = feed.FromBeginning(), 16, 10*time.Second
	p := w.run("a", h, o)
	time.Sleep(10 * time.Minute)
	p.stop(w.t)
	items, again := h.items()
	sizes, _ := h.batches(0)
	if items != changes || again != 0 || sizes[0] != 16 || slices.Max(sizes[1:]) > 8 {
		w.t.Errorf("%d items, %d again, sizes %v: want one of 16 and then none above 8", items, again, sizes)
	}
}

// A change fails, and then succeeds. An hour later another one fails: that is a failure of its own.
func TestAFailureThatHasPassedIsNotSaidToGoOn(t *testing.T) {
	for name, o := range deliveries() {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				var calls atomic.Int64
				h := feed.HandlerFunc(func(context.Context, *feed.Batch) error {
					if n := calls.Add(1); n%4 != 0 { // each change fails three times
						return errHandler
					}
					return nil
				})
				o.Start = feed.FromBeginning()
				p := w.run("a", h, o)
				for i := range 2 {
					put := time.Now()
					before := len(p.errs.all())
					w.put("oslo", fmt.Sprint("item-", i), i)
					time.Sleep(time.Hour)
					if l := leaseOf(t, p.processor); l.Failures != 0 || !l.Failing.IsZero() || l.Lease.Attempts != 0 {
						t.Errorf("an hour after change %d: %d failures, failing since %v, %d attempts", i, l.Failures,
							l.Failing, l.Lease.Attempts)
					}
					said := p.errs.all()[before:]
					for n, err := range said {
						failed, ok := errors.AsType[*feed.BatchError](err)
						if !ok || failed.Attempt != n+1 || !failed.Failing.IsZero() && failed.Failing.Before(put) {
							t.Errorf("report %d of change %d, written at %v: %+v", n, i, put, failed)
						}
					}
					if len(said) != 3 {
						t.Errorf("%d reports of change %d, want 3", len(said), i)
					}
				}
				p.stop(t)
			})
		})
	}
}

// A renewal takes 5 s. What is done meanwhile is not in it, and counts as not stored.
func TestWhatIsDoneDuringAWriteOfTheLeaseIsNotForgotten(t *testing.T) {
	for name, o := range deliveries() {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				var writing, slow atomic.Bool
				store := &hookedStore{Leases: w.leases, update: func(ctx context.Context, l feed.Record) (feed.Record,
					error,
				) {
					if l.Kind == feed.KindLease && slow.CompareAndSwap(true, false) {
						writing.Store(true)
						waitFor(ctx, 5*time.Second)
						writing.Store(false)
					}
					return w.leases.Update(ctx, l)
				}}
				h := &tally{}
				o.Start, o.CheckpointItems = feed.FromBeginning(), 10
				p := w.runWith(w.orders, store, "a", h, o)
				time.Sleep(time.Minute)
				w.items(0, 5)
				slow.Store(true)
				w.until(time.Minute, "renewing", writing.Load)
				w.items(5, 9)
				w.until(time.Minute, "written", func() bool { return !writing.Load() })
				time.Sleep(time.Second)
				if items, _ := h.items(); items != 9 || w.pending() != 4 {
					t.Errorf("%d items are done and %d are not stored after the renewal, want 9 and 4: the test "+
						"shows nothing", items, w.pending())
				}
				w.items(9, 15)
				time.Sleep(3 * time.Second)
				if n := w.pending(); n != 0 {
					t.Errorf("%d changes are done and not stored, though a checkpoint comes with the tenth", n)
				}
				p.stop(t)
			})
		})
	}
}

// items writes new items of different keys, with these numbers.
func (w *world) items(from, to int) {
	w.t.Helper()
	for n := from; n < to; n++ {
		w.put(fmt.Sprint("city-", n), fmt.Sprint("item-", n), n)
	}
}

// One key is still in the handler when another one is checkpointed by hand, and then the process ends.
func TestACheckpointByHandAfterAGapIsStored(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.put("oslo", "open", 1)
		w.put("rome", "done", 1)
		stored := make(chan error, 1)
		first := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
			if b.Changes[0].ID == "open" {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			stored <- b.Checkpoint(ctx)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		o := changefeed.Options{Start: feed.FromBeginning(), Manual: true, Concurrency: 2, Drain: time.Second}
		p := w.run("a", first, o)
		if err := within(t, stored); err != nil {
			t.Errorf("checkpoint: %v", err)
		}
		p.kill(t)
		y := &tally{before: func(ctx context.Context, b *feed.Batch) error { return b.Checkpoint(ctx) }}
		p = w.run("b", y, o)
		time.Sleep(5 * time.Minute)
		p.stop(t)
		var ids []string
		for _, c := range y.changes {
			ids = append(ids, c.ID)
		}
		if !slices.Equal(ids, []string{"open"}) || w.pending() != 0 {
			t.Errorf("the next owner got %q, want what was open; %d pending", ids, w.pending())
		}
	})
}
