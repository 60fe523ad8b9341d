package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

func (w *world) partitions() []feed.Partition {
	w.t.Helper()
	partitions, err := w.orders.Partitions(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return partitions
}

func (w *world) split(n int) {
	w.t.Helper()
	if _, err := w.orders.Split(w.t.Context(), w.partitions()[n].ID); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) merge(n int) {
	w.t.Helper()
	p := w.partitions()
	if _, err := w.orders.Merge(w.t.Context(), p[n].ID, p[n+1].ID); err != nil {
		w.t.Fatal(err)
	}
}

// tiles fails the test unless the live leases tile the key space.
func (w *world) tiles() {
	w.t.Helper()
	leases := slices.DeleteFunc(w.records(feed.KindLease), func(l feed.Record) bool {
		return l.State == feed.StateRetired
	})
	slices.SortFunc(leases, func(a, b feed.Record) int {
		if a.Range.Min < b.Range.Min {
			return -1
		}
		return 1
	})
	at := ""
	for _, l := range leases {
		if l.Range.Min != at {
			w.t.Errorf("lease %s follows %q", l.Token, at)
		}
		at = l.Range.Max
	}
	if at != "FF" {
		w.t.Errorf("leases end at %q", at)
	}
}

// ordered fails the test unless each item's deliveries are in order.
func (y *tally) ordered(t *testing.T) {
	t.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	for name, lsns := range y.seen {
		if !slices.IsSorted(lsns) {
			t.Errorf("item %s was delivered as %v", name, lsns)
		}
	}
}

// 9: split and merge while running.
func TestAcceptance9SplitsAndMergesWhileRunning(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		y := &tally{}
		o := changefeed.Options{Start: feed.FromBeginning(), MaxItems: 3}
		a, b := w.run("a", y, o), w.run("b", y, o)
		for n := range 60 {
			w.put(fmt.Sprint("city-", n%20), "item", n)
			time.Sleep(time.Second)
			switch n {
			case 10, 20, 50:
				w.split(n % 2)
			case 30, 40:
				w.merge(0)
			}
		}
		time.Sleep(time.Minute)
		if items, again := y.items(); items != 20 || again != 40 {
			t.Errorf("%d items, %d later deliveries; want each of the 60 writes once", items, again)
		}
		y.ordered(t)
		w.tiles()
		a.stop(t)
		b.stop(t)
	})
}

// ... and while stopped.
func TestAcceptance9SplitsAndMergesWhileNobodyRuns(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		y := &tally{}
		o := changefeed.Options{Start: feed.FromBeginning()}
		w.fill(20)
		p := w.run("a", y, o)
		time.Sleep(time.Minute)
		p.stop(t)
		w.fill(20)
		w.split(0)
		w.fill(20)
		w.merge(1)
		w.split(0)
		w.fill(20)
		p = w.run("b", y, o)
		time.Sleep(time.Minute)
		if n := w.pending(); n != 0 {
			t.Errorf("%d pending", n)
		}
		if items, again := y.items(); items != 20 || again != 20 {
			t.Errorf("%d items, %d again; want all 20 in their last version", items, again)
		}
		y.ordered(t)
		w.tiles()
		p.stop(t)
	})
}

// step counts the writes of a split and cuts the process off before one of them.
type step struct {
	*docstore.Leases
	mu    sync.Mutex
	left  int // writes until the process dies
	armed bool
}

var errCrash = errors.New("the process has died")

// dies tells whether the process has died before this write. The first one that begins
// a split arms it.
func (s *step) dies(begins bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.armed = s.armed || begins; !s.armed {
		return false
	}
	s.left--
	return s.left < 0
}

func (s *step) Create(ctx context.Context, l feed.Record) (feed.Record, error) {
	if s.dies(false) {
		return l, errCrash
	}
	return s.Leases.Create(ctx, l)
}

func (s *step) Update(ctx context.Context, l feed.Record) (feed.Record, error) {
	if s.dies(l.State == feed.StateSplitting) {
		return l, errCrash
	}
	return s.Leases.Update(ctx, l)
}

func (s *step) Delete(ctx context.Context, l feed.Record) error {
	if s.dies(false) {
		return errCrash
	}
	return s.Leases.Delete(ctx, l)
}

// ... and with a crash between each pair of steps.
func TestAcceptance9ASplitSurvivesACrashBetweenAnyTwoSteps(t *testing.T) {
	const steps = 4 // mark the parent, two children, delete the parent
	for left := range steps + 1 {
		t.Run(fmt.Sprintf("after %d steps", left), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				y := &tally{}
				store := &step{Leases: w.leases, left: left}
				ctx, crash := context.WithCancel(t.Context())
				p, err := changefeed.New(w.orders, store, y, changefeed.Options{
					Instance: "a", Start: feed.FromBeginning(), Drain: time.Second,
					Hooks: changefeed.Hooks{Error: func(_ context.Context, err *feed.Error) {
						if errors.Is(err, errCrash) {
							crash()
						}
					}},
				})
				if err != nil {
					t.Fatal(err)
				}
				done := make(chan error)
				go func() { done <- p.Run(ctx) }()
				w.fill(20)
				time.Sleep(30 * time.Second)
				w.split(0)
				w.fill(20)
				time.Sleep(30 * time.Second)
				crash()
				if err := <-done; err != nil {
					t.Error(err)
				}
				b := w.run("b", y, changefeed.Options{Start: feed.FromBeginning()})
				time.Sleep(2 * time.Minute)
				if n := w.pending(); n != 0 {
					t.Errorf("%d pending", n)
				}
				if items, again := y.items(); items != 20 || again < 20 || left <= 1 && again > 20 {
					t.Errorf("%d items, %d again; want both versions of all 20, once unless a child had begun", items,
						again)
				}
				y.ordered(t)
				w.tiles()
				b.stop(t)
			})
		})
	}
}

// unprivileged has no right to delete.
type unprivileged struct{ *docstore.Leases }

func (unprivileged) Delete(context.Context, feed.Record) error { return feed.ErrForbidden }

// ... and without the right to delete leases.
func TestAcceptance9ASplitNeedsNoRightToDelete(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		y := &tally{}
		p, err := changefeed.New(w.orders, unprivileged{w.leases}, y, changefeed.Options{
			Instance: "a", Start: feed.FromBeginning(),
			Hooks: changefeed.Hooks{Error: func(context.Context, *feed.Error) {}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		w.fill(20)
		time.Sleep(time.Minute)
		w.split(0)
		w.fill(20)
		time.Sleep(time.Minute)
		w.merge(0)
		w.fill(20)
		time.Sleep(time.Minute)
		if items, again := y.items(); items != 20 || again != 40 {
			t.Errorf("%d items, %d again; want the three versions of all 20, once", items, again)
		}
		if n := w.pending(); n != 0 {
			t.Errorf("%d pending", n)
		}
		w.tiles()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// 11, in part: the estimator before the first checkpoint, after a split while nobody
// runs, and with several items in one transaction.
func TestAcceptance11TheEstimateIsRight(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		p := w.run("a", feed.HandlerFunc(failing), changefeed.Options{})
		time.Sleep(time.Minute)
		if n := w.pending(); n != 0 {
			t.Errorf("%d pending before anything was written", n)
		}
		w.fill(7)
		if n := w.pending(); n != 7 {
			t.Errorf("%d pending before the first checkpoint, want 7", n)
		}
		p.stop(t)
		w.split(0)
		if n := w.pending(); n != 7 {
			t.Errorf("%d pending after a split while nobody ran, want 7", n)
		}
		var writes []feed.Write
		for n := range 5 {
			writes = append(writes, upsert("oslo", fmt.Sprint(n), n))
		}
		if _, err := w.orders.Commit(t.Context(), feed.Key("oslo"), writes); err != nil {
			t.Fatal(err)
		}
		if n := w.pending(); n != 12 {
			t.Errorf("%d pending with 5 more in one transaction, want 12", n)
		}
		time.Sleep(time.Minute)
		lags, err := changefeed.Estimate(t.Context(), w.orders, w.leases)
		if err != nil {
			t.Fatal(err)
		}
		if age, known := lags[0].Age(time.Now()); !known || age < time.Minute || age > 2*time.Minute {
			t.Errorf("the oldest pending change is %v old, known %v, want a good minute", age, known)
		}
		// Of a source that cannot count, so few changes are read.
		type plain struct{ feed.Source }
		if lags, err = changefeed.Estimate(t.Context(), plain{w.orders}, w.leases); err != nil {
			t.Fatal(err)
		}
		if !lags[0].Exact || lags[0].Pending != 12 || lags[0].Err != nil {
			t.Errorf("without a counter: %d pending, exact %v, %v; want 12", lags[0].Pending, lags[0].Exact, lags[0].Err)
		}
	})
}
