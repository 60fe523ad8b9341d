package changefeed_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// inLease is how many failures the only lease counts now.
func (w *world) inLease() int {
	w.t.Helper()
	return w.records(feed.KindLease)[0].Attempts
}

// Two checkpoints by hand are asked for at once, the newer one first.
func TestAnOlderCheckpointMovesNothingBack(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		kept := make(chan *feed.Batch, 5)
		h := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error { kept <- b; return nil })
		var slow atomic.Bool
		store := &hookedStore{Leases: w.leases, update: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if slow.Load() {
				time.Sleep(time.Second)
			}
			return w.leases.Update(ctx, l)
		}}
		p := w.runWith(w.orders, store, "a", h, changefeed.Options{
			Start: feed.FromBeginning(), Manual: true,
			MaxItems: 1,
		})
		w.fill(5)
		time.Sleep(5 * time.Second)
		var batches []*feed.Batch
		for range 5 {
			batches = append(batches, <-kept)
		}
		slow.Store(true)
		var asking sync.WaitGroup
		for _, n := range []int{3, 1} {
			asking.Go(func() {
				if err := batches[n].Checkpoint(t.Context()); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(100 * time.Millisecond)
		}
		asking.Wait()
		for _, c := range []struct{ n, pending int }{{3, 1}, {0, 1}, {2, 1}, {4, 0}} {
			if err := batches[c.n].Checkpoint(t.Context()); err != nil {
				t.Error(err)
			}
			if n := w.pending(); n != int64(c.pending) {
				t.Errorf("%d pending after a checkpoint of batch %d, want %d", n, c.n+1, c.pending)
			}
		}
		p.stop(t)
	})
}

// What was read and not checkpointed by hand comes again from the children of a split.
func TestChildrenOfASplitBeginAtTheCheckpointNotAtTheRead(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		forgets := feed.HandlerFunc(func(context.Context, *feed.Batch) error { return nil })
		p := w.run("a", forgets, changefeed.Options{Start: feed.FromBeginning(), Manual: true})
		w.fill(20)
		time.Sleep(10 * time.Second)
		w.split(0)
		time.Sleep(time.Minute)
		p.stop(t)
		if n, leases := w.pending(), len(w.records(feed.KindLease)); n != 20 || leases != 2 {
			t.Errorf("%d pending in %d leases, want all 20 in 2", n, leases)
		}
		y := &tally{}
		p = w.run("b", y, changefeed.Options{})
		time.Sleep(time.Minute)
		if items, again := y.items(); items != 20 || again != 0 {
			t.Errorf("%d items, %d again", items, again)
		}
		p.stop(t)
	})
}

func TestABatchCutShortByDrainComesAgain(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		cut := feed.HandlerFunc(func(ctx context.Context, _ *feed.Batch) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		p := w.run("a", cut, changefeed.Options{Start: feed.FromBeginning(), Drain: 2 * time.Second})
		w.fill(3)
		time.Sleep(time.Second)
		if took := p.took(t); took < 2*time.Second {
			t.Errorf("stopped after %v: the batch was not in hand", took)
		}
		if n := w.pending(); n != 3 {
			t.Errorf("%d pending, want the 3 that were not finished", n)
		}
		y := &tally{}
		p = w.run("b", y, changefeed.Options{})
		time.Sleep(time.Minute)
		if items, again := y.items(); items != 3 || again != 0 {
			t.Errorf("%d items, %d again", items, again)
		}
		p.stop(t)
	})
}

// Each of three changes fails twice. What the batch says, and what the lease counts when
// it is delivered, is of this change alone.
func TestAttemptsAreThoseOfTheBatchAtThePosition(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var inBatch, inLease []int
		h := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
			time.Sleep(time.Millisecond) // the position of the batch before is stored meanwhile
			inBatch, inLease = append(inBatch, b.Attempt), append(inLease, w.inLease())
			if b.Attempt < 3 {
				return errDownstream
			}
			return nil
		})
		p := w.run("a", h, changefeed.Options{Start: feed.FromBeginning(), MaxItems: 1})
		w.fill(3)
		time.Sleep(10 * time.Second)
		p.stop(t)
		if want := []int{1, 2, 3, 1, 2, 3, 1, 2, 3}; !slices.Equal(inBatch, want) {
			t.Errorf("attempts %v, want %v", inBatch, want)
		}
		if want := []int{0, 1, 2, 0, 1, 2, 0, 1, 2}; !slices.Equal(inLease, want) {
			t.Errorf("the lease counted %v, want %v", inLease, want)
		}
		if n := w.inLease(); n != 0 {
			t.Errorf("the lease counts %d failures at its end", n)
		}
	})
}

// The second change fails before the first one is checkpointed: until then the lease
// counts nothing, because the next owner begins with the first.
func TestAttemptsAreThoseOfTheBatchAtThePositionByHand(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var first *feed.Batch
		var inLease []int
		h := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
			if first == nil {
				first = b
				return nil
			}
			inLease = append(inLease, w.inLease())
			switch b.Attempt {
			case 1, 2:
				return errDownstream
			case 3:
				return errors.Join(errDownstream, first.Checkpoint(ctx))
			}
			return b.Checkpoint(ctx)
		})
		p := w.run("a", h, changefeed.Options{Start: feed.FromBeginning(), MaxItems: 1, Manual: true})
		w.fill(2)
		time.Sleep(10 * time.Second)
		p.stop(t)
		if want := []int{0, 0, 0, 3}; !slices.Equal(inLease, want) {
			t.Errorf("the lease counted %v, want %v", inLease, want)
		}
		if n := w.inLease(); n != 0 || w.pending() != 0 {
			t.Errorf("the lease counts %d failures at its end, %d pending", n, w.pending())
		}
	})
}

// A change fails, its instance dies, and it is deleted: its failures are not those of the
// next change.
func TestAttemptsEndWithTheChangeThatFailed(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		p := w.run("a", feed.HandlerFunc(failing), changefeed.Options{Start: feed.FromBeginning()})
		w.put("oslo", "1", 1)
		time.Sleep(3 * time.Second)
		p.kill(t)
		if w.inLease() < 3 {
			t.Fatalf("%d failures: the test shows nothing", w.inLease())
		}
		_, err := w.orders.Commit(t.Context(), feed.Key("oslo"), []feed.Write{{Op: feed.WriteDelete, ID: "1"}})
		if err != nil {
			t.Fatal(err)
		}
		y := &tally{}
		p = w.run("b", y, changefeed.Options{})
		time.Sleep(3 * time.Minute)
		if n := w.inLease(); n != 0 {
			t.Errorf("the lease counts %d failures of a change that is gone", n)
		}
		w.put("oslo", "2", 1)
		time.Sleep(time.Second)
		p.stop(t)
		if !slices.Equal(y.attempts, []int{1}) {
			t.Errorf("attempts %v of a change that never failed", y.attempts)
		}
	})
}

func TestCheckpointItemsAreCountedToTheLast(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		p := w.run("a", &tally{}, changefeed.Options{Start: feed.FromBeginning(), CheckpointItems: 3})
		time.Sleep(time.Second)
		var pending []int64
		look := func() {
			time.Sleep(time.Second)
			pending = append(pending, w.pending())
		}
		for n := range 3 {
			w.put("oslo", "item", n)
			look()
			both := []feed.Write{upsert("oslo", "a", n), upsert("oslo", "b", n)} // two changes of one page
			if _, err := w.orders.Commit(t.Context(), feed.Key("oslo"), both); err != nil {
				t.Fatal(err)
			}
			look()
		}
		if want := []int64{1, 0, 1, 0, 1, 0}; !slices.Equal(pending, want) {
			t.Errorf("pending after one change and two more, again and again: %v, want %v with a checkpoint each 3",
				pending, want)
		}
		p.stop(t)
	})
}
