package changefeed_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// A client may send a request again whose answer was lost: then a create meets what it has
// made, and a delete finds nothing. Neither keeps a unit from its work.
func TestAnEchoOfOurOwnWriteIsNoRefusal(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		store := &hookedStore{Leases: w.leases}
		var creates, deletes atomic.Int64
		store.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			got, err := w.leases.Create(ctx, l)
			if l.Kind == feed.KindLease && err == nil {
				creates.Add(1)
				return l, feed.ErrConflict
			}
			return got, err
		}
		store.delete = func(ctx context.Context, l feed.Record) error {
			err := w.leases.Delete(ctx, l)
			if l.Kind == feed.KindLease && err == nil {
				deletes.Add(1)
				return feed.ErrNotFound
			}
			return err
		}
		y := &tally{}
		p := w.runWith(w.orders, store, "a", y, changefeed.Options{Start: feed.FromBeginning()})
		w.fill(20)
		w.until(15*time.Second, "done before the split", func() bool { items, _ := y.items(); return items == 20 })
		w.split(0)
		w.split(2)
		w.fill(20)
		w.until(time.Minute, "done after the split", func() bool {
			_, again := y.items()
			return again == 20 && w.pending() == 0
		})
		w.tiles()
		if creates.Load() < 6 || deletes.Load() != 2 || len(w.records(feed.KindLease)) != 4 {
			t.Errorf("%d creates, %d deletes, %d leases", creates.Load(), deletes.Load(),
				len(w.records(feed.KindLease)))
		}
		if errs := p.errs.all(); len(errs) != 0 {
			t.Errorf("reported: %v", first(errs))
		}
		p.stop(t)
	})
}

// A split that cannot be done is tried less and less.
func TestASplitThatFailsIsTriedLessAndLess(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var refused atomic.Int64
		store := &hookedStore{Leases: w.leases}
		p := w.runWith(w.orders, store, "a", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		p.stop(t)
		store.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLease {
				tick(&refused)
				return l, errRefused
			}
			return w.leases.Create(ctx, l)
		}
		w.split(0)
		w.fill(4)
		p = w.runWith(w.orders, store, "b", &tally{}, changefeed.Options{})
		time.Sleep(10 * time.Minute)
		if n := refused.Load(); n < 5 || n > 60 {
			t.Errorf("%d creates in 10 minutes", n)
		}
		p.stop(t)
	})
}

// Positions of one mode mean nothing in the other one, in both directions.
func TestLeasesOfAllVersionsAreNotGoneOnWithInLatestVersion(t *testing.T) {
	inWorldOf(t, docstore.ContainerSpec{Ranges: 1, Retention: time.Hour}, func(t *testing.T, w *world) {
		var deletes atomic.Int64
		h := feed.HandlerFunc(func(_ context.Context, b *feed.Batch) error {
			for _, c := range b.Changes {
				if c.Op == feed.OpDelete {
					deletes.Add(1)
				}
			}
			return nil
		})
		p := w.run("a", h, changefeed.Options{Mode: feed.AllVersionsAndDeletes})
		time.Sleep(time.Minute)
		w.split(0)
		w.fill(4)
		if err := w.orders.Delete(t.Context(), feed.Key("city-0"), "item", ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := deletes.Load(); n != 1 {
			t.Errorf("%d deletes, want 1", n)
		}
		for _, l := range w.records(feed.KindLease) {
			if l.Mode != feed.AllVersionsAndDeletes {
				t.Errorf("lease %s is for the %v", l.Token, l.Mode)
			}
		}
		p.stop(t)
		if err := w.ends(changefeed.Options{}); !errors.Is(err, feed.ErrModeChanged) {
			t.Errorf("got %v, want ErrModeChanged", err)
		}
	})
}

// A handler may end within all of Drain after the order to stop, and what it has done counts,
// even when its context has ended meanwhile.
func TestABatchThatEndsWithItsDrainIsDone(t *testing.T) {
	const drain = 10 * time.Second
	for name, takes := range map[string]time.Duration{"within": drain - time.Second, "just after": drain +
		time.Second} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, w *world) {
				var ended error
				begun := make(chan struct{})
				h := feed.HandlerFunc(func(ctx context.Context, _ *feed.Batch) error {
					close(begun)
					time.Sleep(takes)
					ended = ctx.Err()
					return nil
				})
				w.put("oslo", "a", 1)
				p := w.run("a", h, changefeed.Options{Start: feed.FromBeginning(), Drain: drain})
				<-begun
				p.stop(t)
				if n := w.pending(); n != 0 || (ended != nil) != (takes > drain) {
					t.Errorf("%d pending, the handler's context: %v", n, ended)
				}
			})
		})
	}
}

// What was done since the last checkpoint does not come again after a planned stop.
func TestAPlannedStopStoresWhatWasNotDue(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		y := &tally{}
		p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning(), CheckpointItems: 1000})
		time.Sleep(time.Second)
		w.fill(7)
		w.until(2*time.Second, "delivered", func() bool { items, _ := y.items(); return items == 7 })
		p.stop(t)
		if n := w.pending(); n != 0 {
			t.Errorf("%d pending after a planned stop", n)
		}
	})
}
