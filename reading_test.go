package changefeed_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// At the end of the feed nothing is read ahead: what arrives while the handler works comes in one batch.
func TestWhatArrivesDuringACallIsOneBatch(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		source := &hookedSource{Container: w.orders, read: func(ctx context.Context, r feed.Range, from feed.Position,
			o feed.ReadOptions,
		) (feed.Page, error) {
			time.Sleep(100 * time.Millisecond)
			return w.orders.Read(ctx, r, from, o)
		}}
		var calls int
		h := &tally{before: func(context.Context, *feed.Batch) error {
			if calls++; calls == 1 {
				time.Sleep(50 * time.Millisecond)
				w.put("oslo", "second", 1)
				time.Sleep(500 * time.Millisecond)
				w.put("oslo", "third", 1)
			}
			time.Sleep(500 * time.Millisecond)
			return nil
		}}
		p := w.runWith(source, w.leases, "a", h, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Second)
		w.put("oslo", "first", 1)
		time.Sleep(time.Minute)
		p.stop(t)
		if items, again := h.items(); items != 3 || again != 0 || calls != 2 {
			t.Errorf("%d items, %d again, in %d calls, want 3 in 2 calls", items, again, calls)
		}
	})
}

// A read that is not answered is given up, reported and repeated.
func TestAReadThatIsNotAnsweredIsRepeated(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var silent atomic.Bool
		source := &hookedSource{Container: w.orders, read: func(ctx context.Context, r feed.Range, from feed.Position,
			o feed.ReadOptions,
		) (feed.Page, error) {
			if silent.Swap(false) {
				<-ctx.Done()
				return feed.Page{}, context.Cause(ctx)
			}
			return w.orders.Read(ctx, r, from, o)
		}}
		h := &tally{}
		p := w.runWith(source, w.leases, "a", h, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		silent.Store(true)
		w.fill(3)
		time.Sleep(5 * time.Minute)
		if items, _ := h.items(); items != 3 || p.errs.find(context.DeadlineExceeded) == nil {
			t.Errorf("%d items, reported: %v", items, p.errs.errs)
		}
		p.stop(t)
	})
}
