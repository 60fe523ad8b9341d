package changefeed_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/proof/detector"
)

// When an outage is over, it has cost time and nothing else.

// A probe is slow. Meanwhile another one succeeds, so the outage is over, and then the slow one fails.
func TestASlowProbeThatFailsAfterAnOutageCountsForNothing(t *testing.T) {
	for _, c := range []struct{ ranges, concurrency int }{{1, 8}, {2, 1}} {
		t.Run(fmt.Sprintf("%d ranges, concurrency %d", c.ranges, c.concurrency), func(t *testing.T) {
			inWorld(t, c.ranges, func(t *testing.T, w *world) {
				begun := time.Now()
				const late = 10 * time.Second // the slow call begins after so much of the outage
				var waits atomic.Bool         // the slow call has begun
				var over, failed atomic.Int64 // when the first call has succeeded, and when the slow one has failed
				var calls atomic.Int64        // with the slow change after that
				h := &tally{before: func(ctx context.Context, b *feed.Batch) error {
					slow := slices.ContainsFunc(b.Changes, func(c feed.Change) bool { return c.ID == "slow" })
					since := time.Since(begun)
					switch {
					case slow && failed.Load() == 0 && since >= late:
						waits.Store(true)
						for over.Load() == 0 && ctx.Err() == nil {
							waitFor(ctx, time.Second)
						}
						waitFor(ctx, time.Second)
						failed.CompareAndSwap(0, int64(time.Since(begun)))
						return errHandler
					case !waits.Load():
						if !slow {
							time.Sleep(100 * time.Millisecond)
						}
						return errHandler
					case slow && calls.Add(1) < 3: // of three attempts
						return errHandler
					}
					over.CompareAndSwap(0, int64(since))
					return nil
				}}
				w.put("oslo", "slow", 1) // the first to have used up its attempts
				w.fill(40)               // in both ranges
				box := &letterBox{}
				p := w.run("a", h, changefeed.Options{
					Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{MaxAttempts: 3, DeadLetters: box},
					Concurrency: c.concurrency, RetryMax: 2 * time.Second,
				})
				time.Sleep(5 * time.Minute)
				p.stop(t)
				if p.errs.find(feed.ErrOutage) == nil || over.Load() == 0 || over.Load() >= failed.Load() {
					t.Errorf("outage said: %v; over after %v, the slow probe has failed after %v: the test "+
						"shows nothing",
						p.errs.find(feed.ErrOutage), time.Duration(over.Load()), time.Duration(failed.Load()))
				}
				if calls.Load() != 3 || box.names() != "" || w.pending() != 0 {
					t.Errorf("after the outage: %d calls with the slow change, want 3; letters %q, %d pending",
						calls.Load(), box.names(), w.pending())
				}
			})
		})
	}
}

// The probe of one lease shows that an outage is over. The others need not wait for a probe of their own.
func TestAllLeasesGoOnWhenAnOutageIsOver(t *testing.T) {
	for range detector.Rounds(4, 1) { // the leases of one world may probe at the same moment by chance
		inWorld(t, 4, func(t *testing.T, w *world) {
			var away atomic.Bool
			var first, last atomic.Int64 // calls after the outage
			away.Store(true)
			begun := time.Now()
			h := &tally{before: func(ctx context.Context, _ *feed.Batch) error {
				if away.Load() {
					return errHandler
				}
				first.CompareAndSwap(0, int64(time.Since(begun)))
				waitFor(ctx, time.Millisecond) // the other leases ask for their turn while the probe is in the handler
				last.Store(int64(time.Since(begun)))
				return nil
			}}
			const items = 40 // in all ranges
			w.fill(items)
			p := w.run("a", h, changefeed.Options{
				Start:     feed.FromBeginning(),
				OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: &letterBox{}},
			})
			time.Sleep(5 * time.Minute) // probes are half a minute apart by now
			if p.errs.find(feed.ErrOutage) == nil {
				t.Error("no outage is recognized")
			}
			away.Store(false)
			time.Sleep(5 * time.Minute)
			p.stop(t)
			if n, _ := h.items(); n != items {
				t.Errorf("%d of %d items handled", n, items)
			}
			if took := time.Duration(last.Load() - first.Load()); took > time.Second {
				t.Errorf("the last lease has gone on %v after the first one", took)
			}
		})
	}
}

// A service that the handler needs is away for 20 s, while many keys of several leases are written. What was parked
// before that was known comes back by itself.
func TestAShortOutageLeavesNothingBehind(t *testing.T) {
	for _, c := range []struct{ instances, concurrency int }{{4, 1}, {4, 8}, {1, 1}}[:detector.Rounds(3, 2)] {
		for _, hold := range []bool{true, false}[:detector.Rounds(2, 1)] {
			t.Run(fmt.Sprintf("%d instances, concurrency %d, holding %v", c.instances, c.concurrency, hold),
				func(t *testing.T) {
					inWorld(t, 4, func(t *testing.T, w *world) {
						w.shortOutage(c.instances, changefeed.Options{
							Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
								MaxAttempts: 5,
								HoldKeys:    hold,
							}, Concurrency: c.concurrency,
						})
					})
				})
		}
	}
}

// shortOutage has an outage, and looks at what is left 30 s after it.
func (w *world) shortOutage(instances int, o changefeed.Options) {
	var away atomic.Bool
	h := &tally{before: func(context.Context, *feed.Batch) error {
		time.Sleep(time.Millisecond)
		if away.Load() {
			return errHandler
		}
		return nil
	}}
	box := &letterBox{}
	o.OnFailure.DeadLetters = box
	// A read takes a moment, so a lease has nothing but what fails while its next page is read.
	distant := &hookedSource{Container: w.orders, read: func(ctx context.Context, r feed.Range, from feed.Position,
		ro feed.ReadOptions,
	) (feed.Page, error) {
		waitFor(ctx, 5*time.Millisecond)
		return w.orders.Read(ctx, r, from, ro)
	}}
	var all []*process
	for i := range instances {
		all = append(all, w.runWith(distant, w.leases, fmt.Sprint("host-", i), h, o))
	}
	w.balanced(instances)
	n := w.write(0, 5*time.Second)
	away.Store(true)
	n = w.write(n, 20*time.Second)
	away.Store(false)
	n = w.write(n, 20*time.Second)
	time.Sleep(10 * time.Second)
	held := 0
	for _, p := range all {
		for _, l := range p.processor.Status()[0].Leases {
			held += l.Held
		}
	}
	if items, again := h.items(); items != n || again != 0 || box.names() != "" || held != 0 || w.pending() != 0 {
		w.t.Errorf("30 s after the outage: %d of %d changes handled, %d again, %d letters, %d keys held, %d pending",
			items, n, again, len(box.all()), held, w.pending())
	}
	h.perKey(w.t)
	for _, p := range all {
		p.stop(w.t)
	}
}

// write writes 50 new items a second of 100 keys, the first of them number n, and returns the number after the last.
func (w *world) write(n int, d time.Duration) int {
	w.t.Helper()
	for until := time.Now().Add(d); time.Now().Before(until); n++ {
		w.put(fmt.Sprint("city-", n%100), fmt.Sprint("item-", n), n)
		time.Sleep(20 * time.Millisecond)
	}
	return n
}

// A partition is split in an outage, after two changes were parked for it. When it is over, the owner of each key alone
// hands them over again.
func TestWhatReturnsAfterAnOutageGoesToTheChildThatHasItsKey(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var away atomic.Bool
		away.Store(true)
		var mu sync.Mutex
		again := map[string]int{}
		h := &tally{before: func(_ context.Context, b *feed.Batch) error {
			if away.Load() {
				return errHandler
			}
			if b.Redriven {
				mu.Lock()
				defer mu.Unlock()
				again[b.Changes[0].ID]++
				if place, err := w.orders.Locate(t.Context(), b.Changes[0].PartitionKey); err != nil ||
					!b.Range.Holds(place) {
					t.Errorf("%s goes to the lease %s, which does not have its key: %v", b.Changes[0].ID, b.LeaseToken,
						err)
				}
			}
			return nil
		}}
		box := &letterBox{}
		p := w.run("a", h, changefeed.Options{
			Start:     feed.FromBeginning(),
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, DeadLetters: box},
		})
		for i := range 4 {
			w.put(fmt.Sprint("city-", i), fmt.Sprint("item-", i), i)
			time.Sleep(time.Minute)
		}
		parked := len(box.all())
		partitions, err := w.orders.Partitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.orders.Split(t.Context(), partitions[0].ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		away.Store(false)
		time.Sleep(5 * time.Minute)
		p.stop(t)
		if parked == 0 || len(again) != parked {
			t.Errorf("%d changes were parked, and %d of them have returned: %v", parked, len(again), again)
		}
		for id, n := range again {
			if n != 1 {
				t.Errorf("%s was handed over again %d times", id, n)
			}
		}
		if items, _ := h.items(); items != 4 || box.names() != "" || w.pending() != 0 {
			t.Errorf("%d of 4 changes are handled, letters %q, %d pending", items, box.names(), w.pending())
		}
	})
}

// All that fails is of one lease, which another instance gets while the first one cannot reach the lease store. The
// outage is over for the first one: nothing that it has could show an end.
func TestAnOutageEndsForAnInstanceThatHasLostWhatFails(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		for i, n := 0, 0; n < 5; i++ {
			city := fmt.Sprint("city-", i)
			if epk, err := w.orders.Locate(t.Context(), feed.Key(city)); err == nil &&
				w.partitions()[0].Range.Holds(epk) {
				w.put(city, "item", n)
				n++
			}
		}
		var mended, away atomic.Bool
		h := &tally{before: func(context.Context, *feed.Batch) error {
			if mended.Load() {
				return nil
			}
			return errHandler
		}}
		store := &hookedStore{Leases: w.leases}
		store.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if away.Load() {
				return l, errCutOff
			}
			return w.leases.Update(ctx, l)
		}
		var mu sync.Mutex
		var said []feed.Outage
		o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
			MaxAttempts: 3,
			DeadLetters: &letterBox{},
		}}
		o.Hooks.Outage = func(_ context.Context, o feed.Outage) {
			mu.Lock()
			defer mu.Unlock()
			said = append(said, o)
		}
		a := w.runWith(w.orders, store, "a", h, o)
		time.Sleep(5 * time.Minute)
		if !a.processor.Status()[0].Outage {
			t.Fatal("no outage is recognized: the test shows nothing")
		}
		o.Hooks.Outage = nil
		away.Store(true)
		b := w.run("b", h, o)
		time.Sleep(3 * time.Minute)
		mended.Store(true)
		time.Sleep(time.Minute)
		away.Store(false)
		time.Sleep(time.Hour)
		if a.processor.Status()[0].Outage || w.pending() != 0 {
			t.Errorf("an outage goes on an hour after all was handled; %d pending", w.pending())
		}
		for _, l := range w.records(feed.KindLease) {
			if since := l.Properties["changefeed.outage"]; since != "" {
				t.Errorf("lease %s of %s says an outage: %s", l.Token, l.Owner, since)
			}
		}
		a.stop(t)
		b.stop(t)
		if len(said) != 2 || said[0].Ended.IsZero() == said[1].Ended.IsZero() {
			t.Errorf("the hook heard %+v, want a begin and an end", said)
		}
	})
}

// The lease of all that fails is split in an outage. Another instance takes the part that fails, and later all is
// handled. The outage ends for the first instance too, which has the part without changes.
func TestAnOutageEndsWhenThePartThatFailsIsGivenAway(t *testing.T) {
	for i := range detector.Rounds(8, 2) { // which part is given away is chance
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			inWorld(t, 2, func(t *testing.T, w *world) {
				first := w.partitions()[0].Range
				fails := first.Cut(2)[i%2]
				for i, n := 0, 0; n < 4; i++ {
					city := fmt.Sprint("city-", i)
					if epk, err := w.orders.Locate(t.Context(), feed.Key(city)); err == nil && fails.Holds(epk) {
						w.put(city, "item", n)
						n++
					}
				}
				var mended atomic.Bool
				h := &tally{before: func(context.Context, *feed.Batch) error {
					if mended.Load() {
						return nil
					}
					return errHandler
				}}
				box := &letterBox{}
				o := changefeed.Options{Start: feed.FromBeginning(), OnFailure: changefeed.FailurePolicy{
					MaxAttempts: 3, DeadLetters: box,
				}}
				a := w.run("a", h, o)
				time.Sleep(5 * time.Minute)
				if _, err := w.orders.SplitAt(t.Context(), w.partitions()[0].ID, first.Cut(2)[0].Max); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				if !a.processor.Status()[0].Outage {
					t.Error("the split has ended the outage")
				}
				b := w.run("b", h, o)
				time.Sleep(10 * time.Minute)
				mended.Store(true)
				time.Sleep(time.Hour)
				for _, p := range []*process{a, b} {
					if p.processor.Status()[0].Outage {
						t.Error("there is an outage, an hour after all was handled")
					}
				}
				if w.pending() != 0 || box.names() != "" {
					t.Errorf("%d changes are pending, letters %s", w.pending(), box.names())
				}
				a.stop(t)
				b.stop(t)
			})
		})
	}
}
