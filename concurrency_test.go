package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/proof/detector"
)

// many writes n changes of so many keys.
func (w *world) many(n, keys int) {
	for i := range n {
		w.put(fmt.Sprintf("city-%d", i%keys), fmt.Sprint("item-", i), i)
	}
}

// Keys in parallel are as much faster as there are batches at once, and each key stays in order.
func TestKeysAreHandledInParallelEachInItsOrder(t *testing.T) {
	took := map[int]time.Duration{}
	for _, concurrency := range []int{1, 64} {
		inWorld(t, 1, func(t *testing.T, w *world) {
			w.many(3000, 1000)
			h := &slow{each: 10 * time.Millisecond}
			begun := time.Now()
			p := w.run("a", h, changefeed.Options{Start: feed.FromBeginning(), Concurrency: concurrency})
			for items, _ := h.items(); items < 3000 && time.Since(begun) < time.Hour; items, _ = h.items() {
				time.Sleep(time.Millisecond)
			}
			took[concurrency] = time.Since(begun)
			p.stop(t)
			if items, again := h.items(); items != 3000 || again != 0 || w.pending() != 0 {
				t.Errorf("%d items, %d again, %d pending", items, again, w.pending())
			}
			h.perKey(t)
		})
	}
	if took[1] < 50*took[64] {
		t.Errorf("one after the other %v, 64 at once %v", took[1], took[64])
	}
}

// perKey checks that the changes of each key came in the order of their LSNs.
func (y *tally) perKey(t *testing.T) {
	t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	last := map[feed.PartitionKey]int64{}
	for _, c := range y.changes {
		if c.LSN < last[c.PartitionKey] {
			t.Errorf("%s: LSN %d after %d", c.PartitionKey, c.LSN, last[c.PartitionKey])
		}
		last[c.PartitionKey] = c.LSN
	}
}

// Acceptance 10: one stuck key among 10,000 healthy ones costs less than a tenth of the
// throughput. What is done after it is remembered: after a crash little comes again.
func TestAcceptance10OneStuckKeyCostsLittle(t *testing.T) {
	keys := detector.Rounds(10_000, 1000)
	took := map[bool]time.Duration{}
	for _, sticks := range []bool{false, true} {
		inWorld(t, 1, func(t *testing.T, w *world) {
			w.put("stuck", "first", 0)
			for i := range keys {
				w.put(fmt.Sprintf("city-%d", i), "item", i)
				if i%(keys/10) == 0 {
					w.put("stuck", fmt.Sprint("later-", i), i)
				}
			}
			h := &tally{}
			h.before = func(ctx context.Context, b *feed.Batch) error {
				if sticks && b.Changes[0].PartitionKey == feed.Key("stuck") {
					<-ctx.Done()
					return context.Cause(ctx)
				}
				// Virtual time, in proportion to the changes: it must not depend on how they are divided into batches.
				time.Sleep(time.Duration(len(b.Changes)) * time.Millisecond)
				return nil
			}
			o := changefeed.Options{
				Start: feed.FromBeginning(), Concurrency: 20, HandlerTimeout: time.Hour,
				Drain: time.Second,
			}
			want := map[bool]int{false: keys + 11, true: keys}[sticks]
			begun := time.Now()
			p := w.run("a", h, o)
			for items, _ := h.items(); items < want && time.Since(begun) < 10*time.Minute; items, _ = h.items() {
				time.Sleep(time.Millisecond)
			}
			took[sticks] = time.Since(begun)
			time.Sleep(2 * time.Second)
			p.kill(t)
			sticks = false
			p = w.run("b", h, o)
			time.Sleep(5 * time.Minute)
			p.stop(t)
			if items, again := h.items(); items != keys+11 || again > 40 || w.pending() != 0 {
				t.Errorf("%d items, %d again, %d pending", items, again, w.pending())
			}
			h.perKey(t)
		})
	}
	t.Logf("without a stuck key %v, with one %v", took[false], took[true])
	if took[true] > took[false]*11/10 {
		t.Errorf("without a stuck key %v, with one %v", took[false], took[true])
	}
}

// The attempts of a key are its own: a change on a later page has none because an earlier one fails.
func TestAttemptsOfAKeyAreItsOwn(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		h := &tally{}
		h.before = func(_ context.Context, b *feed.Batch) error {
			switch stuck := b.Changes[0].ID == "stuck"; {
			case stuck && b.Attempt < 6:
				return errors.New("not yet")
			case !stuck && b.Attempt != 1:
				t.Errorf("%s comes for the first time as attempt %d", b.Changes[0].ID, b.Attempt)
			}
			return nil
		}
		p := w.run("a", h, changefeed.Options{Start: feed.FromBeginning(), Concurrency: 4})
		w.put("oslo", "stuck", 0)
		for i := range 30 {
			time.Sleep(100 * time.Millisecond)
			w.put(fmt.Sprint("city-", i), fmt.Sprint("item-", i), i)
		}
		time.Sleep(time.Minute)
		p.stop(t)
		if items, again := h.items(); items != 31 || again != 0 || w.pending() != 0 {
			t.Errorf("%d items, %d again, %d pending", items, again, w.pending())
		}
	})
}

// If the source cannot read a key again, a stuck key holds the others up when the buffer is full of its changes, and
// not before. Otherwise the key is set aside, and holds nobody up.
func TestTheBufferIsBounded(t *testing.T) {
	for _, canReadKeys := range []bool{false, true} {
		t.Run(fmt.Sprint(canReadKeys), func(t *testing.T) { testBuffer(t, canReadKeys) })
	}
}

func testBuffer(t *testing.T, canReadKeys bool) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		for i := range 400 {
			w.put("stuck", fmt.Sprint("item-", i), i)
		}
		w.many(100, 10)
		var most atomic.Int64
		h := &tally{before: func(ctx context.Context, b *feed.Batch) error {
			most.Store(max(most.Load(), int64(len(b.Changes))))
			if b.Changes[0].PartitionKey == feed.Key("stuck") {
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return nil
		}}
		source, want := feed.Source(w.orders), 100
		if !canReadKeys {
			source, want = struct{ feed.Source }{w.orders}, 0
		}
		p := w.runWith(source, w.leases, "a", h, changefeed.Options{
			Start: feed.FromBeginning(), Concurrency: 4, MaxItems: 20, BufferItems: 100, HandlerTimeout: time.Hour,
			Drain: time.Second,
		})
		time.Sleep(10 * time.Minute)
		if items, _ := h.items(); items != want || most.Load() > 20 || most.Load() < 10 {
			t.Errorf("%d items were handled, in batches of up to %d, want %d in batches of up to 20", items,
				most.Load(), want)
		}
		reports := 0
		for _, err := range p.errs.all() {
			if errors.Is(err, feed.ErrBufferFull) {
				reports++
			}
		}
		if !canReadKeys && reports < 20 || canReadKeys && reports > 0 { // for as long as it lasts
			t.Errorf("that the buffer is full was reported %d times in ten minutes", reports)
		}
		p.stop(t)
	})
}

// Whatever fails, and however often the owner changes, each change is handled or parked, in the
// order of its key.
func TestNothingIsLostInParallel(t *testing.T) {
	for seed := range uint64(detector.Rounds(12, 3)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inWorld(t, 2, func(t *testing.T, w *world) {
				rng := rand.New(rand.NewPCG(seed, 1))
				var mu sync.Mutex
				chance := func(n int) bool {
					mu.Lock()
					defer mu.Unlock()
					return rng.IntN(n) == 0
				}
				box := &letterBox{}
				h := &tally{}
				h.before = func(ctx context.Context, b *feed.Batch) error {
					for _, c := range b.Changes {
						if c.ID == "bad" {
							return errHandler
						}
					}
					if chance(3) {
						select {
						case <-ctx.Done():
							return context.Cause(ctx)
						case <-time.After(time.Duration(len(b.Changes)) * 20 * time.Millisecond):
						}
					}
					switch {
					case b.Attempt > 3: // it passes
					case chance(30):
						return errHandler
					case chance(60):
						panic("handler")
					}
					return nil
				}
				o := changefeed.Options{
					Start: feed.FromBeginning(), Concurrency: 1 + int(seed%3)*4, MaxItems: 10,
					OnFailure: changefeed.FailurePolicy{MaxAttempts: 6, DeadLetters: box}, Drain: time.Second,
				}
				wanted := map[string]bool{}
				for life := range detector.Rounds(8, 5) {
					p := w.run(fmt.Sprint("life-", life), h, o)
					for i := range 200 {
						id := fmt.Sprint("item-", life*200+i)
						if chance(100) {
							id = "bad"
						}
						city := fmt.Sprintf("city-%d", i%17)
						w.put(city, id, i)
						wanted[string(feed.Key(city))+id] = true
						if chance(20) {
							time.Sleep(50 * time.Millisecond)
						}
					}
					if life == 3 {
						w.split(0)
					}
					time.Sleep(time.Minute)
					if chance(2) {
						p.kill(t)
						time.Sleep(2 * time.Minute)
					} else {
						p.stop(t)
					}
				}
				p := w.run("last", h, o)
				time.Sleep(20 * time.Minute)
				p.stop(t)
				if w.pending() != 0 {
					t.Errorf("%d pending", w.pending())
				}
				done := map[string]bool{}
				for _, c := range h.changes {
					done[string(c.PartitionKey)+c.ID] = true
				}
				for _, l := range box.all() {
					done[string(l.Change.PartitionKey)+l.Change.ID] = true
				}
				for name := range wanted {
					if !done[name] {
						t.Errorf("%s is neither done nor parked", name)
					}
				}
				for _, l := range box.all() {
					if l.Change.ID != "bad" {
						t.Errorf("%s is parked: %s", l.Change.ID, l.Cause)
					}
				}
			})
		})
	}
}

// By hand and in parallel: the lease says what was checkpointed and no more, also after a crash, and through a split.
func TestManualCheckpointsInParallel(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.many(300, 30)
		unmarked := feed.Key("city-7")
		h := &tally{}
		handler := feed.HandlerFunc(func(ctx context.Context, b *feed.Batch) error {
			if err := h.Handle(ctx, b); err != nil {
				return err
			}
			if b.Changes[0].PartitionKey == unmarked {
				return nil // handled, and not checkpointed
			}
			return b.Checkpoint(ctx)
		})
		o := changefeed.Options{Start: feed.FromBeginning(), Manual: true, Concurrency: 8, MaxItems: 50}
		p := w.run("a", handler, o)
		time.Sleep(time.Minute)
		if items, again := h.items(); items != 300 || again != 0 || w.pending() == 0 {
			t.Errorf("%d items, %d again, %d pending", items, again, w.pending())
		}
		w.split(0)
		time.Sleep(time.Minute)
		p.kill(t)
		unmarked = ""
		p = w.run("b", handler, o)
		time.Sleep(5 * time.Minute)
		p.stop(t)
		if items, again := h.items(); items != 300 || again < 10 || again > 20 || w.pending() != 0 {
			t.Errorf("%d items, %d again, %d pending; want those of one key again", items, again, w.pending())
		}
		for name, lsns := range h.seen {
			if len(lsns) > 1 && name[:11] != `["city-7"]i` {
				t.Errorf("%s came %d times", name, len(lsns))
			}
		}
	})
}

// Batches have the shape that was asked for: at most so many changes and bytes, and not fewer
// than there are if one waits.
func TestBatchesHaveTheirShape(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.many(100, 5)
		size := func(c feed.Change) int { return len(c.Body) + 256 }
		var sizes []int
		most := 0
		h := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
			sum := 0
			for _, c := range b.Changes {
				sum += size(c)
			}
			sizes, most = append(sizes, len(b.Changes)), max(most, sum)
			return nil
		})
		p := w.run("a", h, changefeed.Options{Start: feed.FromBeginning(), MaxBytes: 5000})
		time.Sleep(time.Minute)
		p.stop(t)
		if most > 5000 || most < 4000 || len(sizes) > 20 || w.pending() != 0 {
			t.Errorf("batches of %v changes, up to %d bytes, %d pending", sizes, most, w.pending())
		}
		sizes = nil
		p = w.run("b", h, changefeed.Options{MaxItems: 10, MaxWait: 30 * time.Second})
		time.Sleep(time.Minute)
		for i := range 25 {
			w.put("oslo", fmt.Sprint(i), i)
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		p.stop(t)
		if fmt.Sprint(sizes) != "[10 10 5]" || w.pending() != 0 {
			t.Errorf("batches of %v changes, %d pending", sizes, w.pending())
		}
	})
}

// What the filter refuses is not handed over, and the position moves past it.
func TestFilteredChangesArePassed(t *testing.T) {
	for _, concurrency := range []int{1, 4} {
		inWorld(t, 1, func(t *testing.T, w *world) {
			w.many(90, 9)
			h := &tally{}
			p := w.run("a", h, changefeed.Options{
				Start: feed.FromBeginning(), Concurrency: concurrency,
				Filter: func(c *feed.Change) bool { return c.PartitionKey == feed.Key("city-3") },
			})
			time.Sleep(time.Minute)
			w.put("city-4", "last", 1)
			if time.Sleep(2 * time.Second); w.pending() != 0 { // the renewal is up to 17 s away
				t.Errorf("concurrency %d: a change that nobody wants is pending after it was read", concurrency)
			}
			p.stop(t)
			if items, again := h.items(); items != 10 || again != 0 || w.pending() != 0 {
				t.Errorf("%d items, %d again, %d pending", items, again, w.pending())
			}
		})
	}
}

// An instance takes no more leases than it may, also from one that leaves, and leases without
// an owner are reported.
func TestAnInstanceTakesNoMoreLeasesThanItMay(t *testing.T) {
	inWorld(t, 10, func(t *testing.T, w *world) {
		small := w.run("small", &tally{}, changefeed.Options{MaxLeases: 3})
		large := w.run("large", &tally{}, changefeed.Options{})
		time.Sleep(2 * time.Minute)
		if got := fmt.Sprint(w.owners()); got != "map[large:7 small:3]" {
			t.Errorf("owners %s", got)
		}
		large.stop(t)
		time.Sleep(5 * time.Minute)
		if got := fmt.Sprint(w.owners()); got != "map[:7 small:3]" {
			t.Errorf("owners %s", got)
		}
		if err := small.errs.find(feed.ErrNoOwner); err == nil {
			t.Error("nobody has said that leases have no owner")
		}
		small.stop(t)
	})
}
