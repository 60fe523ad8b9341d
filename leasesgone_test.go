package changefeed_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// ends waits for the end of an instance that nobody stops, for at most so long.
func (p *process) ends(t *testing.T, within time.Duration) error {
	t.Helper()
	select {
	case err := <-p.done:
		return err
	case <-time.After(within):
		t.Errorf("still runs after %v", within)
		p.cancel()
		return <-p.done
	}
}

// isTold fails the test unless an instance has ended with the reason, and had reported it before.
func (p *process) isTold(t *testing.T, err error, want string) {
	t.Helper()
	if !errors.Is(err, feed.ErrLeasesGone) || !strings.Contains(err.Error(), want) {
		t.Errorf("Run returned %v, want an ErrLeasesGone with %q", err, want)
	}
	if p.errs.find(feed.ErrLeasesGone) == nil {
		t.Errorf("reported %v, want an ErrLeasesGone", p.errs.all())
	}
}

func TestEveryInstanceEndsWhenTheLeaseContainerIsDeleted(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		a := w.run("a", &tally{}, changefeed.Options{})
		b := w.run("b", &tally{}, changefeed.Options{})
		listing := w.runWith(w.orders, struct{ feed.LeaseStore }{w.leases}, "c", &tally{}, changefeed.Options{})
		w.balanced(3)
		time.Sleep(time.Minute) // until nobody expects leases
		if err := w.db.DeleteContainer(t.Context(), "leases"); err != nil {
			t.Fatal(err)
		}
		within := 2 * time.Second
		for _, p := range []*process{a, b, listing} {
			if p == listing {
				within = 20 * time.Second // it hears of nothing between its rounds
			}
			err := p.ends(t, within)
			p.isTold(t, err, "the lease container is missing")
			if !errors.Is(err, feed.ErrNotFound) {
				t.Errorf("%v does not say what the store has answered", err)
			}
			all := p.errs.all()
			if last := all[len(all)-1]; !errors.Is(last, feed.ErrLeasesGone) {
				t.Errorf("reported at last %v, as if somebody could still free leases", last)
			}
		}
	})
}

// switched is a lease store whose container can be replaced by another one of its name.
type switched struct {
	at atomic.Pointer[docstore.Leases]
}

func (s *switched) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	return s.at.Load().List(ctx)
}

func (s *switched) Create(ctx context.Context, l feed.Record) (feed.Record, error) {
	return s.at.Load().Create(ctx, l)
}

func (s *switched) Update(ctx context.Context, l feed.Record) (feed.Record, error) {
	return s.at.Load().Update(ctx, l)
}

func (s *switched) Delete(ctx context.Context, l feed.Record) error {
	return s.at.Load().Delete(ctx, l)
}

// Follow hears nothing of the new container, whose LSNs are lower than those of the old one.
func (s *switched) Follow(ctx context.Context, cursor string) ([]feed.Record, string, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return s.at.Load().Follow(ctx, cursor)
}

// other is a lease store of the unit in another container.
func (w *world) other(name string) *docstore.Leases {
	w.t.Helper()
	leases, err := docstore.NewLeases(w.t.Context(), w.create(docstore.LeaseSpec(name)), "unit", w.orders)
	if err != nil {
		w.t.Fatal(err)
	}
	return leases
}

// One of the two has the only lease. The other one hears of the new container by its own presence alone.
func TestEveryInstanceEndsWhenTheLeaseContainerIsMadeAnew(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		store := &switched{}
		store.at.Store(w.leases)
		y := &tally{}
		a := w.runWith(w.orders, store, "a", y, changefeed.Options{Start: feed.FromBeginning()})
		b := w.runWith(w.orders, store, "b", y, changefeed.Options{Start: feed.FromBeginning()})
		w.fill(8)
		time.Sleep(time.Minute)
		empty := w.other("anew")
		store.at.Store(empty)
		for _, p := range []*process{a, b} {
			p.isTold(t, p.ends(t, 30*time.Second), "neither leases nor the marker")
		}
		w.leases = empty
		if leases := w.records(feed.KindLease); len(leases) > 0 {
			t.Errorf("%d leases were made where nobody has said where from", len(leases))
		}
	})
}

func TestAnInstanceEndsWhenAnotherHasBegunItsUnitAnew(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		store := &switched{}
		store.at.Store(w.leases)
		a := w.runWith(w.orders, store, "a", &tally{}, changefeed.Options{})
		time.Sleep(20 * time.Second)
		anew := w.other("anew")
		b := w.runOn(anew, "b", &tally{}, changefeed.Options{})
		time.Sleep(time.Second)
		store.at.Store(anew)
		a.isTold(t, a.ends(t, 30*time.Second), "was begun anew at 20")
		time.Sleep(5 * time.Minute)
		b.stop(t)
	})
}

// A listing that once shows no container, or nothing, is not believed.
func TestOneListingWithoutLeasesEndsNothing(t *testing.T) {
	for name, answer := range map[string]func() ([]feed.Record, time.Time, error){
		"not found": func() ([]feed.Record, time.Time, error) { return nil, time.Time{}, feed.ErrNotFound },
		"empty":     func() ([]feed.Record, time.Time, error) { return nil, time.Now(), nil },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 2, func(t *testing.T, w *world) {
				var wrong atomic.Bool
				store := &hookedStore{Leases: w.leases, list: func(ctx context.Context) ([]feed.Record, time.Time,
					error,
				) {
					if wrong.CompareAndSwap(true, false) {
						return answer()
					}
					return w.leases.List(ctx)
				}}
				p := w.runWith(w.orders, struct{ feed.LeaseStore }{store}, "a", &tally{}, changefeed.Options{})
				time.Sleep(time.Minute)
				wrong.Store(true)
				time.Sleep(time.Minute)
				if wrong.Load() || p.errs.find(feed.ErrLeasesGone) != nil {
					t.Errorf("not listed: %v; reported %v", wrong.Load(), p.errs.all())
				}
				p.stop(t)
			})
		})
	}
}

// listsPartitions makes a unit whose listings of leases ask for the partitions: one of its leases is of a partition
// that is not known.
func (w *world) listsPartitions() {
	w.t.Helper()
	for _, partition := range []string{"0", "unknown"} {
		if _, err := w.leases.Create(w.t.Context(), feed.Record{
			Kind: feed.KindLease, Token: partition,
			Position: feed.At(`"0"`),
		}); err != nil {
			w.t.Fatal(err)
		}
	}
	if _, err := w.leases.Create(w.t.Context(), feed.Record{Kind: feed.KindInfo}); err != nil {
		w.t.Fatal(err)
	}
}

// A partition list of a monitored container that is missing says nothing of the leases.
func TestAMonitoredContainerThatIsMissingIsNotTakenForTheLeaseContainer(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.listsPartitions()
		p := w.runWith(w.orders, w.leases, "a", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(20 * time.Second)
		if err := w.db.DeleteContainer(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		if err := p.ends(t, 5*time.Minute); !errors.Is(err, feed.ErrSourceGone) ||
			p.errs.find(feed.ErrLeasesGone) != nil {
			t.Errorf("Run returned %v, and reported %v", err, p.errs.find(feed.ErrLeasesGone))
		}
	})
}

// unlisted is a container whose partitions are not found while it is away.
type unlisted struct {
	*docstore.Container
	away atomic.Bool
}

func (s *unlisted) Partitions(ctx context.Context) ([]feed.Partition, error) {
	if s.away.Load() {
		return nil, feed.ErrNotFound
	}
	return s.Container.Partitions(ctx)
}

// The partitions of the monitored container are not found for a while, which a listing of leases asks for. The leases
// are there, and the unit goes on.
func TestPartitionsThatAreNotFoundAreNotTakenForTheLeases(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.listsPartitions()
		y := &tally{}
		source := &unlisted{Container: w.orders}
		p := w.runWith(source, w.leases, "a", y, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(20 * time.Second)
		source.away.Store(true)
		time.Sleep(10 * time.Minute)
		source.away.Store(false)
		w.fill(10)
		time.Sleep(time.Minute)
		if items, _ := y.items(); items != 10 || p.errs.find(feed.ErrNotFound) == nil ||
			p.errs.find(feed.ErrLeasesGone) != nil {
			t.Errorf("%d of 10 items handled after it; reported: %v", items, p.errs.find(feed.ErrNotFound))
		}
		p.stop(t)
	})
}

// Another program has rewritten one lease, so that it cannot be read. Its range stands still, which the instance says,
// and the others go on.
func TestALeaseThatIsBrokenStopsItselfAlone(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		y := &tally{}
		a := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		lease := w.records(feed.KindLease)[0]
		broken := strings.Replace(string(lease.Raw), `"changefeed.expiration":"`, `"changefeed.expiration":"never, `, 1)
		if _, err := w.container.Upsert(t.Context(), []byte(broken)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second) // until its owner knows
		w.fill(20)
		time.Sleep(5 * time.Minute)
		left, err := w.orders.Pending(t.Context(), lease.Range, feed.Position{Start: feed.FromBeginning()},
			feed.ReadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if items, _ := y.items(); left.Items == 0 || left.Items == 20 || items != 20-int(left.Items) {
			t.Errorf("%d of 20 items handled, %d are in the lease that is broken", items, left.Items)
		}
		all := a.processor.Status()[0].Broken
		if len(all) != 1 || all[0].Lease != lease.Token || !errors.Is(all[0], feed.ErrBadLease) {
			t.Errorf("broken by the status: %v, want %s", all, lease.Token)
		}
		if told := a.errs.find(feed.ErrBadLease); told == nil || told.Lease != lease.Token {
			t.Errorf("reported %v, want %s", told, lease.Token)
		}
		a.stop(t)
	})
}

// Somebody deletes the marker alone. The leases know how far the unit has come, so nothing is lost and nothing is new.
func TestAMarkerThatIsMadeAgainEndsNothing(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		a := w.run("a", &tally{}, changefeed.Options{})
		time.Sleep(20 * time.Second)
		w.delete(w.records(feed.KindInfo)[0])
		time.Sleep(5 * time.Minute)
		b := w.run("b", &tally{}, changefeed.Options{})
		w.balanced(2)
		time.Sleep(5 * time.Minute)
		if s := b.processor.Status(); len(s) != 1 || s[0].Began != nil {
			t.Errorf("status %+v, want that the unit is not new", s)
		}
		if len(w.records(feed.KindInfo)) != 1 || a.errs.find(feed.ErrLeasesGone) != nil {
			t.Errorf("reported %v", a.errs.all())
		}
		a.stop(t)
		b.stop(t)
	})
}

// delete removes a record, as an operator does.
func (w *world) delete(record feed.Record) {
	w.t.Helper()
	if err := w.leases.Delete(w.t.Context(), record); err != nil {
		w.t.Fatal(err)
	}
}

// cutAfterTheMarker starts an instance that makes the unit, and is cut off from the leases before it takes one.
func (w *world) cutAfterTheMarker(cut *atomic.Bool) *process {
	off := func() error {
		if cut.Load() {
			return errCutOff
		}
		return nil
	}
	store := &hookedStore{
		Leases: w.leases,
		list: func(ctx context.Context) ([]feed.Record, time.Time, error) {
			if err := off(); err != nil {
				return nil, time.Time{}, err
			}
			return w.leases.List(ctx)
		},
		create: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if err := off(); err != nil {
				return l, err
			}
			got, err := w.leases.Create(ctx, l)
			if l.Kind == feed.KindInfo {
				cut.Store(true)
			}
			return got, err
		},
		update: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if err := off(); err != nil {
				return l, err
			}
			return w.leases.Update(ctx, l)
		},
		follow: func(ctx context.Context, cursor string) ([]feed.Record, string, time.Time, error) {
			if err := off(); err != nil {
				return nil, "", time.Time{}, err
			}
			return w.leases.Follow(ctx, cursor)
		},
	}
	return w.runWith(w.orders, store, "cut off", &tally{}, changefeed.Options{})
}

// makesLeases makes the two leases of the unit as an instance that ends before it makes the marker.
func (w *world) makesLeases(t *testing.T, name string) {
	maker := w.runWith(w.orders, &hookedStore{
		Leases: w.leases,
		create: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindInfo {
				return l, errCutOff
			}
			return w.leases.Create(ctx, l)
		},
	}, name, &tally{}, changefeed.Options{})
	w.until(time.Minute, "two leases", func() bool { return len(w.records(feed.KindLease)) == 2 })
	time.Sleep(time.Second) // until the marker was refused
	maker.stop(t)
}

// The marker is deleted before anybody has taken a lease, and a lease with it, which is made again. The next instance
// makes a marker for the leases that are there, and the instance that made the first, which was cut off meanwhile,
// works on.
func TestAMarkerThatIsMadeAgainForUntouchedLeasesEndsNothing(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		var cut atomic.Bool
		a := w.cutAfterTheMarker(&cut)
		w.until(time.Minute, "cut off", cut.Load)
		w.delete(w.records(feed.KindInfo)[0])
		w.delete(w.records(feed.KindLease)[0])
		time.Sleep(time.Minute)
		w.makesLeases(t, "interrupted")
		b := w.run("b", &tally{}, changefeed.Options{})
		w.balanced(1)
		cut.Store(false)
		time.Sleep(5 * time.Minute)
		if len(w.records(feed.KindInfo)) != 1 || a.errs.find(feed.ErrLeasesGone) != nil {
			t.Errorf("reported %v", a.errs.all())
		}
		a.stop(t)
		b.stop(t)
	})
}

// All records are deleted, and the creation of the next leases is interrupted: whoever completes it finds leases too,
// which are not those of the instance that was cut off.
func TestAUnitWhoseNewLeasesTwoInstancesMakeIsBegunAnew(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		var cut atomic.Bool
		a := w.cutAfterTheMarker(&cut)
		w.until(time.Minute, "cut off", cut.Load)
		w.deleteLeases()
		w.delete(w.records(feed.KindInfo)[0])
		time.Sleep(time.Minute)
		w.makesLeases(t, "interrupted")
		b := w.run("b", &tally{}, changefeed.Options{})
		w.balanced(1)
		cut.Store(false)
		a.isTold(t, a.ends(t, 5*time.Minute), "the unit was begun anew")
		b.stop(t)
	})
}

// The request of a dead instance that was to make the marker may arrive after another instance has made it and somebody
// has deleted that one. A marker that is older than the unit does not begin it anew.
func TestAMarkerThatArrivesLateEndsNothing(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		a := w.run("a", &tally{}, changefeed.Options{})
		time.Sleep(20 * time.Second)
		late := w.records(feed.KindInfo)[0]
		w.delete(late)
		late.ID, late.ETag, late.Raw, late.Timestamp = "", "", nil, late.Timestamp.Add(-time.Minute)
		late.Properties = notes.Set(late.Properties, notes.MakersProperty, "another") // its leases were removed
		if _, err := w.leases.Create(t.Context(), late); err != nil {
			t.Fatal(err)
		}
		w.put("oslo", "item", 1)
		time.Sleep(5 * time.Minute)
		if a.errs.find(feed.ErrLeasesGone) != nil || w.pending() != 0 {
			t.Errorf("reported %v, %d changes are pending", a.errs.all(), w.pending())
		}
		a.stop(t)
	})
}
