package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// recorder is a lease store that keeps the leases that it was asked to create.
type recorder struct {
	*hookedStore
	mu      sync.Mutex
	created []feed.Record
}

func (w *world) recorder() *recorder {
	s := &recorder{hookedStore: &hookedStore{Leases: w.leases}}
	s.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
		if l.Kind == feed.KindLease {
			s.mu.Lock()
			s.created = append(s.created, l)
			s.mu.Unlock()
		}
		return w.leases.Create(ctx, l)
	}
	return s
}

// A child goes on as its parent would have: from its position, with its failures, in its
// mode, and with what others keep in it.
func TestAChildHasWhatItsParentHad(t *testing.T) {
	for _, mode := range []feed.Mode{feed.LatestVersion, feed.AllVersionsAndDeletes} {
		t.Run(mode.String(), func(t *testing.T) {
			inWorldOf(t, docstore.ContainerSpec{Ranges: 1, Retention: time.Hour}, func(t *testing.T, w *world) {
				o := changefeed.Options{Mode: mode, Expiration: 3 * time.Minute}
				if mode == feed.LatestVersion {
					o.Start = feed.FromTime(time.Now())
				}
				p := w.run("a", feed.HandlerFunc(failing), o)
				time.Sleep(time.Second)
				w.fill(10)
				time.Sleep(5 * time.Second)
				p.stop(t)
				parent := w.records(feed.KindLease)[0]
				parent.Properties["somebody's"] = "own"
				parent, err := w.leases.Update(t.Context(), parent)
				if err != nil {
					t.Fatal(err)
				}
				w.split(0)
				store := w.recorder()
				p = w.runWith(w.orders, store, "b", feed.HandlerFunc(failing), o)
				time.Sleep(20 * time.Second)
				p.stop(t)
				for _, l := range w.records(feed.KindLease) {
					if due := l.Properties[notes.DueProperty]; due != "" {
						t.Errorf("lease %s was written since, and still had to arrive by %s", l.Token, due)
					}
				}
				if len(store.created) != 2 || parent.Attempts < 3 || parent.Position.Token == "" {
					t.Fatalf("%d children of %+v: the test shows nothing", len(store.created), parent)
				}
				for _, child := range store.created {
					if child.Position != parent.Position || child.Attempts != parent.Attempts || child.Mode != mode {
						t.Errorf("child at %+v after %d failures, %v; its parent at %+v after %d, %v",
							child.Position, child.Attempts, child.Mode, parent.Position, parent.Attempts, mode)
					}
					if child.Owner != "b" || child.Epoch == "" || child.Expiration != o.Expiration {
						t.Errorf("child of %q/%q, silent for %v at most", child.Owner, child.Epoch, child.Expiration)
					}
					due, known := notes.ReadDue(child.Properties[notes.DueProperty])
					if left := due.By.Sub(child.Timestamp); !known || !due.Sent.Equal(child.Timestamp) ||
						left <= o.Expiration/2 || left > o.Expiration {
						t.Errorf("child of %v has to arrive by %v", child.Timestamp, due.By)
					}
					delete(child.Properties, notes.DueProperty)
					failing := parent.Properties[notes.FailingProperty]
					if got := child.Properties[notes.FailingProperty]; got != failing || failing == "" {
						t.Errorf("child fails at %q, its parent at %q", got, failing)
					}
					delete(child.Properties, notes.FailingProperty)
					if got := fmt.Sprint(child.Properties); got != "map[changefeed.generation:#1 changefeed.term:#3 "+
						"somebody's:own]" {
						t.Errorf("child with %s", got)
					}
				}
			})
		})
	}
}

// A split that was begun is finished in the parts that it was begun with, and its parent
// is not read any more, although one partition holds all of it again.
func TestASplitIsFinishedAsItWasBegunThoughPartitionsMerge(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		y := &tally{}
		p := w.runToCrash(1, "a", y, changefeed.Options{Start: feed.FromBeginning()})
		w.fill(20)
		time.Sleep(30 * time.Second)
		w.split(0)
		parts := fmt.Sprint(w.partitions()[0].Range, w.partitions()[1].Range)
		w.fill(20)
		time.Sleep(30 * time.Second)
		p.stop(t)
		if l := w.records(feed.KindLease); len(l) != 1 || l[0].State != feed.StateSplitting {
			t.Fatalf("leases %v: the test shows nothing", l)
		}
		w.merge(0)
		store := w.recorder()
		p = w.runWith(w.orders, store, "b", y, changefeed.Options{})
		time.Sleep(3 * time.Minute)
		p.stop(t)
		if len(store.created) != 2 || fmt.Sprint(store.created[0].Range, store.created[1].Range) != parts {
			t.Errorf("made %v, want the parts %s that the split was begun with", store.created, parts)
		}
		w.tiles()
		if items, again := y.items(); items != 20 || again != 20 || len(w.records(feed.KindLease)) != 2 {
			t.Errorf("%d items, %d again in %d leases, want both versions of 20", items, again,
				len(w.records(feed.KindLease)))
		}
	})
}

// Where a child is to be made there is a record that covers nothing: the parent stays.
func TestAParentStaysUntilItsChildrenCoverIt(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		y := &tally{}
		p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
		w.fill(20)
		time.Sleep(10 * time.Second)
		p.stop(t)
		parent := w.records(feed.KindLease)[0]
		w.split(0)
		half := w.partitions()[0].Range
		blocker, err := w.leases.Create(t.Context(), feed.Record{
			Kind: feed.KindLease, Version: 1, Token: half.String(),
			Range: half, State: feed.StateRetired,
		})
		if err != nil {
			t.Fatal(err)
		}
		w.fill(20)
		p = w.run("b", y, changefeed.Options{})
		for range 60 {
			time.Sleep(time.Second)
			if !w.has(parent.ID) {
				t.Fatal("the parent is gone, and half of its range has no lease")
			}
		}
		if p.errs.find(feed.ErrHole) == nil {
			t.Error("nothing was reported")
		}
		if err := w.leases.Delete(t.Context(), blocker); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Minute)
		w.tiles()
		if items, again := y.items(); items != 20 || again != 20 || w.has(parent.ID) {
			t.Errorf("%d items, %d again, want both versions of 20 once", items, again)
		}
		p.stop(t)
	})
}

// No child is made before its parent is stored as splitting, though the write that says so
// fails for longer than a try of the split lasts: after a crash nobody would know the parts.
func TestNoChildIsMadeBeforeItsParentIsStoredAsSplitting(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.fill(20)
		store := &hookedStore{Leases: w.leases}
		var failing atomic.Bool
		store.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.State == feed.StateSplitting && failing.Load() {
				return l, errors.New("no answer")
			}
			return w.leases.Update(ctx, l)
		}
		var early atomic.Int64
		store.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLease && failing.Load() {
				early.Add(1)
			}
			return w.leases.Create(ctx, l)
		}
		y := &tally{}
		p := w.runWith(w.orders, store, "a", y, changefeed.Options{
			Start:      feed.FromBeginning(),
			Expiration: 20 * time.Minute, Renew: 8 * time.Minute,
		})
		time.Sleep(10 * time.Second)
		failing.Store(true)
		w.split(0)
		time.Sleep(5 * time.Minute)
		if n := early.Load(); n > 0 {
			t.Errorf("%d children were made while their parent was stored as live", n)
		}
		failing.Store(false)
		time.Sleep(2 * time.Minute)
		w.tiles()
		if n := len(w.records(feed.KindLease)); n != 2 || w.pending() != 0 {
			t.Errorf("%d leases, %d pending", n, w.pending())
		}
		p.stop(t)
	})
}

// Without the right to delete, a lease that was removed stands retired in the way of one
// that is needed again.
func TestARetiredLeaseIsMadeLiveAgainWhereItIsNeeded(t *testing.T) {
	for name, splits := range map[string]bool{"of a part": true, "of a hole": false} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 2, func(t *testing.T, w *world) {
				y := &tally{}
				store := &unprivileged{w.leases}
				p := w.runWith(w.orders, store, "a", y, changefeed.Options{Start: feed.FromBeginning()})
				w.fill(20)
				time.Sleep(10 * time.Second)
				p.stop(t)
				at := 0
				if splits {
					w.split(at)
				}
				needed := w.partitions()[at].Range
				lease := feed.Record{
					Kind: feed.KindLease, Version: 1, Token: needed.String(), Range: needed, Position: feed.At(`"3"`),
					Properties: map[string]string{"changefeed.generation": "#4"},
				}
				for _, l := range w.records(feed.KindLease) {
					if l.Range == needed {
						lease = l
					}
				}
				lease.State = feed.StateRetired
				var err error
				if lease.ETag == "" {
					_, err = w.leases.Create(t.Context(), lease)
				} else {
					_, err = w.leases.Update(t.Context(), lease)
				}
				if err != nil {
					t.Fatal(err)
				}
				w.fill(20)
				p = w.runWith(w.orders, store, "b", y, changefeed.Options{})
				time.Sleep(5 * time.Minute)
				w.tiles()
				if n := w.pending(); n != 0 {
					t.Errorf("%d pending", n)
				}
				if items, _ := y.items(); items != 20 {
					t.Errorf("%d items, want 20", items)
				}
				p.stop(t)
			})
		})
	}
}

// has tells whether there is a lease with an id.
func (w *world) has(id string) bool {
	for _, l := range w.records(feed.KindLease) {
		if l.ID == id {
			return true
		}
	}
	return false
}

// An old host left a lease that knows only the id of its partition, which has become three
// since.
func TestAnOldLeaseCoversAllPartitionsThatCameFromItsOwn(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		prefix, old := w.leases.Prefix(), w.partitions()[0].ID
		w.fill(40)
		w.raw(fmt.Sprintf(`{"id":%q}`, prefix+".info"))
		w.raw(fmt.Sprintf(`{"id":%q,"LeaseToken":%q,"Owner":null,"ContinuationToken":"\"40\""}`, prefix+".."+old, old))
		w.split(0)
		w.split(1)
		w.fill(40)
		y := &tally{}
		p := w.run("a", y, changefeed.Options{})
		time.Sleep(5 * time.Minute)
		w.tiles()
		if errs := p.errs.all(); len(errs) != 0 {
			t.Errorf("reported %v", errs)
		}
		items, again := y.items()
		if items != 40 || again != 0 || w.pending() != 0 || len(w.records(feed.KindLease)) != 3 {
			t.Errorf("%d items, %d again, %d pending in %d leases, want 40 that are new, once, in 3",
				items, again, w.pending(), len(w.records(feed.KindLease)))
		}
		p.stop(t)
	})
}

// deaf is a handler whose first call does not return before it is released.
type deaf struct {
	tally
	mu      sync.Mutex
	calls   int
	release chan struct{}
}

func (d *deaf) Handle(ctx context.Context, b *feed.Batch) error {
	d.mu.Lock()
	d.calls++
	first := d.calls == 1
	d.mu.Unlock()
	if first {
		<-d.release
		return errDownstream
	}
	return d.tally.Handle(ctx, b)
}

func TestTheRangeOfADeafHandlerIsFreeWhenItReturns(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		d := &deaf{release: make(chan struct{})}
		o := changefeed.Options{Start: feed.FromBeginning(), HandlerTimeout: 30 * time.Second, Drain: 5 * time.Second}
		p := w.run("a", d, o)
		w.put("oslo", "1", 1)
		time.Sleep(5 * time.Minute)
		d.mu.Lock()
		if d.calls != 1 {
			t.Errorf("called %d times while the first call had not returned", d.calls)
		}
		d.mu.Unlock()
		if p.errs.find(feed.ErrHandlerStuck) == nil {
			t.Error("the deaf handler was not reported")
		}
		close(d.release)
		time.Sleep(2 * time.Minute)
		if items, again := d.items(); items != 1 || again != 0 || w.pending() != 0 {
			t.Errorf("%d items, %d again, %d pending, after the deaf handler has returned", items, again, w.pending())
		}
		p.stop(t)
	})
}

// The write that takes a lease is on its way when the processor stops.
func TestAStopWhileALeaseIsBeingTakenFreesIt(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		const drain = 5 * time.Second
		taking := make(chan struct{}, 1)
		store := &hookedStore{Leases: w.leases, update: func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLease && l.Owner != "" {
				select {
				case taking <- struct{}{}:
				default:
				}
				time.Sleep(2 * time.Second)
			}
			return w.leases.Update(ctx, l)
		}}
		p := w.runWith(w.orders, store, "a", &tally{}, changefeed.Options{Drain: drain})
		<-taking
		p.cancel()
		select {
		case err := <-p.done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(longest * drain):
			t.Error("Run has not returned")
			store.update = nil
			w.deleteLeases() // so that it does
			<-p.done
		}
		for _, l := range w.records(feed.KindLease) {
			if l.Owner != "" {
				t.Errorf("lease %s is still of %q", l.Token, l.Owner)
			}
		}
	})
}
