package changefeed_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/proof/detector"
)

// balanced waits until the unit's leases are shared evenly among n owners and tells how
// long that took; it gives up after a while.
func (w *world) balanced(n int) time.Duration {
	w.t.Helper()
	start := time.Now()
	for time.Since(start) < 10*time.Minute {
		owners := w.owners()
		free := owners[""]
		low, high := 1<<30, 0
		for _, held := range owners {
			low, high = min(low, held), max(high, held)
		}
		if free == 0 && len(owners) == n && high-low <= 1 {
			return time.Since(start)
		}
		if time.Since(start) < 5*time.Second {
			time.Sleep(100 * time.Millisecond)
		} else {
			time.Sleep(time.Second) // looking at all leases is what takes time here
		}
	}
	w.t.Fatalf("not balanced among %d after %v: %v", n, time.Since(start), w.owners())
	return 0
}

// 7: 100 leases, 1 to 2 instances, and 1000 leases, 4 to 6: within 2 rounds, and no
// batch comes twice.
func TestAcceptance7PlannedMovesAreQuickAndRepeatNothing(t *testing.T) {
	for _, c := range []struct{ leases, before, after int }{{100, 1, 2}, {1000, 4, 6}}[:detector.Rounds(2, 1)] {
		t.Run(fmt.Sprintf("%d leases %d to %d", c.leases, c.before, c.after), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				y := &tally{before: func(ctx context.Context, _ *feed.Batch) error {
					time.Sleep(20 * time.Millisecond)
					return nil
				}}
				o := changefeed.Options{MinLeases: c.leases, Start: feed.FromBeginning()}
				var fleet []*process
				for n := range c.before {
					fleet = append(fleet, w.run(fmt.Sprint("host-", n), y, o))
				}
				w.balanced(c.before)
				ctx, stopWriting := context.WithCancel(t.Context())
				var writing sync.WaitGroup
				written := 0
				writing.Go(func() {
					for ctx.Err() == nil {
						w.put(fmt.Sprint("city-", written), "item", 1)
						written++
						time.Sleep(10 * time.Millisecond)
					}
				})
				for n := c.before; n < c.after; n++ {
					fleet = append(fleet, w.run(fmt.Sprint("host-", n), y, o))
				}
				if took := w.balanced(c.after); took > 2*13*time.Second {
					t.Errorf("balanced after %v, want at most two rounds of 13 s", took)
				} else {
					t.Logf("balanced after %v", took)
				}
				stopWriting()
				writing.Wait()
				time.Sleep(10 * time.Second)
				if items, again := y.items(); items != written || again != 0 {
					t.Errorf("got %d items of %d, %d again", items, written, again)
				}
				for _, p := range fleet {
					p.stop(t)
				}
			})
		})
	}
}

// Without a feed of the lease container the newcomer is seen by listing.
func TestPlannedMovesTakeTwoRoundsWithoutFollowing(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var stops []func()
		start := func(name string) {
			p, err := changefeed.New(w.orders, struct{ feed.LeaseStore }{w.leases}, &tally{},
				changefeed.Options{Instance: name, MinLeases: 100})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- p.Run(ctx) }()
			stops = append(stops, func() { cancel(); <-done })
		}
		start("a")
		w.balanced(1)
		time.Sleep(3 * time.Second)
		start("b")
		if took := w.balanced(2); took > 30*time.Second {
			t.Errorf("balanced after %v, want at most 30 s", took)
		}
		for _, stop := range stops {
			stop()
		}
	})
}

// 8: crash with 300 leases: all owned again soon after they expire, however many survive,
// whenever in its round a survivor is, and without a feed of the leases too.
func TestAcceptance8LeasesOfACrashedHostAreOwnedAsSoonAsTheyExpire(t *testing.T) {
	for _, c := range []struct {
		leases, hosts int
		followed      bool
		late          time.Duration
	}{{50, 2, true, 5 * time.Second}, {50, 2, false, 0}, {100, 2, true, 0}, {300, 4, true, 0}}[:detector.Rounds(4, 2)] {
		t.Run(fmt.Sprintf("%d leases, %d survive, followed %v, %v", c.leases, c.hosts-1, c.followed, c.late),
			func(t *testing.T) {
				inWorld(t, 1, func(t *testing.T, w *world) { w.crash(c.leases, c.hosts, c.followed, c.late) })
			})
	}
}

func (w *world) crash(leases, hosts int, followed bool, late time.Duration) {
	w.t.Helper()
	store := feed.LeaseStore(w.leases)
	if !followed {
		store = struct{ feed.LeaseStore }{w.leases}
	}
	o := changefeed.Options{MinLeases: leases}
	dead := w.run("dead", &tally{}, o)
	var survivors []*process
	for n := 1; n < hosts; n++ {
		survivors = append(survivors, w.runWith(w.orders, store, fmt.Sprint("host-", n), &tally{}, o))
	}
	w.balanced(hosts)
	time.Sleep(time.Minute + late)
	dead.kill(w.t)
	var lastWrite time.Time
	for _, l := range w.records(feed.KindLease) {
		if l.Owner == "dead" && l.Updated.After(lastWrite) {
			lastWrite = l.Updated
		}
	}
	w.balanced(hosts - 1)
	const expiry, soon = time.Minute, 3 * time.Second
	if took := time.Since(lastWrite); took > expiry+soon {
		w.t.Errorf("all owned %v after the last renewal, want %v after the expiry of %v", took, soon, expiry)
	} else {
		w.t.Logf("all owned %v after the last renewal", took)
	}
	for _, p := range survivors {
		p.stop(w.t)
	}
}

// budget is a lease store that takes so many writes a second, saves up those of one
// second, and refuses the others.
type budget struct {
	*hookedStore
	mu   sync.Mutex
	each time.Duration // 0 is no limit
	full time.Time     // when the budget will be whole again
}

func newBudget(l *docstore.Leases, writes int) *budget {
	b := &budget{hookedStore: &hookedStore{Leases: l}, each: time.Second / time.Duration(writes)}
	b.create = func(ctx context.Context, r feed.Record) (feed.Record, error) {
		if err := b.admit(); err != nil {
			return feed.Record{}, err
		}
		return l.Create(ctx, r)
	}
	b.update = func(ctx context.Context, r feed.Record) (feed.Record, error) {
		if err := b.admit(); err != nil {
			return feed.Record{}, err
		}
		return l.Update(ctx, r)
	}
	return b
}

func (b *budget) admit() error {
	time.Sleep(5 * time.Millisecond)
	b.mu.Lock()
	defer b.mu.Unlock()
	spent := max(0, time.Until(b.full))
	if wait := spent - time.Second; wait > 0 {
		return &feed.ThrottledError{After: wait}
	}
	b.full = time.Now().Add(spent + b.each)
	return nil
}

func (b *budget) admitAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.each, b.full = 0, time.Time{}
}

func TestLeasesAreCreatedAtThePaceThatTheStoreAllows(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		const leases, writes = 400, 40
		store := newBudget(w.leases, writes)
		var ready sync.WaitGroup
		o := changefeed.Options{MinLeases: leases}
		o.Hooks.Ready = func(context.Context) { ready.Done() }
		begun := time.Now()
		ready.Add(2)
		a, b := w.runWith(w.orders, store, "a", &tally{}, o), w.runWith(w.orders, store, "b", &tally{}, o)
		w.until(5*time.Minute, "created", func() bool { return len(w.records(feed.KindInfo)) > 0 })
		floor := leases * time.Second / writes
		if took := time.Since(begun); took > floor*13/10 {
			t.Errorf("created after %v, want at most 1.3 times the %v that the store needs", took, floor)
		} else {
			t.Logf("created after %v, the store needs %v", took, floor)
		}
		for _, err := range append(a.errs.all(), b.errs.all()...) {
			t.Errorf("reported: %v", err)
		}
		ready.Wait()
		store.admitAll() // so many leases are more than such a store can renew
		a.stop(t)
		b.stop(t)
	})
}

// Whoever cannot renew the lock does not know how long it is his.
func TestAHolderThatCannotRenewTheLockStopsCreating(t *testing.T) {
	for _, loss := range []error{feed.ErrNotFound, errCutOff} {
		t.Run(loss.Error(), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				store := &hookedStore{Leases: w.leases}
				var locked, last time.Time
				var mu sync.Mutex
				store.update = func(context.Context, feed.Record) (feed.Record, error) { return feed.Record{}, loss }
				store.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
					mu.Lock()
					defer mu.Unlock()
					switch {
					case l.Kind == feed.KindLock && locked.IsZero():
						locked = time.Now()
					case l.Kind == feed.KindLease:
						last = time.Now()
						return l, errCutOff
					}
					return w.leases.Create(ctx, l)
				}
				o := changefeed.Options{MinLeases: 500, RetryMin: time.Second}
				p := w.runWith(w.orders, store, "a", &tally{}, o)
				time.Sleep(25 * time.Second)
				mu.Lock()
				took := last.Sub(locked)
				mu.Unlock()
				if last.IsZero() || took > 10*time.Second {
					t.Errorf("creates were sent until %v after the lock was written, want at most 10 s", took)
				}
				p.stop(t)
				if len(p.errs.all()) == 0 {
					t.Error("nothing was reported")
				}
			})
		})
	}
}

// counted counts the requests to a lease store.
type counted struct {
	*docstore.Leases
	requests *atomic.Int64
}

func (s counted) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	s.requests.Add(1)
	return s.Leases.List(ctx)
}

func (s counted) Create(ctx context.Context, l feed.Record) (feed.Record, error) {
	s.requests.Add(1)
	return s.Leases.Create(ctx, l)
}

func (s counted) Update(ctx context.Context, l feed.Record) (feed.Record, error) {
	s.requests.Add(1)
	return s.Leases.Update(ctx, l)
}

func (s counted) Follow(ctx context.Context, cursor string) ([]feed.Record, string, time.Time, error) {
	s.requests.Add(1)
	return s.Leases.Follow(ctx, cursor)
}

// 12: idle hour with 100 leases: count lease-store operations.
func TestAcceptance12AnIdleLeaseCostsLittle(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var requests atomic.Int64
		var stops []func()
		for n := range 3 {
			p, err := changefeed.New(w.orders, counted{w.leases, &requests}, &tally{},
				changefeed.Options{Instance: fmt.Sprint("host-", n), MinLeases: 100})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- p.Run(ctx) }()
			stops = append(stops, func() { cancel(); <-done })
		}
		w.balanced(3)
		time.Sleep(time.Minute)
		requests.Store(0)
		idle := time.Duration(detector.Rounds(10, 2)) * time.Minute
		time.Sleep(idle)
		perLeaseMinute := float64(requests.Load()) / 100 / idle.Minutes()
		t.Logf("%.2f requests per idle lease-minute", perLeaseMinute)
		if perLeaseMinute > 4 {
			t.Errorf("%.2f requests per idle lease-minute, want at most 4", perLeaseMinute)
		}
		for _, stop := range stops {
			stop()
		}
	})
}

func TestAStoppedInstanceFreesItsLeasesAtOnce(t *testing.T) {
	inWorld(t, 6, func(t *testing.T, w *world) {
		a := w.run("a", &tally{}, changefeed.Options{})
		b := w.run("b", &tally{}, changefeed.Options{})
		w.balanced(2)
		start := time.Now()
		a.stop(t)
		w.balanced(1)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("the other instance had all leases after %v", took)
		}
		b.stop(t)
		if n := w.owners()[""]; n != 6 {
			t.Errorf("%d leases are free after both stopped, want 6", n)
		}
		time.Sleep(3 * time.Minute)
		if hosts := w.records(feed.KindHost); len(hosts) != 0 {
			t.Errorf("presence records left: %v", hosts)
		}
	})
}

// An instance that joins after splits is given a lease as after any other time: the instances agree on how many there
// are, though nobody is told of the leases that were split.
func TestAnInstanceThatJoinsAfterSplitsIsGivenItsLeases(t *testing.T) {
	for seed := range uint64(detector.Rounds(60, 5)) {
		inWorld(t, 1+int(seed%3), func(t *testing.T, w *world) {
			rng := rand.New(rand.NewPCG(seed, 1))
			var stolen atomic.Int64
			o := changefeed.Options{
				Start: feed.FromBeginning(),
				Hooks: changefeed.Hooks{Round: func(_ context.Context, r feed.Round) { stolen.Add(int64(r.Stolen)) }},
			}
			var all []*process
			for i := range 1 + rng.IntN(3) {
				all = append(all, w.run(fmt.Sprint("i", i), &tally{}, o))
				time.Sleep(time.Minute)
			}
			for range 1 + rng.IntN(3) {
				w.split(rng.IntN(len(w.partitions())))
				time.Sleep(time.Duration(rng.IntN(2)*rng.IntN(1000)) * time.Millisecond)
			}
			time.Sleep(time.Duration(rng.IntN(3)) * time.Second)
			last := w.run("last", &tally{}, o)
			all = append(all, last)
			leases := len(w.partitions())
			time.Sleep(20 * time.Second)
			if n := len(last.processor.Status()[0].Leases); n < leases/len(all) {
				t.Errorf("seed %d: the last of %d instances has %d of %d leases after 20 s", seed, len(all), n, leases)
			}
			time.Sleep(2 * time.Minute)
			if n := stolen.Load(); n != 0 {
				t.Errorf("seed %d: %d leases were stolen from owners that live", seed, n)
			}
			for _, p := range all {
				p.stop(t)
			}
		})
	}
}
