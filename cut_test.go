package changefeed_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
)

// ranges lists the ranges of the unit's leases, in their order.
func (w *world) ranges() (all []string) {
	for _, lease := range w.records(feed.KindLease) {
		all = append(all, lease.Range.String())
	}
	slices.Sort(all)
	return all
}

// keepWriting writes versions of 20 items until it is stopped, and then returns how many.
func (w *world) keepWriting() (stop func() (written int)) {
	return w.writeEvery(100 * time.Millisecond)
}

// writeEvery writes like keepWriting, with a pause.
func (w *world) writeEvery(d time.Duration) (stop func() (written int)) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan int)
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			w.put(fmt.Sprint("city-", n%20), "item", n)
			time.Sleep(d)
		}
		done <- n
	}()
	return func() int {
		cancel()
		return <-done
	}
}

// A lease is cut while the unit works: nothing is skipped or comes twice, and the order of each key is kept.
func TestMoreLeasesAreCutWhileTheUnitWorks(t *testing.T) {
	for _, concurrency := range []int{1, 4} {
		t.Run(fmt.Sprint("concurrency ", concurrency), func(t *testing.T) {
			inWorld(t, 2, func(t *testing.T, w *world) {
				y := &tally{}
				o := changefeed.Options{Start: feed.FromBeginning(), MaxItems: 3, Concurrency: concurrency}
				a := w.run("a", y, o)
				stop := w.keepWriting()
				time.Sleep(time.Minute)
				o.MinLeases = 7
				b := w.run("b", y, o)
				time.Sleep(30 * time.Second)
				if n := len(w.ranges()); n != 7 {
					t.Errorf("%d leases, want 7: %v", n, w.ranges())
				}
				w.balanced(2)
				written := stop()
				time.Sleep(time.Minute)
				if items, again := y.items(); items != 20 || items+again != written {
					t.Errorf("%d items, %d later deliveries of %d writes", items, again, written)
				}
				y.ordered(t)
				w.tiles()
				a.stop(t)
				b.stop(t)
				if owners := w.owners(); owners[""] != 7 {
					t.Errorf("after the stop the owners are %v", owners)
				}
			})
		})
	}
}

// The widest leases are cut, and the others stay as they are.
func TestTheOwnersOfTheWidestRangesCutTheirs(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		w.split(0)
		a := w.run("a", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		first := w.ranges()
		b := w.run("b", &tally{}, changefeed.Options{MinLeases: 4})
		time.Sleep(time.Minute)
		now := w.ranges()
		if len(first) != 3 || len(now) != 4 || !slices.Equal(first[:2], now[:2]) {
			t.Errorf("leases %v became %v, want the last cut in two", first, now)
		}
		a.stop(t)
		b.stop(t)
	})
}

// The parts begin at the stored position, with the failures that the lease has counted.
func TestThePartsOfACutLeaseBeginAtItsCheckpoint(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		p := w.run("a", feed.HandlerFunc(failing), changefeed.Options{Start: feed.FromBeginning()})
		w.fill(20)
		time.Sleep(5 * time.Second)
		p.stop(t)
		parent := w.records(feed.KindLease)[0]
		store := w.recorder()
		p = w.runWith(w.orders, store, "a", feed.HandlerFunc(failing), changefeed.Options{MinLeases: 3})
		time.Sleep(5 * time.Second)
		p.stop(t)
		if parent.Attempts < 3 || len(store.created) != 3 {
			t.Fatalf("%d children after %d attempts: the test shows nothing", len(store.created), parent.Attempts)
		}
		for _, child := range store.created {
			if child.Position != parent.Position || child.Attempts < parent.Attempts {
				t.Errorf("child at %v after %d attempts, parent at %v after %d", child.Position, child.Attempts,
					parent.Position, parent.Attempts)
			}
		}
		y := &tally{}
		p = w.run("b", y, changefeed.Options{})
		time.Sleep(time.Minute)
		if items, again := y.items(); items != 20 || again != 0 {
			t.Errorf("%d items, %d again; want all 20 once", items, again)
		}
		p.stop(t)
	})
}

// A crash between any two writes of a cut loses nothing: the next owner finishes the cut.
func TestACutSurvivesACrashBetweenAnyTwoSteps(t *testing.T) {
	const steps = 5 // mark the lease, take it, two children, delete it
	for left := range steps + 1 {
		t.Run(fmt.Sprintf("after %d steps", left), func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				y := &tally{}
				first := w.run("first", y, changefeed.Options{Start: feed.FromBeginning()})
				w.fill(20)
				time.Sleep(30 * time.Second)
				first.stop(t)
				p := w.runToCrash(left, "a", y, changefeed.Options{MinLeases: 2})
				time.Sleep(30 * time.Second)
				w.fill(20)
				p.cancel()
				if err := <-p.done; err != nil {
					t.Error(err)
				}
				b := w.run("b", y, changefeed.Options{})
				time.Sleep(3 * time.Minute)
				if n := w.pending(); n != 0 {
					t.Errorf("%d pending", n)
				}
				if items, again := y.items(); items != 20 || again < 20 {
					t.Errorf("%d items, %d again; want both versions of all 20", items, again)
				}
				want := 2
				if left == 0 {
					want = 1 // nothing is cut yet, and b asks for no more
				}
				if got := len(w.ranges()); got != want {
					t.Errorf("%d leases, want %d", got, want)
				}
				y.ordered(t)
				w.tiles()
				b.stop(t)
			})
		})
	}
}

// If an instance stops while a lease of it is cut, the lease is free at once.
func TestAStopDuringACutFreesTheLease(t *testing.T) {
	// The batch ends while the instance still leaves its unit, or when the time for that is over.
	for _, drain := range []time.Duration{10 * time.Second, 5 * time.Second} {
		inWorld(t, 1, func(t *testing.T, w *world) {
			busy := feed.HandlerFunc(func(context.Context, *feed.Batch) error {
				time.Sleep(8 * time.Second)
				return nil
			})
			a := w.run("a", busy, changefeed.Options{Start: feed.FromBeginning(), Drain: drain})
			time.Sleep(time.Second)
			w.fill(5)
			b := w.run("b", busy, changefeed.Options{MinLeases: 4}) // the worker of a ends when its batch does
			time.Sleep(time.Second)
			a.stop(t)
			lease := w.records(feed.KindLease)[0]
			if owner := lease.Owner; lease.State != feed.StateSplitting || owner != "" && owner != "b" {
				t.Errorf("drain %v: the lease is %v and has owner %q", drain, lease.State, owner)
			}
			time.Sleep(20 * time.Second)
			if n := len(w.ranges()); n != 4 || w.owners()["b"] != 4 {
				t.Errorf("drain %v: %d leases of %v, want 4 of b", drain, n, w.owners())
			}
			b.stop(t)
		})
	}
}

// A paused lease is cut when the pause is over.
func TestAPausedLeaseIsNotCut(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		a := w.run("a", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		unit := w.admin(admin.Options{})
		operate(t, func(ctx context.Context) ([]admin.Step, error) { return unit.Pause(ctx, admin.All()) })
		b := w.run("b", &tally{}, changefeed.Options{MinLeases: 4})
		time.Sleep(5 * time.Minute)
		if n := len(w.ranges()); n != 1 {
			t.Errorf("%d leases while the unit is paused, want 1", n)
		}
		operate(t, func(ctx context.Context) ([]admin.Step, error) { return unit.Resume(ctx, admin.All()) })
		time.Sleep(time.Minute)
		if n := len(w.ranges()); n != 4 {
			t.Errorf("%d leases after the pause, want 4", n)
		}
		a.stop(t)
		b.stop(t)
	})
}

// While another kind of processor owns a lease, no lease is cut, because that processor does not know leases that are
// splitting.
func TestNothingIsCutBesideAForeignOwner(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		a := w.run("a", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		a.stop(t)
		end := w.renewAsForeigner()
		b := w.run("b", &tally{}, changefeed.Options{MinLeases: 6})
		time.Sleep(2 * time.Minute)
		if n := len(w.ranges()); n != 2 {
			t.Errorf("%d leases beside a foreign owner, want 2", n)
		}
		end()
		time.Sleep(2 * time.Minute)
		if n := len(w.ranges()); n != 6 {
			t.Errorf("%d leases when the foreign owner has gone, want 6", n)
		}
		b.stop(t)
	})
}
