package changefeed_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/keyspace"
	"github.com/millrace/changefeed/internal/notes"
)

// An older version has begun a split and did not note its parts. A merge has undone the split of the partition since,
// so there is nothing to split, and the lease is read on.
func TestALeaseWhoseSplitAMergeHasUndoneIsReadOn(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		y := &tally{}
		w.fill(20)
		p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		p.stop(t)
		w.split(0)
		l := w.records(feed.KindLease)[0]
		l.State = feed.StateSplitting
		if _, err := w.leases.Update(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		w.merge(0)
		w.fill(20)
		p = w.run("b", y, changefeed.Options{})
		time.Sleep(2 * time.Minute)
		w.fill(20)
		time.Sleep(time.Minute)
		p.stop(t)
		if items, again := y.items(); items != 20 || again != 40 || w.pending() != 0 {
			t.Errorf("%d items, %d again, %d pending; want the three versions of all 20, once", items, again,
				w.pending())
		}
		if l := w.records(feed.KindLease); len(l) != 1 || l[0].State != feed.StateLive {
			t.Errorf("%d leases, the first is %v; want the one, live", len(l), l[0].State)
		}
		y.ordered(t)
		w.tiles()
	})
}

// halfSplit leaves a lease of the whole range as an owner that has died in the midst of its split, and returns what
// arrives late: the child of the right half, and in place of that of the left half its own children, which have done
// all.
func (w *world) halfSplit() (late []feed.Record, left feed.Range) {
	w.t.Helper()
	w.split(0)
	halves := []feed.Range{w.partitions()[0].Range, w.partitions()[1].Range}
	w.split(0)
	parent := w.records(feed.KindLease)[0]
	parent.State = feed.StateSplitting
	parent.Properties = notes.Set(parent.Properties, notes.PartsProperty, keyspace.Join(halves))
	parent, err := w.leases.Update(w.t.Context(), parent)
	if err != nil {
		w.t.Fatal(err)
	}
	for n, p := range w.partitions() {
		generation := "#2"
		if n == 2 {
			generation = "#1"
		}
		late = append(late, feed.Record{
			Kind: feed.KindLease, Version: 1, Token: p.Range.String(), Range: p.Range, Position: parent.Position,
			Expiration: time.Minute,
			Mode:       parent.Mode, Properties: map[string]string{
				notes.GenerationProperty: generation,
				notes.TermProperty:       "#9",
			},
		})
	}
	return late, halves[0]
}

// The view of who goes on with a split is as old as its last round. Meanwhile the children have been made, and one of
// them was split again: it must not be made once more.
func TestASplitGoesOnFromWhatIsThereNow(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		y := &tally{}
		w.fill(20)
		p := w.run("a", y, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		p.stop(t)
		late, left := w.halfSplit()
		var arrived, again atomic.Int64
		store := &hookedStore{Leases: w.leases}
		store.follow = func(context.Context, string) ([]feed.Record, string, time.Time, error) {
			return nil, "", time.Time{}, errCutOff
		}
		store.update = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			got, err := w.leases.Update(ctx, l)
			if l.State == feed.StateSplitting && err == nil && arrived.CompareAndSwap(0, 1) { // it is taken
				for _, child := range late {
					if _, err := w.leases.Create(ctx, child); err != nil {
						t.Error(err)
					}
				}
			}
			return got, err
		}
		store.create = func(ctx context.Context, l feed.Record) (feed.Record, error) {
			if l.Kind == feed.KindLease && l.Range == left {
				again.Add(1)
			}
			return w.leases.Create(ctx, l)
		}
		p = w.runWith(w.orders, store, "b", y, changefeed.Options{})
		w.fill(20)
		time.Sleep(5 * time.Minute)
		p.stop(t)
		if arrived.Load() != 1 || again.Load() != 0 {
			t.Errorf("children arrived: %d; a lease whose parts have leases was made %d times", arrived.Load(),
				again.Load())
		}
		if items, repeated := y.items(); items != 20 || repeated != 20 || w.pending() != 0 {
			t.Errorf("%d items, %d again, %d pending; want both versions of all 20, once", items, repeated, w.pending())
		}
		w.tiles()
	})
}

// A lease that is being split counts for nobody: its owner keeps its only other lease, whoever comes.
func TestALeaseThatIsBeingSplitCountsForNobody(t *testing.T) {
	for n := range 4 { // who would get which lease depends on names that are made up anew
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			inWorld(t, 2, func(t *testing.T, w *world) {
				var refused, given atomic.Int64
				var refusing atomic.Bool
				store := &hookedStore{Leases: w.leases, create: func(ctx context.Context, l feed.Record) (feed.Record,
					error,
				) {
					if l.Kind == feed.KindLease && refusing.Load() {
						refused.Add(1)
						return l, errRefused
					}
					return w.leases.Create(ctx, l)
				}}
				a := w.runWith(w.orders, store, "a", &tally{}, changefeed.Options{Hooks: changefeed.Hooks{
					Released: func(_ context.Context, _ feed.Lease, why feed.Reason) {
						if why == feed.ReasonGiven {
							given.Add(1)
						}
					},
				}})
				w.balanced(1)
				refusing.Store(true)
				w.split(0)
				w.until(time.Minute, "splitting", func() bool { return refused.Load() > 0 })
				b := w.run("b", &tally{}, changefeed.Options{})
				time.Sleep(3 * time.Minute)
				if owners := w.owners(); owners["a"] != 2 || given.Load() != 0 {
					t.Errorf("owners %v, %d leases given away, want both to stay with a", owners, given.Load())
				}
				refusing.Store(false)
				w.balanced(2)
				a.stop(t)
				b.stop(t)
			})
		})
	}
}
