package changefeed_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// A unit that begins from now, as nearly all do. What was written since then, even while
// its leases were being made, and was not handled when a lease is lost, is handled; what
// was written before is not.
func TestAHoleIsRepairedFromWhereTheUnitBegan(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		w.fill(20)
		first, second := w.partitions()[0], w.partitions()[1]
		early := w.cityIn(first)
		time.Sleep(time.Minute + 700*time.Millisecond)
		var ready atomic.Bool // downstream is
		y := &tally{before: func(context.Context, *feed.Batch) error {
			if !ready.Load() {
				return errDownstream
			}
			return nil
		}}
		store := &hookedStore{Leases: w.leases, create: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLease && l.Range == second.Range && !w.isCreated() {
				time.Sleep(200 * time.Millisecond)
				w.put(early, "early", 1)
				time.Sleep(300 * time.Millisecond)
			}
			return w.leases.Create(ctx, l)
		}}
		p := w.runWith(w.orders, store, "a", y, changefeed.Options{})
		w.until(time.Minute, "created", w.isCreated)
		for n := range 20 {
			w.put(fmt.Sprintf("city-%d", n), "new", n)
		}
		time.Sleep(10 * time.Second)
		w.deleteLeases()
		time.Sleep(2 * time.Minute)
		w.tiles()
		if p.errs.find(feed.ErrHole) == nil {
			t.Error("the hole was not reported")
		}
		ready.Store(true)
		time.Sleep(5 * time.Minute)
		if items, again := y.items(); items != 21 || again != 0 {
			t.Errorf("%d items, %d again, want the 21 since the unit began", items, again)
		}
		p.stop(t)
	})
}

func (w *world) isCreated() bool { return len(w.records(feed.KindInfo)) > 0 }

func TestAHoleIsRepairedUnderTheLock(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		var under []string // what the locks are while leases are made
		var mu sync.Mutex
		store := &hookedStore{Leases: w.leases, create: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLease {
				mu.Lock()
				defer mu.Unlock()
				held := 0
				for _, lock := range w.records(feed.KindLock) {
					if lock.State == feed.StateLive {
						held++
					}
				}
				under = append(under, fmt.Sprint(held))
			}
			return w.leases.Create(ctx, l)
		}}
		p := w.runWith(w.orders, store, "a", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		w.deleteLeases()
		time.Sleep(50 * time.Second) // an owner who does not know may still make leases of the parts
		if n := len(w.records(feed.KindLease)); n != 0 {
			t.Errorf("%d leases are made while an owner of the old ones may be at work", n)
		}
		time.Sleep(2 * time.Minute)
		w.tiles()
		p.stop(t)
		if got := strings.Join(under, " "); got != "1 1 1 1" {
			t.Errorf("locks held at each creation: %q, want one at each of four", got)
		}
	})
}

// Each lease that is lost is made again when its own owner must have stopped.
func TestAGapIsNotRepairedWithAnOlderOne(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		p := w.run("a", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		w.delete(w.records(feed.KindLease)[0])
		time.Sleep(40 * time.Second)
		w.delete(w.records(feed.KindLease)[0])
		both := func() bool { return len(w.records(feed.KindLease)) == 2 }
		w.until(time.Minute, "repaired", func() bool { return len(w.records(feed.KindLease)) == 1 })
		if took := w.until(2*time.Minute, "repaired", both); took < 20*time.Second {
			t.Errorf("the second lease was made %v after the first, and lost 40s later", took)
		}
		w.tiles()
		p.stop(t)
	})
}

// An instance that sees a gap in two listings may have missed that the lease was made, taken and deleted again between
// them. The next owner begins when that owner must have stopped, too.
func TestAnOwnerBetweenTwoListingsIsWaitedFor(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var isCut atomic.Bool
		store := &hookedStore{Leases: w.leases}
		store.list = func(ctx context.Context) ([]feed.Record, time.Time, error) {
			if isCut.Load() {
				return nil, time.Time{}, errCutOff
			}
			return w.leases.List(ctx)
		}
		store.follow = func(ctx context.Context, _ string) ([]feed.Record, string, time.Time, error) {
			<-ctx.Done()
			return nil, "", time.Time{}, context.Cause(ctx)
		}
		var begun atomic.Int64 // when the instance that was cut off has its first batch
		late := &tally{before: func(context.Context, *feed.Batch) error {
			begun.CompareAndSwap(0, time.Now().UnixNano())
			return nil
		}}
		p := w.run("a", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		q := w.runWith(w.orders, store, "b", late, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		w.deleteLeases()
		time.Sleep(20 * time.Second) // until both have seen the gap
		isCut.Store(true)
		w.until(5*time.Minute, "taken again", func() bool {
			all := w.records(feed.KindLease)
			return len(all) == 1 && all[0].Owner == "a" && all[0].Fence.IsZero()
		})
		w.put("oslo", "one", 1)
		time.Sleep(30 * time.Second)
		p.wire.Cut() // the owner does not notice, and trusts its lease
		w.deleteLeases()
		deleted := time.Now()
		isCut.Store(false)
		w.until(5*time.Minute, "begun", func() bool { return begun.Load() > 0 })
		if since := time.Unix(0, begun.Load()).Sub(deleted); since < time.Minute {
			t.Errorf("an instance has begun %v after the lease of another owner was deleted", since)
		}
		p.cancel()
		<-p.done
		q.stop(t)
	})
}

func TestNoMarkerIsWrittenBeforeEachRangeHasALease(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, w *world) {
		var refused atomic.Bool
		refused.Store(true)
		last := w.partitions()[2].Range
		store := &hookedStore{Leases: w.leases, create: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLease && l.Range == last && refused.Load() {
				return l, errCutOff
			}
			return w.leases.Create(ctx, l)
		}}
		p := w.runWith(w.orders, store, "a", &tally{}, changefeed.Options{})
		for range 60 {
			time.Sleep(time.Second)
			if w.isCreated() {
				t.Fatal("there is a marker, and a range without a lease")
			}
		}
		if p.errs.find(errCutOff) == nil {
			t.Error("nothing was reported")
		}
		refused.Store(false)
		time.Sleep(2 * time.Minute)
		w.tiles()
		if !w.isCreated() {
			t.Error("no marker though all leases are there")
		}
		p.stop(t)
	})
}

// Each answer about the lock comes late, and then none comes: who holds it creates nothing
// that could arrive when the lock has expired for others.
func TestALockIsTrustedFromBeforeItsWrite(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var renewed, created time.Time
		store := &hookedStore{Leases: w.leases}
		store.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind != feed.KindLock {
				return w.leases.Update(ctx, l)
			}
			mu.Lock()
			first := renewed.IsZero()
			if first {
				renewed = time.Now()
			}
			mu.Unlock()
			if !first {
				<-ctx.Done()
				return l, context.Cause(ctx)
			}
			defer time.Sleep(6 * time.Second)
			return w.leases.Update(ctx, l)
		}
		store.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLease {
				mu.Lock()
				created = time.Now()
				mu.Unlock()
				time.Sleep(time.Second)
			}
			return w.leases.Create(ctx, l)
		}
		p := w.runWith(w.orders, store, "a", &tally{}, changefeed.Options{MinLeases: 1000})
		time.Sleep(25 * time.Second)
		mu.Lock()
		if most := 10 * time.Second; created.Sub(renewed) > most || created.Sub(renewed) < most/2 {
			t.Errorf("the last lease was created %v after the lock was written, want at most %v", created.Sub(renewed),
				most)
		}
		mu.Unlock()
		p.stop(t)
	})
}

// A creation fails: one of its requests may be on its way for a while.
func TestTheLockIsLeftToExpireAfterAFailure(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var written, taken time.Time
		a, b := &hookedStore{Leases: w.leases}, &hookedStore{Leases: w.leases}
		a.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			switch l.Kind {
			case feed.KindLease:
				return l, errCutOff
			case feed.KindLock:
				written = time.Now()
			}
			return w.leases.Create(ctx, l)
		}
		a.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			written = time.Now() // there is nothing else than the lock
			return w.leases.Update(ctx, l)
		}
		b.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLease && taken.IsZero() {
				taken = time.Now()
			}
			return w.leases.Create(ctx, l)
		}
		failed := w.runWith(w.orders, a, "a", &tally{}, changefeed.Options{})
		time.Sleep(time.Second)
		p := w.runWith(w.orders, b, "b", &tally{}, changefeed.Options{})
		w.until(time.Minute, "failed", func() bool { return len(failed.errs.all()) > 0 })
		failed.stop(t)
		time.Sleep(2 * time.Minute)
		p.stop(t)
		if wait := taken.Sub(written); written.IsZero() || wait < 30*time.Second || wait > time.Minute {
			t.Errorf("the next instance created leases %v after the lock was written, want as soon as the 30 s of a "+
				"lock are over", wait)
		}
		w.tiles()
	})
}

// A create fails, and its second try makes the lease. The first may still arrive if it was not answered, and not if
// somebody else was faster.
func TestTheLockIsLeftToExpireAfterACreateWithoutAnAnswer(t *testing.T) {
	for _, c := range []struct {
		name    string
		retired bool // a lease without an owner is in the way, and cannot be deleted
		err     error
		locks   int
	}{
		{"not answered", false, errCutOff, 1},
		{"somebody else's was there and is not", false, feed.ErrConflict, 0},
		{"somebody else has deleted it", true, feed.ErrNotFound, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				if c.retired {
					whole := feed.FullRange()
					if _, err := w.leases.Create(t.Context(), feed.Record{
						Kind: feed.KindLease, Version: 1, Token: whole.String(), Range: whole, State: feed.StateRetired,
						Properties: map[string]string{"changefeed.generation": "#0"},
					}); err != nil {
						t.Fatal(err)
					}
				}
				first := once()
				failing := func(write func(context.Context, feed.Record) (feed.Record, error)) func(context.Context,
					feed.Record) (feed.Record, error) {
					return func(ctx context.Context, l feed.Record) (feed.Record, error) {
						if l.Kind == feed.KindLease && first(l) {
							return l, c.err
						}
						return write(ctx, l)
					}
				}
				store := &hookedStore{Leases: w.leases}
				if c.retired {
					store.update = failing(w.leases.Update)
				} else {
					store.create = failing(w.leases.Create)
				}
				p := w.runWith(w.orders, store, "a", &tally{}, changefeed.Options{})
				time.Sleep(10 * time.Second)
				markers, locks := len(w.records(feed.KindInfo)), len(w.records(feed.KindLock))
				if markers != 1 || locks != c.locks {
					t.Errorf("%d markers and %d locks, want the unit made and %d locks left", markers, locks, c.locks)
				}
				p.stop(t)
			})
		})
	}
}

// textual gives tokens that are no numbers.
func (w *world) textual() *hookedSource {
	return &hookedSource{
		Container: w.orders,
		read: func(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Page, error) {
			from.Token = strings.TrimPrefix(from.Token, "after ")
			page, err := w.orders.Read(ctx, r, from, o)
			page.Next.Token = "after " + page.Next.Token
			return page, err
		},
		wait: func(ctx context.Context, r feed.Range, from feed.Position) error {
			from.Token = strings.TrimPrefix(from.Token, "after ")
			return w.orders.Wait(ctx, r, from)
		},
	}
}

// A reader from a time goes on filtering by it, so a lease keeps it; and what is there
// when the lease is made is not skipped, also where a token tells nothing but itself.
func TestALeaseIsMadeWithItsStartBesideTheToken(t *testing.T) {
	for _, textual := range []bool{false, true} {
		t.Run(fmt.Sprint(textual), func(t *testing.T) {
			inWorld(t, 2, func(t *testing.T, w *world) {
				w.fill(20)
				time.Sleep(time.Minute)
				from := time.Now()
				time.Sleep(time.Minute)
				w.fill(10)
				var source feed.Source = w.orders
				if textual {
					source = w.textual()
				}
				y := &tally{}
				store := w.recorder()
				p := w.runWith(source, store, "a", y, changefeed.Options{Start: feed.FromTime(from)})
				w.until(time.Minute, "created", w.isCreated)
				for _, l := range store.created {
					if !l.Position.Start.Time().Equal(from) || l.Position.Token == "" && !textual {
						t.Errorf("lease %s was made at %+v, want a token and the start", l.Token, l.Position)
					}
				}
				time.Sleep(time.Minute)
				if items, again := y.items(); items != 10 || again != 0 {
					t.Errorf("%d items, %d again, want the 10 since the start", items, again)
				}
				p.stop(t)
			})
		})
	}
}
