package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/proof/detector"
)

// tardy is a lease store that carries out some creates long after their callers have
// given up.
type tardy struct {
	*hookedStore
	t       *testing.T
	by      time.Duration
	mu      sync.Mutex
	late    func(feed.Record) bool // asked once for each create of a lease
	waiting sync.WaitGroup
	arrived []string // tokens of late creates that made a lease
}

func (w *world) tardy(by time.Duration) *tardy {
	s := &tardy{hookedStore: &hookedStore{Leases: w.leases}, t: w.t, by: by}
	s.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
		s.mu.Lock()
		isLate := l.Kind == feed.KindLease && s.late != nil && s.late(l)
		s.mu.Unlock()
		if !isLate {
			return w.leases.Create(ctx, l)
		}
		s.waiting.Go(func() {
			time.Sleep(s.by)
			_, err := w.leases.Create(w.t.Context(), l)
			s.mu.Lock()
			defer s.mu.Unlock()
			if err == nil {
				s.arrived = append(s.arrived, l.Token)
			}
		})
		<-ctx.Done()
		return l, context.Cause(ctx)
	}
	return s
}

// delay makes creates late, by what which says; nil is none.
func (s *tardy) delay(which func(feed.Record) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late = which
}

// once is true for the first lease.
func once() func(feed.Record) bool {
	asked := false
	return func(feed.Record) bool {
		defer func() { asked = true }()
		return !asked
	}
}

// twice lists what was delivered more than once.
func (y *tally) twice() (found []string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for name, lsns := range y.seen {
		if n := len(slices.Compact(slices.Sorted(slices.Values(lsns)))); n < len(lsns) {
			found = append(found, fmt.Sprintf("%s: %v", name, lsns))
		}
	}
	return found
}

// trickle writes one version of 20 items, a second apart.
func (w *world) trickle() {
	for n := range 20 {
		w.put(fmt.Sprintf("city-%d", n), "item", n)
		time.Sleep(time.Second)
	}
}

// A child's create is on its way when its caller gives up, the partitions merge back, and
// then the create arrives.
func TestACreateThatArrivesAfterAMergeMakesNoSecondLease(t *testing.T) {
	for _, by := range []time.Duration{
		64 * time.Second, 70 * time.Second, 10 * time.Second, 5 * time.Minute,
	}[:detector.Rounds(4, 2)] {
		for _, resplit := range []bool{false, true} { // after the merge the partition is split elsewhere
			t.Run(fmt.Sprint(by, resplit), func(t *testing.T) {
				inWorld(t, 1, func(t *testing.T, w *world) {
					y := &tally{}
					store := w.tardy(by)
					p := w.runWith(w.orders, store, "a", y, changefeed.Options{Start: feed.FromBeginning()})
					w.trickle()
					store.delay(once())
					w.split(0)
					time.Sleep(20 * time.Second)
					w.merge(0)
					if resplit {
						w.splitAt(0, "0AAA")
					}
					for begun := time.Now(); time.Since(begun) < by+2*time.Minute; {
						w.trickle()
					}
					w.tiles()
					if twice := y.twice(); len(twice) != 0 || len(y.seen) != 20 || w.pending() != 0 {
						t.Errorf("%d items, %d pending, delivered twice: %v", len(y.seen), w.pending(), twice)
					}
					y.ordered(t)
					if p.errs.find(feed.ErrOverlap) != nil {
						t.Errorf("reported %v", p.errs.all())
					}
					p.stop(t)
					store.waiting.Wait()
				})
			})
		}
	}
}

func (w *world) splitAt(n int, epk string) {
	w.t.Helper()
	if _, err := w.orders.SplitAt(w.t.Context(), w.partitions()[n].ID, epk); err != nil {
		w.t.Fatal(err)
	}
}

// A create arrives when the lease that its second try made has been split and removed, and
// its caller lives, or has died, or lacks the right to delete.
func TestACreateThatArrivesAfterItsLeaseHasGoneIsRemoved(t *testing.T) {
	for _, c := range []struct {
		name               string
		dies, unprivileged bool
	}{
		{"its caller lives", false, false},
		{"its caller has died", true, false},
		{"without the right to delete", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				y := &tally{}
				store := w.tardy(6 * time.Minute)
				if c.unprivileged {
					store.delete = func(context.Context, feed.Record) error { return feed.ErrForbidden }
				}
				p := w.runWith(w.orders, store, "a", y, changefeed.Options{Start: feed.FromBeginning()})
				w.trickle()
				store.delay(once())
				w.split(0)
				time.Sleep(3 * time.Minute)
				w.split(0)
				w.split(2)
				w.trickle()
				if c.dies {
					p.stop(t)
					p = w.runWith(w.orders, w.leases, "b", y, changefeed.Options{})
				}
				for range 18 {
					w.trickle()
				}
				if c.unprivileged != (len(store.arrived) == 0) {
					t.Fatalf("%v arrived: the test shows nothing", store.arrived)
				}
				w.tiles()
				if twice := y.twice(); len(twice) != 0 || len(y.seen) != 20 || w.pending() != 0 {
					t.Errorf("%d items, %d pending, delivered twice: %v", len(y.seen), w.pending(), twice)
				}
				y.ordered(t)
				if errs := p.errs.find(feed.ErrOverlap); errs != nil {
					t.Errorf("reported %v", p.errs.all())
				}
				p.stop(t)
				store.waiting.Wait()
			})
		})
	}
}

// A lease that overlaps others is removed only if it is ours, and they are, and they have
// come as far. Everything else is reported.
func TestOnlyAProvablyRedundantLeaseIsRemoved(t *testing.T) {
	half := feed.FullRange().Cut(2)[0]
	ours := map[string]string{"changefeed.generation": "#1"}
	for _, c := range []struct {
		name    string
		extra   feed.Record
		removed bool
	}{
		{
			"ours, before the others",
			feed.Record{Kind: feed.KindLease, Position: feed.At(`"1"`), Properties: ours},
			true,
		},
		{"ours, before the others, freed by who had it", feed.Record{
			Kind: feed.KindLease, Position: feed.At(`"1"`),
			Expiration: time.Minute, Properties: ours,
		}, true},
		{"ours, never read", feed.Record{
			Kind: feed.KindLease, Position: feed.Position{Start: feed.FromBeginning()},
			Properties: ours,
		}, true},
		{"ours, held by another kind of processor", feed.Record{
			Kind: feed.KindLease, Owner: "net",
			Position: feed.At(`"1"`), Properties: ours,
		}, false},
		{"another kind's", feed.Record{Kind: feed.KindLease, Position: feed.At(`"1"`)}, false},
		{"at a position that cannot be compared", feed.Record{
			Kind: feed.KindLease, Owner: "b", Epoch: "e",
			Position: feed.At(`"x"`), Properties: ours,
		}, false},
		{"reading from a time", feed.Record{
			Kind:       feed.KindLease,
			Position:   feed.Position{Token: `"1"`, Start: feed.FromTime(time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC))},
			Properties: ours,
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				y := &tally{}
				p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
				w.fill(20)
				time.Sleep(time.Minute)
				l := c.extra
				l.Version, l.Token, l.Range = 1, half.String(), half
				if _, err := w.leases.Create(t.Context(), l); err != nil {
					t.Fatal(err)
				}
				for range 10 {
					w.trickle()
					if c.extra.Owner == "net" { // at work
						w.renew(half)
					}
				}
				leases := len(w.records(feed.KindLease))
				reported := p.errs.find(feed.ErrOverlap) != nil
				if c.removed != (leases == 1) || c.removed == reported {
					t.Errorf("%d leases, reported %v", leases, p.errs.all())
				}
				if twice := y.twice(); c.removed && len(twice) > 0 {
					t.Errorf("delivered by the lease that was removed, too: %v", twice)
				}
				p.stop(t)
			})
		})
	}
}

// What an operator has reset stays, and not a lease that a late create leaves beside it, wherever both are.
func TestALeaseThatWasResetStaysBesideALateOne(t *testing.T) {
	for _, to := range []feed.Start{feed.FromBeginning(), feed.FromTime(time.Date(2000, 1, 1, 0, 0, 10, 0, time.UTC))} {
		t.Run(to.String(), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				y := &tally{}
				p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
				w.trickle()
				if _, err := w.admin(admin.Options{}).Reset(t.Context(), admin.All(), to); err != nil {
					t.Fatal(err)
				}
				half := feed.FullRange().Cut(2)[0]
				if _, err := w.leases.Create(t.Context(), feed.Record{
					Kind: feed.KindLease, Version: 1, Token: half.String(), Range: half, Position: feed.At(`"15"`),
					Properties: map[string]string{notes.GenerationProperty: "#5"},
				}); err != nil {
					t.Fatal(err)
				}
				for range 10 {
					w.trickle()
				}
				w.tiles()
				all, overlaps := w.records(feed.KindLease), p.errs.find(feed.ErrOverlap) != nil
				if len(all) != 1 || all[0].Range != feed.FullRange() || overlaps || w.pending() != 0 {
					t.Errorf("%d leases, the first %s; %d pending, reported %v", len(all), all[0].Token, w.pending(),
						p.errs.all())
				}
				p.stop(t)
			})
		})
	}
}

// The create of a child is answered when the parent may belong to somebody else: the child counts as deleted, also for
// its maker, and is made again.
func TestAChildThatIsCreatedTooLateIsNotBegun(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		y, store, slow := &tally{}, &hookedStore{Leases: w.leases}, atomic.Bool{}
		var made atomic.Int64
		store.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind != feed.KindLease {
				return w.leases.Create(ctx, l)
			}
			if slow.CompareAndSwap(true, false) {
				time.Sleep(40 * time.Second)
			}
			l, err := w.leases.Create(ctx, l)
			if err == nil {
				made.Add(1)
			}
			return l, err
		}
		begun := make(chan string, 100)
		p := w.runWith(w.orders, store, "a", y, changefeed.Options{
			Start: feed.FromBeginning(), Expiration: 30 * time.Second, Renew: 5 * time.Second,
			Hooks: changefeed.Hooks{Acquired: func(_ context.Context, l feed.Lease) { begun <- l.Token }},
		})
		w.trickle()
		slow.Store(true)
		w.split(0)
		time.Sleep(time.Minute)
		w.trickle()
		time.Sleep(2 * time.Minute)
		w.tiles()
		if n, all := made.Load(), len(begun); n != 4 || all != 3 || w.pending() != 0 {
			t.Errorf("%d leases were made, %d begun, and %d changes are pending; want the parent and its children, one of "+
				"them made twice", n, all, w.pending())
		}
		y.ordered(t)
		p.stop(t)
	})
}

// renew writes the lease of a range as its owner would.
func (w *world) renew(of feed.Range) {
	w.t.Helper()
	for _, l := range w.records(feed.KindLease) {
		if l.Range == of {
			if _, err := w.leases.Update(w.t.Context(), l); err != nil && !errors.Is(err, feed.ErrConflict) {
				w.t.Error(err)
			}
		}
	}
}

// A lease that is left from a late create stands where a child is to be made, further back
// than the parent: it is no child, and what the parent has done does not come again.
func TestALeaseLeftFromALateCreateIsNotTakenForAChild(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		y := &tally{}
		p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
		w.trickle()
		time.Sleep(time.Minute)
		p.stop(t)
		w.split(0)
		half := w.partitions()[0].Range
		if _, err := w.leases.Create(t.Context(), feed.Record{
			Kind: feed.KindLease, Version: 1, Token: half.String(), Range: half, Position: feed.At(`"1"`),
			Properties: map[string]string{"changefeed.generation": "#1"},
		}); err != nil {
			t.Fatal(err)
		}
		p = w.run("b", y, changefeed.Options{})
		w.trickle()
		time.Sleep(2 * time.Minute)
		w.tiles()
		if twice := y.twice(); len(twice) != 0 || w.pending() != 0 || len(w.records(feed.KindLease)) != 2 {
			t.Errorf("%d leases, %d pending, delivered twice: %v", len(w.records(feed.KindLease)), w.pending(), twice)
		}
		p.stop(t)
	})
}

// A create of a bootstrap that was cut in another way arrives late. Its lease overlaps two
// that have been worked on and are no further, and it is no wider than both together.
func TestACreateOfAnotherBootstrapMakesNoLeaseAcrossOthers(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		y := &tally{}
		p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		p.stop(t)
		old := w.records(feed.KindLease)
		slices.SortFunc(old, func(a, b feed.Record) int { return strings.Compare(a.Range.Min, b.Range.Min) })
		across := feed.Range{Min: old[0].Range.Min, Max: "30"}
		if _, err := w.leases.Create(t.Context(), feed.Record{
			Kind: feed.KindLease, Version: 1, Token: across.String(), Range: across, Position: old[0].Position,
			Properties: map[string]string{"changefeed.generation": "#0"},
		}); err != nil {
			t.Fatal(err)
		}
		w.merge(0)
		p = w.run("b", y, changefeed.Options{})
		w.fill(20)
		time.Sleep(5 * time.Minute)
		w.tiles()
		if items, again := y.items(); again != 0 || items != 20 {
			t.Errorf("%d items were handled, %d more than once", items, again)
		}
		p.stop(t)
	})
}

// A lease that is further than the one around it is worked on. When that one has come as
// far, the narrow one goes.
func TestALeaseThatOthersOvertakeIsGivenUp(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		narrow := feed.Range{Max: "20"}
		y := &tally{before: func(_ context.Context, b *feed.Batch) error {
			if b.Range != narrow {
				time.Sleep(10 * time.Second) // the narrow lease is at work before the wide one has come as far
			}
			return nil
		}}
		p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		p.stop(t)
		w.fill(4)
		if _, err := w.leases.Create(t.Context(), feed.Record{
			Kind: feed.KindLease, Version: 1, Token: narrow.String(), Range: narrow, Position: feed.At(`"4"`),
			Expiration: time.Minute,
			Properties: map[string]string{"changefeed.generation": "#0"},
		}); err != nil {
			t.Fatal(err)
		}
		begun := make(chan feed.Lease, 10)
		p = w.run("b", y, changefeed.Options{Hooks: changefeed.Hooks{Acquired: func(_ context.Context, l feed.Lease) {
			begun <- l
		}}})
		time.Sleep(5 * time.Minute)
		w.tiles()
		if n := len(begun); n != 2 || len(w.records(feed.KindLease)) != 1 {
			t.Errorf("%d leases were begun, %d are left; want 2 and 1", n, len(w.records(feed.KindLease)))
		}
		p.stop(t)
	})
}

// A lease is deleted, and the create that is to repair the hole arrives when another instance
// has covered the range with leases that are cut in another way.
func TestALeaseThatIsMadeAfterItsMakersLockIsNobodys(t *testing.T) {
	for _, unprivileged := range []bool{false, true} {
		t.Run(fmt.Sprint("without the right to delete ", unprivileged), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				y := &tally{}
				store := w.tardy(70 * time.Second)
				taken := make(chan string, 10)
				p := w.runWith(w.orders, store, "a", y, changefeed.Options{
					Start: feed.FromBeginning(),
					Hooks: changefeed.Hooks{
						Acquired: func(_ context.Context, l feed.Lease) { taken <- l.Token },
					},
				})
				w.trickle()
				<-taken
				if err := w.leases.Delete(t.Context(), w.records(feed.KindLease)[0]); err != nil {
					t.Fatal(err)
				}
				if unprivileged {
					store.delete = func(context.Context, feed.Record) error { return feed.ErrForbidden }
				}
				var asked atomic.Bool
				store.delay(func(feed.Record) bool { asked.Store(true); return true })
				w.until(5*time.Minute, "repaired", asked.Load)
				if p.errs.find(feed.ErrHole) == nil {
					t.Error("no hole was reported")
				}
				time.Sleep(5 * time.Second)
				w.split(0)
				time.Sleep(15 * time.Second)
				store.delay(nil)
				time.Sleep(5 * time.Minute)
				store.waiting.Wait()
				store.mu.Lock()
				late := len(store.arrived)
				store.mu.Unlock()
				if late == 0 {
					t.Fatal("no create was late: the test shows nothing")
				}
				if len(taken) != 2 || <-taken == feed.FullRange().String() || <-taken == feed.FullRange().String() {
					t.Errorf("%d leases were taken besides those checked, want the two halves", len(taken))
				}
				if n := len(w.records(feed.KindLease)); n != 2 && !unprivileged {
					t.Errorf("%d leases are left, want 2", n)
				}
				w.tiles()
				w.trickle()
				time.Sleep(time.Minute)
				if w.pending() != 0 {
					t.Errorf("%d are pending", w.pending())
				}
				y.ordered(t)
				p.stop(t)
			})
		})
	}
}

// A lease of a late create, with the range of a part, is behind the lease that is split. It is no part: the part would
// begin again at its position.
func TestALateLeaseIsNoPartOfALeaseThatHasComeFurther(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		y := &tally{}
		o := changefeed.Options{Start: feed.FromBeginning()}
		w.fill(20)
		w.ran(y, o)
		w.split(0)
		part := w.partitions()[0].Range
		if _, err := w.leases.Create(t.Context(), feed.Record{
			Kind: feed.KindLease, Version: 1, Token: part.String(), Range: part, Position: feed.At(`"1"`),
			Owner: "c", Epoch: "gone", Expiration: 5 * time.Minute, Timestamp: time.Now(),
			Properties: map[string]string{notes.GenerationProperty: notes.PlainNumber(0)},
		}); err != nil {
			t.Fatal(err)
		}
		p := w.run("a", y, o)
		time.Sleep(2 * time.Minute) // at first it waits, because c may be at work
		p.stop(t)
		if n := len(w.records(feed.KindLease)); n != 3 {
			t.Errorf("%d leases while the late one is there, want it, the other part and the whole", n)
		}
		p = w.run("b", y, o)
		time.Sleep(8 * time.Minute) // virtual time: c has expired, and the late lease is gone
		p.stop(t)
		if items, again := y.items(); items != 20 || again != 0 {
			t.Errorf("%d items, %d again, want 20 and 0", items, again)
		}
		w.tiles()
	})
}

// A late create counts, because the clock of the store was set back, and its lease is further than the lease of another
// instance with the same keys. Nobody works on these keys for both at a time.
func TestALeaseBesideAnotherBeginsWhenTheOtherHasEndedOrPassedIt(t *testing.T) {
	for name, late := range map[string]struct {
		of feed.Range
		at int64
	}{
		"narrower":  {feed.Range{Max: "20"}, 8},
		"as wide":   {feed.Range{Max: "3F"}, 8},
		"across it": {feed.Range{Max: "FE"}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				var working atomic.Int64
				together := false
				y := &tally{before: func(context.Context, *feed.Batch) error {
					together = together || working.Add(1) > 1
					time.Sleep(4 * time.Second) // virtual time: the call takes this long
					working.Add(-1)
					return nil
				}}
				w.fill(12)
				o := changefeed.Options{Start: feed.FromBeginning(), MaxItems: 1, Concurrency: 1}
				a := w.run("a", y, o)
				time.Sleep(2 * time.Second) // virtual time: a is in its first call
				if _, err := w.leases.Create(t.Context(), feed.Record{
					Kind: feed.KindLease, Version: 1, Token: late.of.String(), Range: late.of,
					Position: feed.At(fmt.Sprintf("%q", fmt.Sprint(late.at))), Expiration: time.Minute,
					Properties: map[string]string{"changefeed.generation": "#1"},
				}); err != nil {
					t.Fatal(err)
				}
				begun := make(chan feed.Lease, 10)
				b := w.run("b", y, changefeed.Options{
					MaxItems: 1,
					Hooks:    changefeed.Hooks{Acquired: func(_ context.Context, l feed.Lease) { begun <- l }},
				})
				if l := <-begun; l.Range != late.of {
					t.Fatalf("b has begun %s first, want the late lease", l.Token)
				}
				time.Sleep(5 * time.Minute) // virtual time: both are done long before
				w.tiles()
				if items, again := y.items(); together || items != 12 || again != 0 {
					t.Errorf("%d items, %d again, two at a time %v; want 12, none", items, again, together)
				}
				a.stop(t)
				b.stop(t)
			})
		})
	}
}
