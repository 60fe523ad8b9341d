package changefeed_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// An overlap that nobody repairs is told once, not at each listing.
func TestAnOverlapIsToldOnce(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		listing := struct{ feed.LeaseStore }{w.leases}
		p := w.runWith(w.orders, listing, "a", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		half := feed.FullRange().Cut(2)[0]
		if _, err := w.leases.Create(t.Context(), feed.Record{
			Kind: feed.KindLease, Version: 1, Token: half.String(),
			Range: half, Position: feed.At(`"1"`),
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		told := slices.DeleteFunc(p.errs.all(), func(err *feed.Error) bool { return !errors.Is(err, feed.ErrOverlap) })
		if len(told) != 1 {
			t.Errorf("told %d times in ten minutes", len(told))
		}
		p.stop(t)
	})
}

// Two instances may take over a unit of .NET's at once, with different starts: one start
// counts, and the other instance is told.
func TestOfTwoStartsForAForeignUnitOneIsRefused(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		if _, err := w.leases.Create(t.Context(), feed.Record{
			Kind: feed.KindLease, Version: 1, Token: "-FF",
			Range: feed.FullRange(), Position: feed.At(`"0"`),
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.leases.Create(t.Context(), feed.Record{Kind: feed.KindInfo}); err != nil {
			t.Fatal(err)
		}
		store := &hookedStore{Leases: w.leases}
		store.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindInfo {
				other := l
				other.Properties = map[string]string{"start": "now", "origin": "at 2026-01-01T00:00:00Z"}
				if _, err := w.leases.Update(ctx, other); err != nil && !errors.Is(err, feed.ErrConflict) {
					return l, err
				}
			}
			return w.leases.Update(ctx, l)
		}
		p := w.runWith(w.orders, store, "a", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		p.cancel()
		if err := <-p.done; !errors.Is(err, feed.ErrStartIgnored) {
			t.Errorf("got %v, want ErrStartIgnored", err)
		}
	})
}

// An instance is there from one of its beats to the next: nobody takes it for gone, and no
// lease moves.
func TestAnInstanceIsPresentBetweenItsBeats(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		var settled atomic.Bool
		var alone, moved atomic.Int64
		o := changefeed.Options{Hooks: changefeed.Hooks{
			Round: func(_ context.Context, r feed.Round) {
				if settled.Load() && r.Instances != 2 {
					alone.Add(1)
				}
			},
			Acquired: func(context.Context, feed.Lease) {
				if settled.Load() {
					moved.Add(1)
				}
			},
		}}
		listing := struct{ feed.LeaseStore }{w.leases}
		a := w.runWith(w.orders, listing, "a", &tally{}, o)
		time.Sleep(5 * time.Second)
		b := w.runWith(w.orders, listing, "b", &tally{}, o)
		w.balanced(2)
		time.Sleep(time.Minute)
		settled.Store(true)
		time.Sleep(10 * time.Minute)
		settled.Store(false)
		if alone.Load() != 0 || moved.Load() != 0 {
			t.Errorf("%d rounds without the other instance, %d leases moved", alone.Load(), moved.Load())
		}
		a.stop(t)
		b.stop(t)
	})
}

// Of a lease without a token nothing is handled before it is stored where it begins.
func TestNothingIsHandledBeforeThePositionIsStored(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		if _, err := w.leases.Create(t.Context(), feed.Record{
			Kind: feed.KindLease, Version: 1, Token: "-FF", Range: feed.FullRange(),
			Position: feed.Position{Start: feed.FromBeginning()},
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.leases.Create(t.Context(), feed.Record{Kind: feed.KindInfo}); err != nil {
			t.Fatal(err)
		}
		w.fill(3)
		var full atomic.Bool
		full.Store(true)
		store := &hookedStore{Leases: w.leases}
		store.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if full.Load() && l.Kind == feed.KindLease && l.Position.Token != "" {
				return l, errRefused
			}
			return w.leases.Update(ctx, l)
		}
		y := &tally{}
		p := w.runWith(w.orders, store, "a", y, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(30 * time.Second)
		if items, _ := y.items(); items != 0 || w.owners()["a"] != 1 {
			t.Errorf("%d items were handled while no position could be stored; owners %v", items, w.owners())
		}
		full.Store(false)
		w.until(time.Minute, "handled", func() bool { items, _ := y.items(); return items == 3 })
		p.stop(t)
	})
}

// The lag of a lease is known, too, when its partition is split while the lag is measured.
func TestALagIsKnownThoughAPartitionIsSplitMeanwhile(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		p := w.run("a", &tally{}, changefeed.Options{MinLeases: 2, Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		p.stop(t)
		w.fill(40)
		var split atomic.Bool
		source := &hookedSource{Container: w.orders, read: func(ctx context.Context, r feed.Range, from feed.Position,
			o feed.ReadOptions,
		) (feed.Page, error) {
			if r.Min != "" && split.CompareAndSwap(false, true) {
				w.splitAt(0, feed.FullRange().Cut(4)[3].Min)
			}
			return w.orders.Read(ctx, r, from, o)
		}}
		lags, err := changefeed.Estimate(t.Context(), struct{ feed.Source }{source}, w.leases)
		if err != nil || len(lags) != 2 || !split.Load() {
			t.Fatalf("%v, %v, split %v", lags, err, split.Load())
		}
		var total int64
		for _, l := range lags {
			if total += l.Pending; l.Err != nil {
				t.Errorf("lease %s: %v", l.Lease.Token, l.Err)
			}
		}
		if total < 40 {
			t.Errorf("%d pending of 40", total)
		}
	})
}

// The lock of another instance is left alone for as long as a request of that instance may be on its way. If
// that instance writes the lock no more, the wait is told.
func TestALockIsLeftAloneWhileItsHolderMayBeAtWork(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		if _, err := w.leases.Create(t.Context(), feed.Record{Kind: feed.KindLock, Timestamp: time.Now()}); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		var ready atomic.Int64
		p := w.run("a", &tally{}, changefeed.Options{Hooks: changefeed.Hooks{Ready: func(context.Context) {
			ready.Store(int64(time.Since(begun)))
		}}})
		time.Sleep(2 * time.Minute)
		told := p.errs.all()
		if len(told) == 0 || !strings.Contains(told[0].Error(), "an instance has ended while it made the leases") ||
			len(p.processor.Status()[0].Errors) > 0 {
			t.Errorf("told %v, want the wait; left of it: %v", told, p.processor.Status()[0].Errors)
		}
		if took := time.Duration(ready.Load()); took < 30*time.Second || took > 70*time.Second {
			t.Errorf("ready after %v, want the lock to be left for 30 s", took)
		}
		p.stop(t)
	})
}

// A lock that is free has no holder: who does not get it, because another instance is faster, tells of no end.
func TestALockThatIsFreeIsNotAbandoned(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		free := feed.Record{Kind: feed.KindLock, State: feed.StateRetired, Timestamp: time.Now()}
		if _, err := w.leases.Create(t.Context(), free); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		var taken atomic.Bool
		store := &hookedStore{Leases: w.leases, update: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLock && taken.CompareAndSwap(false, true) {
				return l, feed.ErrConflict // another instance has taken the lock
			}
			return w.leases.Update(ctx, l)
		}}
		p := w.runWith(w.orders, store, "a", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		if told := p.errs.all(); len(told) > 0 || !taken.Load() {
			t.Errorf("told %v, taken by another instance: %v", told, taken.Load())
		}
		w.tiles()
		p.stop(t)
	})
}

// Whoever gets the lock looks at what its last holder has made: it may be all, and cut in
// another way.
func TestWhoGetsTheLockLooksAtWhatIsThere(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		y := &tally{}
		store := &hookedStore{Leases: w.leases}
		var overtaken atomic.Bool
		var anew atomic.Int64
		store.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLease && l.Properties["changefeed.generation"] == "#0" {
				anew.Add(1) // and not by the split
			}
			if l.Kind == feed.KindLock && overtaken.CompareAndSwap(false, true) {
				first := w.run("first", y, changefeed.Options{Start: feed.FromBeginning()})
				w.fill(20)
				time.Sleep(5 * time.Second)
				first.stop(t)
				w.split(0)
			}
			return w.leases.Create(ctx, l)
		}
		second := w.runWith(w.orders, store, "second", y, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(5 * time.Minute)
		if items, again := y.items(); items != 20 || again != 0 || anew.Load() != 0 {
			t.Errorf("%d items, %d again; %d leases were made beside those that were there", items, again, anew.Load())
		}
		w.tiles()
		second.stop(t)
	})
}

// Before a unit has its marker, leases that overlap are removed if nobody has worked on them.
func TestALeaseThatWasWorkedOnIsNotUntangled(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(20)
		half := feed.FullRange().Cut(2)[0]
		ours := map[string]string{"changefeed.generation": "#0"}
		for _, l := range []feed.Record{
			{Kind: feed.KindLease, Range: half, Position: feed.Position{Start: feed.FromBeginning()}},
			{Kind: feed.KindLease, Range: feed.FullRange(), Position: feed.At(`"20"`), Expiration: time.Minute},
		} {
			l.Version, l.Token, l.Properties = 1, l.Range.String(), ours
			if _, err := w.leases.Create(t.Context(), l); err != nil {
				t.Fatal(err)
			}
		}
		y := &tally{}
		p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(2 * time.Minute)
		leases := w.records(feed.KindLease)
		if items, _ := y.items(); items != 0 || len(leases) != 1 || leases[0].Token != "-FF" {
			t.Errorf("%d items come again; leases %v", items, leases)
		}
		p.stop(t)
	})
}

// A lease that could not be taken is tried again, by this instance too.
func TestATakeThatFailedIsTriedAgain(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		var failed atomic.Int64
		store := &hookedStore{Leases: w.leases, update: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLease && failed.Add(1) <= 4 {
				return l, errRefused
			}
			return w.leases.Update(ctx, l)
		}}
		p := w.runWith(w.orders, store, "a", &tally{}, changefeed.Options{})
		w.until(2*time.Minute, "owner of all", func() bool { return w.owners()["a"] == 4 })
		p.stop(t)
	})
}

// A lease that is given to an instance as it stops is freed at once.
func TestAGiftToALeaverIsDeclined(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		half := feed.FullRange().Cut(2)[0]
		store := &hookedStore{Leases: w.leases}
		store.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindHost && l.State == feed.StateRetired {
				if _, err := w.leases.Create(ctx, feed.Record{
					Kind: feed.KindLease, Version: 1, Token: half.String(), Range: half, Position: feed.At(`"1"`),
					Owner: l.Owner, Epoch: l.Epoch, Expiration: time.Minute,
				}); err != nil {
					t.Error(err)
				}
			}
			return w.leases.Update(ctx, l)
		}
		p := w.runWith(w.orders, store, "a", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		p.stop(t)
		if owners := w.owners(); owners[""] != 2 {
			t.Errorf("owners %v, want two free leases", owners)
		}
	})
}

// While the feed of the leases fails, each round lists them.
func TestAFollowerThatBreaksIsNotReliedUpon(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		var down atomic.Bool
		store := &hookedStore{Leases: w.leases, follow: func(ctx context.Context, cursor string) ([]feed.Record, string,
			time.Time, error,
		) {
			if down.Load() {
				return nil, "", time.Time{}, errCutOff
			}
			return w.leases.Follow(ctx, cursor)
		}}
		a := w.run("a", &tally{}, changefeed.Options{})
		b := w.runWith(w.orders, store, "b", &tally{}, changefeed.Options{})
		w.balanced(2)
		time.Sleep(time.Minute)
		down.Store(true)
		time.Sleep(20 * time.Second) // no more, or else what it knew of the leases has expired
		a.stop(t)
		if took := w.until(5*time.Minute, "owner of all", func() bool {
			return w.owners()["b"] == 4
		}); took > 30*time.Second {
			t.Errorf("the leases that a freed were taken after %v", took)
		}
		b.stop(t)
	})
}

// An instance whose presence is removed shows it again.
func TestARemovedPresenceComesBack(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		a := w.run("a", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		for _, h := range w.records(feed.KindHost) {
			if err := w.leases.Delete(t.Context(), h); err != nil {
				t.Fatal(err)
			}
		}
		w.until(30*time.Second, "present", func() bool { return len(w.records(feed.KindHost)) == 1 })
		a.stop(t)
	})
}

// Making the leases may take longer than one write of the lock lasts.
func TestACreationThatTakesLongIsOneAttempt(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		store := &hookedStore{Leases: w.leases, create: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLease {
				time.Sleep(5 * time.Second)
			}
			if ctx.Err() != nil {
				return l, context.Cause(ctx)
			}
			return w.leases.Create(ctx, l)
		}}
		var ready atomic.Bool
		p := w.runWith(w.orders, store, "a", &tally{}, changefeed.Options{
			MinLeases: 100, Hooks: changefeed.Hooks{Ready: func(context.Context) { ready.Store(true) }},
		})
		time.Sleep(25 * time.Second)
		if !ready.Load() || len(p.errs.all()) != 0 {
			t.Errorf("ready %v, %d leases of 100; reported %v", ready.Load(), len(w.records(feed.KindLease)),
				first(p.errs.all()))
		}
		p.stop(t)
	})
}
