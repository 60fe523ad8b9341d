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

// slow is a handler that needs its time for each change and gives up when its context ends.
type slow struct {
	tally
	each  time.Duration
	sizes []int
	tries []int
}

func (h *slow) Handle(ctx context.Context, b *feed.Batch) error {
	h.mu.Lock()
	h.sizes, h.tries = append(h.sizes, len(b.Changes)), append(h.tries, b.Attempt)
	each := h.each
	h.mu.Unlock()
	for range b.Changes {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(each):
		}
	}
	return h.tally.Handle(ctx, b)
}

// batches are the sizes and the attempts so far, and forgets them.
func (h *slow) batches(each time.Duration) (sizes, tries []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	sizes, tries = h.sizes, h.tries
	h.each, h.sizes, h.tries = each, nil, nil
	return sizes, tries
}

// 90 changes, 10 s each, 10 minutes a batch: the page that the source gives is too much
// for the handler, and was delivered for ever.
func TestAPageThatTakesTooLongComesAgainInSmallerParts(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(90)
		h := &slow{each: 10 * time.Second}
		p := w.run("a", h, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(20 * time.Minute)
		sizes, tries := h.batches(h.each)
		if items, again := h.items(); items != 45 || again != 0 {
			t.Errorf("%d items, %d again after 20 minutes, want half of the page: the sizes were %v", items, again,
				sizes)
		}
		if len(tries) < 2 || tries[1] != 2 {
			t.Errorf("attempts %v, want those of one position to go on", tries)
		}
		time.Sleep(20 * time.Minute)
		if items, again := h.items(); items != 90 || again != 0 || w.pending() != 0 {
			t.Errorf("%d items, %d again, %d pending: the first sizes were %v", items, again, w.pending(), sizes)
		}
		h.ordered(t)
		p.stop(t)
	})
}

// The limit goes down to one change, up again when there is time, and is then forgotten.
func TestPagesGrowAgainWhenTheHandlerHasTime(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(40)
		h := &slow{each: 40 * time.Second}
		p := w.run("a", h, changefeed.Options{Start: feed.FromBeginning(), HandlerTimeout: time.Minute})
		time.Sleep(10 * time.Minute)
		if sizes, _ := h.batches(0); len(sizes) < 6 || slices.Min(sizes) != 1 || slices.Max(sizes[5:]) > 2 {
			t.Errorf("sizes %v, want them to fall to 1 and to stay there", sizes)
		}
		time.Sleep(10 * time.Minute)
		if sizes, _ := h.batches(0); len(sizes) < 4 || !slices.IsSorted(sizes[:4]) || slices.Max(sizes) < 8 {
			t.Errorf("sizes %v, want them to grow", sizes)
		}
		w.fill(60)
		time.Sleep(time.Minute)
		if items, again := h.items(); items != 60 || again != 40 || w.pending() != 0 {
			t.Errorf("%d items, %d again, %d pending", items, again, w.pending())
		}
		h.ordered(t)
		p.stop(t)
	})
}

// A transaction is whole however long it takes, and what follows it is not held up more
// than it must be.
func TestATransactionThatTakesTooLongStaysWhole(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(10)
		var writes []feed.Write
		for n := range 20 {
			writes = append(writes, upsert("oslo", fmt.Sprint(n), n))
		}
		results, err := w.orders.Commit(t.Context(), feed.Key("oslo"), writes)
		if err != nil {
			t.Fatal(err)
		}
		w.fill(10)
		h := &slow{each: 4 * time.Second} // the transaction alone needs 80 s of 60
		var whole atomic.Int64
		h.before = func(_ context.Context, b *feed.Batch) error {
			for _, c := range b.Changes {
				if c.LSN == results[0].LSN {
					whole.Add(1)
				}
			}
			return nil
		}
		p := w.run("a", h, changefeed.Options{Start: feed.FromBeginning(), HandlerTimeout: time.Minute})
		time.Sleep(20 * time.Minute)
		if n := whole.Load(); n != 0 {
			t.Errorf("%d changes of the transaction were handled, which cannot be handled in time", n)
		}
		h.batches(2 * time.Second)
		time.Sleep(10 * time.Minute)
		if n := whole.Load(); n != 20 || w.pending() != 0 {
			t.Errorf("%d changes of the transaction at once, want all 20; %d pending", n, w.pending())
		}
		h.ordered(t)
		p.stop(t)
	})
}

// By hand: a batch that took too long cannot be checkpointed when its parts are on their
// way, because its position lies after theirs.
func TestACheckpointOfABatchThatComesAgainInPartsIsRefused(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(10)
		var first *feed.Batch
		var refused error
		sizes := []int{}
		h := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
			sizes = append(sizes, len(b.Changes))
			if first == nil {
				first = b
				<-ctx.Done()
				return context.Cause(ctx)
			}
			if len(sizes) == 2 {
				refused = first.Checkpoint(t.Context())
			}
			return b.Checkpoint(ctx)
		})
		p := w.run("a", h, changefeed.Options{Start: feed.FromBeginning(), HandlerTimeout: time.Minute, Manual: true})
		time.Sleep(80 * time.Second)
		p.stop(t)
		if !errors.Is(refused, feed.ErrHandlerTimeout) || !slices.Equal(sizes[:2], []int{10, 5}) || w.pending() != 0 {
			t.Errorf("sizes %v, %d pending; the first batch's checkpoint gave %v", sizes, w.pending(), refused)
		}
	})
}

// By hand: a batch that was checkpointed before its time was up is done.
func TestABatchCheckpointedBeforeItsTimeoutIsDone(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(10)
		var calls atomic.Int64
		h := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
			calls.Add(1)
			if err := b.Checkpoint(ctx); err != nil {
				return err
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		p := w.run("a", h, changefeed.Options{Start: feed.FromBeginning(), HandlerTimeout: time.Minute, Manual: true})
		time.Sleep(10 * time.Minute)
		if n := calls.Load(); n != 1 || w.pending() != 0 {
			t.Errorf("%d calls, %d pending", n, w.pending())
		}
		p.stop(t)
	})
}
