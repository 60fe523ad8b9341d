package changefeed_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
)

// A backlog is read while the handler works: a page costs as much as the slower of the two, not both.
func TestTheNextPageIsReadWhileTheHandlerWorks(t *testing.T) {
	for _, c := range []struct{ read, handle, want time.Duration }{
		{5 * time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond},
		{2 * time.Millisecond, 5 * time.Millisecond, 5 * time.Millisecond},
	} {
		inWorld(t, 1, func(t *testing.T, w *world) {
			const pages = 100
			w.many(pages*10, 50)
			source := &hookedSource{Container: w.orders, read: func(ctx context.Context, r changefeed.Range, from changefeed.Position, o changefeed.ReadOptions) (changefeed.Page, error) {
				time.Sleep(c.read)
				return w.orders.Read(ctx, r, from, o)
			}}
			var first, last time.Time
			h := &tally{before: func(context.Context, *changefeed.Batch) error {
				if first.IsZero() {
					first = time.Now()
				}
				time.Sleep(c.handle)
				last = time.Now()
				return nil
			}}
			p := w.runWith(source, w.leases, "a", h, changefeed.Options{Start: changefeed.FromBeginning(), MaxItems: 10})
			time.Sleep(time.Minute)
			p.stop(t)
			items, again := h.items()
			if each := last.Sub(first) / pages; items != 1000 || again != 0 || each > c.want*11/10 {
				t.Errorf("read %v, handler %v: %v a page; %d items, %d again", c.read, c.handle, each, items, again)
			}
		})
	}
}

// A page that took too long comes again in smaller parts, before the page that was read while the handler had it.
func TestAPageReadAheadIsNotTakenForOneThatComesAgain(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.many(500, 20)
		h := &tally{before: func(ctx context.Context, b *changefeed.Batch) error {
			if len(b.Changes) > 5 {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		}}
		p := w.run("a", h, changefeed.Options{Start: changefeed.FromBeginning(), MaxItems: 20, HandlerTimeout: time.Second, RetryMax: time.Second})
		time.Sleep(5 * time.Minute)
		p.stop(t)
		if items, _ := h.items(); items != 500 || w.pending() != 0 {
			t.Errorf("%d items, %d pending", items, w.pending())
		}
		h.perKey(t)
	})
}

// A source that hangs while the handler works ends with the work: Run does not wait for it longer than for any read.
func TestAReadAheadEndsWithTheWork(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.many(100, 20)
		var hung atomic.Bool
		source := &hookedSource{Container: w.orders, read: func(ctx context.Context, r changefeed.Range, from changefeed.Position, o changefeed.ReadOptions) (changefeed.Page, error) {
			if from.Token != "" && from.Token != `"0"` {
				hung.Store(true)
				<-ctx.Done()
				return changefeed.Page{}, context.Cause(ctx)
			}
			return w.orders.Read(ctx, r, from, o)
		}}
		h := &tally{before: func(context.Context, *changefeed.Batch) error {
			time.Sleep(10 * time.Second)
			return nil
		}}
		p := w.runWith(source, w.leases, "a", h, changefeed.Options{Start: changefeed.FromBeginning(), MaxItems: 20})
		time.Sleep(5 * time.Second)
		begun := time.Now()
		p.stop(t)
		if took := time.Since(begun); !hung.Load() || took > 6*time.Second {
			t.Errorf("hung: %v; stopped after %v", hung.Load(), took)
		}
		if items, again := h.items(); items != 20 || again != 0 || w.pending() != 80 {
			t.Errorf("%d items, %d again, %d pending", items, again, w.pending())
		}
	})
}
