package changefeed_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// behind is a source whose lease of a range sees no changes until its worker is called to a meeting. The worker is then
// behind its neighbour.
type behind struct {
	*docstore.Container
	of  feed.Range
	met atomic.Bool
}

func (s *behind) Read(ctx context.Context, r feed.Range, at feed.Position, o feed.ReadOptions) (feed.Page, error) {
	if r == s.of && !s.met.Load() {
		return feed.Page{Next: at}, nil
	}
	return s.Container.Read(ctx, r, at, o)
}

func (s *behind) Wait(ctx context.Context, r feed.Range, at feed.Position) error {
	if r != s.of || s.met.Load() {
		return s.Container.Wait(ctx, r, at)
	}
	<-ctx.Done()
	if errors.Is(ctx.Err(), context.Canceled) {
		s.met.Store(true)
	}
	return ctx.Err()
}

// behind makes two leases, with a key in each, and a source in which one of them is behind.
func (w *world) behind(n int) (s *behind, slow, quick string) {
	w.finer(2)
	s = &behind{Container: w.orders, of: w.rangeOf(n)}
	return s, w.townIn(w.ranges()[n]), w.townIn(w.ranges()[1-n])
}

// rangeOf is the range of a lease, by the order of the ranges.
func (w *world) rangeOf(n int) feed.Range {
	r, err := feed.ParseRange(w.ranges()[n])
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// If the worker that is behind cannot handle what it reads in a meeting, both go on as if nothing had happened: the
// neighbour neither gives its lease up nor marks it.
func TestAMeetingWithoutSuccessLeavesNoTrace(t *testing.T) {
	for n := range 2 {
		inWorld(t, 1, func(t *testing.T, w *world) {
			source, slow, quick := w.behind(n)
			store, y, mended := &hookedStore{Leases: w.leases}, &tally{}, make(chan struct{})
			isMended := func() bool {
				select {
				case <-mended:
					return true
				default:
					return false
				}
			}
			store.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
				if l.State == feed.StateSplitting && !isMended() {
					t.Errorf("lease %s is marked", l.Token)
				}
				return w.leases.Update(ctx, l)
			}
			y.before = func(_ context.Context, b *feed.Batch) error {
				if b.Changes[0].PartitionKey == feed.Key(slow) {
					<-mended
				}
				return nil
			}
			p := w.runWith(source, store, "a", y, changefeed.Options{
				HandlerTimeout: time.Hour,
				Hooks: changefeed.Hooks{Released: func(_ context.Context, l feed.Lease, why feed.Reason) {
					if !isMended() {
						t.Errorf("lease %s was given up: %s", l.Token, why)
					}
				}},
			})
			time.Sleep(time.Minute)
			w.put(slow, "slow", 1)
			w.put(quick, "quick", 1)
			w.until(2*joinRest, "called", source.met.Load)
			time.Sleep(time.Minute)
			w.put(quick, "quick", 2)
			time.Sleep(time.Minute)
			own, other := y.times(string(feed.Key(slow))+"slow"), y.times(string(feed.Key(quick))+"quick")
			if own != 0 || other != 2 {
				t.Errorf("lease %d is behind, and has handled %d changes, its neighbour %d; want 0 and 2", n, own, other)
			}
			close(mended)
			w.until(4*joinRest, "joined", w.isJoined)
			w.once(y)
			p.stop(t)
		})
	}
}

// What a worker reads in a meeting is filtered as all else.
func TestAMeetingDeliversNothingThatTheFilterOmits(t *testing.T) {
	for n := range 2 {
		inWorld(t, 1, func(t *testing.T, w *world) {
			source, slow, quick := w.behind(n)
			y := &tally{}
			p := w.runWith(source, w.leases, "a", y, changefeed.Options{
				Filter: func(c *feed.Change) bool { return c.ID != "omitted" },
			})
			time.Sleep(time.Minute)
			for _, id := range []string{"omitted", "wanted"} {
				w.put(slow, id, 1)
				w.put(quick, id, 1)
			}
			w.until(3*joinRest, "joined", w.isJoined)
			for _, town := range []string{slow, quick} {
				key := string(feed.Key(town))
				if omitted, wanted := y.times(key+"omitted"), y.times(key+"wanted"); omitted != 0 || wanted != 1 {
					t.Errorf("lease %d is behind: of %s an omitted change came %d times, another one %d times", n, town,
						omitted, wanted)
				}
			}
			p.stop(t)
		})
	}
}

// The marks and the create count by the store's clock, however wrong that of the instance is.
func TestLeasesAreJoinedByTheClockOfTheStore(t *testing.T) {
	for _, ahead := range []time.Duration{-2 * time.Minute, 2 * time.Minute} {
		inWorld(t, 1, func(t *testing.T, w *world) {
			w.finer(2)
			store, y := &markedStore{skewed: skewed{w.leases, ahead}, t: t}, &tally{}
			p := w.runWith(w.orders, store, "a", y, changefeed.Options{})
			stop := w.writeEvery(700 * time.Millisecond)
			w.until(2*joinRest, "joined", w.isJoined)
			stop()
			time.Sleep(time.Minute)
			if store.marks.Load() != 2 {
				t.Errorf("the store is %v ahead: %d leases were marked, want 2", ahead, store.marks.Load())
			}
			w.once(y)
			p.stop(t)
		})
	}
}

// markedStore is a lease store with a clock of its own that checks the marks of leases that are joined.
type markedStore struct {
	skewed
	t     *testing.T
	marks atomic.Int64
}

func (s *markedStore) Update(ctx context.Context, l feed.Record) (feed.Record, error) {
	if mark, ok := notes.ReadJoining(l.Properties[notes.JoiningProperty]); ok && l.State == feed.StateSplitting {
		s.marks.Add(1)
		if left := mark.Until.Sub(time.Now().Add(s.by)); left < 59*time.Second || left > time.Minute {
			s.t.Errorf("the mark ends in %v by the clock of the store, want in a minute", left)
		}
	}
	return s.skewed.Update(ctx, l)
}

// An instance that stops while it joins gives up both leases, if it is sure that the lease of both was not made.
func TestAStopBeforeTheLeaseOfBothLeavesNoOwner(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.finer(2)
		marked, noAnswer := make(chan struct{}, 10), errors.New("no answer")
		store := &hookedStore{Leases: w.leases}
		store.list = func(ctx context.Context) ([]feed.Record, time.Time, error) {
			if all := w.records(feed.KindLease); len(all) == 2 && len(w.atWork()) == 0 {
				marked <- struct{}{}
				time.Sleep(15 * time.Second) // the instance stops meanwhile, and has no time for another write later
				return nil, time.Time{}, noAnswer
			}
			return w.leases.List(ctx)
		}
		a := w.runWith(w.orders, store, "a", &tally{}, changefeed.Options{})
		<-marked
		a.stop(t)
		if n := len(w.atWork()); n != 2 {
			t.Errorf("%d leases are at work, want both", n)
		}
		for _, l := range w.records(feed.KindLease) {
			if !l.Free() {
				t.Errorf("lease %s is owned by %s", l.Token, l.Owner)
			}
		}
	})
}

// A lease of both that the store has accepted too late is not worked on, and both leases go on.
func TestALateLeaseOfBothIsNotWorkedOn(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.finer(2)
		var creates atomic.Int64
		store, y := &hookedStore{Leases: w.leases}, &tally{}
		store.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLease && creates.Add(1) == 1 {
				time.Sleep(63 * time.Second) // the marks end after 60 s
				return w.leases.Create(context.WithoutCancel(ctx), l)
			}
			return w.leases.Create(ctx, l)
		}
		var early atomic.Bool
		p := w.runWith(w.orders, store, "a", y, changefeed.Options{
			Hooks: changefeed.Hooks{Acquired: func(_ context.Context, l feed.Lease) {
				early.Store(early.Load() || l.Range == feed.FullRange() && creates.Load() == 1)
			}},
		})
		stop := w.writeEvery(700 * time.Millisecond)
		w.until(2*joinRest, "a create", func() bool { return creates.Load() > 0 })
		time.Sleep(2 * time.Minute)
		live := 0
		for _, l := range w.atWork() {
			if l.Range != feed.FullRange() && l.Owner == "a" {
				live++
			}
		}
		if early.Load() || live != 2 {
			t.Errorf("the late lease has a worker: %v, and %d leases are at work, want both", early.Load(), live)
		}
		stop()
		time.Sleep(time.Minute)
		w.once(y)
		p.stop(t)
	})
}

// An instance that must end while the create of the lease of both has no answer frees no lease: its next owner waits
// until it is sure whether the create arrives.
func TestAStopWithoutAnAnswerFreesNoLease(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.finer(2)
		sent, arrived, y := make(chan struct{}, 10), make(chan struct{}), &tally{}
		store := &hookedStore{Leases: w.leases}
		store.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind != feed.KindLease {
				return w.leases.Create(ctx, l)
			}
			sent <- struct{}{}
			time.Sleep(55 * time.Second) // the store does not hear of the end of the caller
			defer close(arrived)
			return w.leases.Create(context.WithoutCancel(ctx), l)
		}
		a := w.runWith(w.orders, store, "a", y, changefeed.Options{})
		stop := w.writeEvery(700 * time.Millisecond)
		<-sent
		a.cancel()
		time.Sleep(50 * time.Second)
		for _, l := range w.records(feed.KindLease) {
			if l.Free() || l.State != feed.StateSplitting {
				t.Errorf("lease %s has the owner %q and is %s", l.Token, l.Owner, l.State)
			}
		}
		b := w.run("b", y, changefeed.Options{})
		<-arrived
		if err := <-a.done; err != nil {
			t.Error(err)
		}
		time.Sleep(4 * time.Minute)
		stop()
		time.Sleep(time.Minute)
		w.once(y)
		w.tiles()
		b.stop(t)
	})
}

// A lease that is paused while it is about to be joined pauses no keys of its neighbour: there is a pause of the lease
// alone, or none.
func TestAPauseInTheMiddleOfAJoinPausesNoOtherKeys(t *testing.T) {
	for name, late := range map[string]bool{"before the lease of both is planned": false, "after that": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				w.finer(2)
				marked, asked := make(chan struct{}, 10), make(chan struct{}, 10)
				store := &hookedStore{Leases: w.leases}
				store.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
					got, err := w.leases.Update(ctx, l)
					if l.Kind == feed.KindLease && l.State == feed.StateSplitting && !late {
						marked <- struct{}{}
						time.Sleep(3 * time.Second)
					}
					return got, err
				}
				store.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
					if l.Kind == feed.KindLease && late {
						asked <- struct{}{}
						time.Sleep(3 * time.Second)
					}
					return w.leases.Create(ctx, l)
				}
				y := &tally{}
				ranges := w.records(feed.KindLease)
				other := w.townIn(ranges[1].Range.String())
				p := w.runWith(w.orders, store, "a", y, changefeed.Options{})
				select {
				case <-marked:
				case <-asked:
				}
				u := w.admin(admin.Options{})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := u.Pause(ctx, admin.Of(ranges[0].Range))
				if late != errors.Is(err, feed.ErrConflict) || !late && err != nil {
					t.Errorf("the pause ends with %v", err)
				}
				w.put(other, "item", 1)
				time.Sleep(5 * time.Minute)
				if items, _ := y.items(); items != 1 {
					t.Errorf("a change of %s, outside of the paused range %s, waits", other, ranges[0].Range)
				}
				p.stop(t)
			})
		})
	}
}
