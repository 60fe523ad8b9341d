package changefeed_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/feed"
)

// pageIsBatch is a buffer too small for pages of a thousand changes.
const pageIsBatch = 4<<20 - 1

// A backlog is read while the handler works: a page costs as much as the slower of the two, not both.
func TestTheNextPageIsReadWhileTheHandlerWorks(t *testing.T) {
	for _, c := range []struct{ read, handle, want time.Duration }{
		{5 * time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond},
		{2 * time.Millisecond, 5 * time.Millisecond, 5 * time.Millisecond},
	} {
		inWorld(t, 1, func(t *testing.T, w *world) {
			const pages = 100
			w.many(pages*10, 50)
			source := &hookedSource{Container: w.orders, read: func(ctx context.Context, r feed.Range,
				from feed.Position, o feed.ReadOptions,
			) (feed.Page, error) {
				time.Sleep(c.read)
				return w.orders.Read(ctx, r, from, o)
			}}
			var first, last time.Time
			h := &tally{before: func(context.Context, *feed.Batch) error {
				if first.IsZero() {
					first = time.Now()
				}
				time.Sleep(c.handle)
				last = time.Now()
				return nil
			}}
			p := w.runWith(source, w.leases, "a", h, changefeed.Options{
				Start: feed.FromBeginning(), MaxItems: 10, BufferBytes: pageIsBatch,
			})
			time.Sleep(time.Minute)
			p.stop(t)
			items, again := h.items()
			if each := last.Sub(first) / pages; items != 1000 || again != 0 || each > c.want*11/10 {
				t.Errorf("read %v, handler %v: %v a page; %d items, %d again", c.read, c.handle, each, items, again)
			}
		})
	}
}

// Each second read takes nearly twice as long as a batch. The handler does not wait for it, because pages are read
// ahead.
func TestReadsThatAreNowAndThenSlowDelayNothing(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		const pages = 100
		w.many(pages*10, 50)
		reads := 0
		source := &hookedSource{Container: w.orders, read: func(ctx context.Context, r feed.Range, from feed.Position,
			o feed.ReadOptions,
		) (feed.Page, error) {
			if reads++; reads%2 == 0 {
				time.Sleep(9 * time.Millisecond)
			}
			return w.orders.Read(ctx, r, from, o)
		}}
		var first, last time.Time
		h := &tally{before: func(context.Context, *feed.Batch) error {
			if first.IsZero() {
				first = time.Now()
			}
			time.Sleep(5 * time.Millisecond)
			last = time.Now()
			return nil
		}}
		p := w.runWith(source, w.leases, "a", h, changefeed.Options{
			Start: feed.FromBeginning(), MaxItems: 10, BufferBytes: pageIsBatch,
		})
		time.Sleep(time.Minute)
		p.stop(t)
		if each := last.Sub(first) / pages; each > 5500*time.Microsecond {
			t.Errorf("%v a page, want about the 5 ms of the handler", each)
		}
	})
}

// A page is read ahead only if the buffer has room for it and for one more. The versions before those of a page take
// room, too.
func TestNoMoreIsReadAheadThanTheBufferHolds(t *testing.T) {
	for _, tt := range []struct {
		changefeed.Options
		previous int // bytes of the version before each change
	}{
		{changefeed.Options{BufferItems: 19}, 0},
		{changefeed.Options{BufferBytes: 500}, 0},
		{changefeed.Options{BufferBytes: 10_000}, 1000},
	} {
		o := tt.Options
		inWorld(t, 1, func(t *testing.T, w *world) {
			w.many(100, 20)
			var last atomic.Int64 // LSN that was read
			source := &hookedSource{Container: w.orders, read: func(ctx context.Context, r feed.Range,
				from feed.Position, o feed.ReadOptions,
			) (feed.Page, error) {
				page, err := w.orders.Read(ctx, r, from, o)
				for i := range page.Changes {
					page.Changes[i].Previous = make([]byte, tt.previous)
					last.Store(page.Changes[i].LSN)
				}
				return page, err
			}}
			h := &tally{before: func(_ context.Context, b *feed.Batch) error {
				time.Sleep(time.Second)
				if ahead := last.Load() - b.Changes[0].LSN; ahead >= int64(cmp.Or(o.BufferItems, o.MaxItems)) {
					t.Errorf("%d items, %d bytes: changes to LSN %d are read while the handler has those from LSN %d",
						o.BufferItems, o.BufferBytes, last.Load(), b.Changes[0].LSN)
				}
				return nil
			}}
			o.Start, o.MaxItems = feed.FromBeginning(), 10
			p := w.runWith(source, w.leases, "a", h, o)
			time.Sleep(time.Minute)
			p.stop(t)
			if items, _ := h.items(); items != 100 {
				t.Errorf("%d items", items)
			}
		})
	}
}

// A page that took too long comes again in smaller parts, before the page that was read while the handler had it.
func TestAPageReadAheadIsNotTakenForOneThatComesAgain(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.many(500, 20)
		h := &tally{before: func(ctx context.Context, b *feed.Batch) error {
			if len(b.Changes) > 5 {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		}}
		p := w.run("a", h, changefeed.Options{
			Start: feed.FromBeginning(), MaxItems: 20, HandlerTimeout: time.Second,
			RetryMax: time.Second,
		})
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
		w.many(2100, 20)
		var hung atomic.Bool
		source := &hookedSource{Container: w.orders, read: func(ctx context.Context, r feed.Range, from feed.Position,
			o feed.ReadOptions,
		) (feed.Page, error) {
			if from.Token != "" && from.Token != `"0"` {
				hung.Store(true)
				<-ctx.Done()
				return feed.Page{}, context.Cause(ctx)
			}
			return w.orders.Read(ctx, r, from, o)
		}}
		h := &tally{before: func(context.Context, *feed.Batch) error {
			time.Sleep(10 * time.Second)
			return nil
		}}
		p := w.runWith(source, w.leases, "a", h, changefeed.Options{Start: feed.FromBeginning(), MaxItems: 20})
		time.Sleep(5 * time.Second)
		begun := time.Now()
		p.stop(t)
		if took := time.Since(begun); !hung.Load() || took > 6*time.Second {
			t.Errorf("hung: %v; stopped after %v", hung.Load(), took)
		}
		if items, again := h.items(); items != 20 || again != 0 || w.pending() != 2080 {
			t.Errorf("%d items, %d again, %d pending", items, again, w.pending())
		}
	})
}

// A read of few changes costs as much time as one of many, so small batches are cut from a larger page, if the buffer
// has room for the page and a position can be set within it.
func TestSmallBatchesAreCutFromALargerPage(t *testing.T) {
	for _, tt := range []struct {
		o            changefeed.Options
		noSequencer  bool
		want, wantIn int
	}{
		{o: changefeed.Options{MaxItems: 10}, want: 1000, wantIn: 10},
		{o: changefeed.Options{MaxItems: 10, Concurrency: 4}, want: 1000, wantIn: 10},
		{o: changefeed.Options{MaxItems: 10, BufferItems: 300}, want: 300, wantIn: 10},
		{o: changefeed.Options{MaxItems: 400, BufferItems: 300}, want: 400, wantIn: 400},
		{o: changefeed.Options{MaxItems: 10, BufferBytes: pageIsBatch}, want: 10, wantIn: 10},
		{o: changefeed.Options{MaxItems: 10, BufferBytes: 4 << 20}, want: 1000, wantIn: 10},
		{o: changefeed.Options{MaxItems: 1200}, want: 1200, wantIn: 1200},
		{o: changefeed.Options{}, want: 0, wantIn: 1000}, // the default of docstore
		{o: changefeed.Options{MaxItems: 10}, noSequencer: true, want: 10, wantIn: 10},
	} {
		inWorld(t, 1, func(t *testing.T, w *world) {
			w.many(1500, 20)
			var most atomic.Int64
			hooked := &hookedSource{Container: w.orders, read: func(ctx context.Context, r feed.Range,
				from feed.Position, o feed.ReadOptions,
			) (feed.Page, error) {
				if o.MaxItems != tt.want && o.MaxItems != 1 { // the first read of a unit asks for a single change
					t.Errorf("a read asks for %d changes, want %d", o.MaxItems, tt.want)
				}
				return w.orders.Read(ctx, r, from, o)
			}}
			source := feed.Source(hooked)
			if tt.noSequencer {
				source = struct{ feed.Source }{hooked}
			}
			h := &tally{before: func(_ context.Context, b *feed.Batch) error {
				most.Store(max(most.Load(), int64(len(b.Changes))))
				return nil
			}}
			tt.o.Start = feed.FromBeginning()
			p := w.runWith(source, w.leases, "a", h, tt.o)
			time.Sleep(time.Minute)
			p.stop(t)
			if items, again := h.items(); items != 1500 || again != 0 || most.Load() != int64(tt.wantIn) {
				t.Errorf("reads of %d: %d items, %d again, at most %d in a batch, want %d",
					tt.want, items, again, most.Load(), tt.wantIn)
			}
			h.perKey(t)
		})
	}
}

// A position that a handler stores with its effects is never past a change that the handler has not received.
func TestThePositionOfABatchIsAfterItsChanges(t *testing.T) {
	for _, concurrency := range []int{1, 4} {
		inWorld(t, 1, func(t *testing.T, w *world) {
			w.many(25, 5)
			transaction := make([]feed.Write, 4)
			for i := range transaction {
				transaction[i] = upsert("oslo", fmt.Sprint("t", i), 1)
			}
			committed, err := w.orders.Commit(t.Context(), feed.Key("oslo"), transaction)
			if err != nil {
				t.Fatal(err)
			}
			var redriven atomic.Bool
			h := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
				var want int64
				for _, c := range b.Changes {
					want = max(want, c.LSN)
				}
				if b.Cut {
					want-- // the rest of the transaction is in other batches
				}
				if b.Redriven {
					redriven.Store(true)
					if b.Position != (feed.Position{}) {
						t.Errorf("a dead letter has the position %s", b.Position)
					}
				} else if lsn, ok := w.orders.TokenLSN(b.Position.Token); !ok || lsn != want {
					t.Errorf("a batch to LSN %d, cut: %t, has the position %s", want, b.Cut, b.Position)
				}
				if slices.ContainsFunc(b.Changes, func(c feed.Change) bool { return c.ID == "t2" }) && !b.Redriven {
					return errDownstream
				}
				return nil
			})
			p := w.run("a", h, changefeed.Options{
				Start: feed.FromBeginning(), MaxItems: 10, RetryMax: time.Second, Concurrency: concurrency,
				OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: &letterBox{}},
			})
			time.Sleep(time.Minute)
			if _, err := deadletters.Redrive(t.Context(), w.orders, w.leases, feed.Key("oslo"),
				letterNamed(committed[2].LSN, "t2")); err != nil || !redriven.Load() {
				t.Errorf("the letter is not redriven: %v", err)
			}
			p.stop(t)
		})
	}
}

// If no position can be set within a page, that of a batch is after its page.
func TestThePositionOfABatchWithoutASequencerIsAfterItsPage(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.many(25, 5)
		h := &tally{before: func(_ context.Context, b *feed.Batch) error {
			if lsn, ok := w.orders.TokenLSN(b.Position.Token); !ok || lsn != b.Changes[len(b.Changes)-1].LSN {
				t.Errorf("a page to LSN %d has the position %s", b.Changes[len(b.Changes)-1].LSN, b.Position)
			}
			return nil
		}}
		p := w.runWith(struct{ feed.Source }{w.orders}, w.leases, "a", h, changefeed.Options{
			Start: feed.FromBeginning(), MaxItems: 10,
		})
		time.Sleep(time.Minute)
		p.stop(t)
		if items, _ := h.items(); items != 25 {
			t.Errorf("%d items", items)
		}
	})
}

// The charge of a read counts once, in whichever number of batches its page is handled.
func TestAChargeCountsForOneBatch(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.many(25, 5)
		var read, handled float64
		source := &hookedSource{Container: w.orders, read: func(ctx context.Context, r feed.Range, from feed.Position,
			o feed.ReadOptions,
		) (feed.Page, error) {
			page, err := w.orders.Read(ctx, r, from, o)
			if page.Charge = 7; len(page.Changes) > 0 && o.MaxItems != 1 { // the first read of a unit has no batch
				read += page.Charge
			}
			return page, err
		}}
		h := &tally{before: func(_ context.Context, b *feed.Batch) error {
			handled += b.Charge
			return nil
		}}
		p := w.runWith(source, w.leases, "a", h, changefeed.Options{Start: feed.FromBeginning(), MaxItems: 10})
		time.Sleep(time.Minute)
		p.stop(t)
		if read == 0 || handled != read {
			t.Errorf("reads of %v RU, and batches of %v RU", read, handled)
		}
	})
}
