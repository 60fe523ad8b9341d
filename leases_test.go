package changefeed_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// A deleted lease is repaired along the lines that the unit was cut at, not cut again.
func TestADeletedLeaseComesBackAsOneLease(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		const leases = 20
		p := w.run("a", &tally{}, changefeed.Options{MinLeases: leases, Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		if err := w.leases.Delete(t.Context(), w.records(feed.KindLease)[7]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if n := len(w.records(feed.KindLease)); n != leases {
			t.Errorf("%d leases, want %d", n, leases)
		}
		w.tiles()
		p.stop(t)
	})
}

// The old lease of a partition does not tell its range, neither in a listing nor in the
// feed of the leases.
func TestOldLeasesThatAreHeardOfKeepTheRangeOfTheirPartition(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		w.fill(10)
		setup := w.run("a", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		setup.stop(t)
		prefix := w.prefix()
		w.deleteLeases()
		beat := func(owner string) { // as an old host writes
			for _, p := range w.partitions() {
				id := prefix + ".." + p.ID
				_, err := w.container.Commit(t.Context(), feed.Key(id),
					[]feed.Write{{Op: feed.WriteUpsert, Body: fmt.Appendf(nil,
						`{"id":%q,"LeaseToken":%q,"Owner":%s,"ContinuationToken":"\"0\"","timestamp":%q}`, id, p.ID,
						owner, time.Now().UTC().Format(time.RFC3339Nano))}})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		beat(`"old"`)
		y := &tally{}
		b := w.run("b", y, changefeed.Options{})
		for range 3 {
			time.Sleep(5 * time.Second)
			beat(`"old"`)
		}
		beat(`null`)
		time.Sleep(5 * time.Minute)
		if items, again := y.items(); items != 10 || again != 0 || w.pending() != 0 {
			t.Errorf("%d items, %d again, %d pending; want all 10 once", items, again, w.pending())
		}
		if errs := b.errs.all(); len(errs) != 0 {
			t.Errorf("reported %v", errs)
		}
		b.stop(t)
	})
}

// A lease that another processor has made and never read begins where we first see it,
// not where we first find something.
func TestALeaseWithoutATokenBeginsAtItsFirstRead(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		setup := w.run("setup", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		setup.stop(t)
		prefix := w.prefix()
		w.deleteLeases()
		p := w.partitions()[0]
		w.raw(fmt.Sprintf(`{"id":%q,"version":0,"LeaseToken":%q,"FeedRange":{"Range":{"min":"","max":"FF"}},"Owner":null,"ContinuationToken":null,"properties":{},"Mode":"Incremental Feed"}`,
			prefix+".."+p.ID, p.ID))
		a := w.run("a", &tally{}, changefeed.Options{})
		time.Sleep(8 * time.Second)
		if owner := w.records(feed.KindLease)[0].Owner; owner != "a" {
			t.Errorf("the owner is %q, want a", owner)
		}
		a.kill(t)
		w.fill(10)
		y := &tally{}
		b := w.run("b", y, changefeed.Options{})
		time.Sleep(3 * time.Minute)
		if items, _ := y.items(); items != 10 {
			t.Errorf("got %d of 10 items written while the unit was down", items)
		}
		b.stop(t)
	})
}

// Two old leases whose partitions have been merged are for the same range, at different
// positions: to skip nothing, the one that is behind is continued.
func TestOfTwoOldLeasesOfMergedPartitionsTheOneBehindCounts(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		setup := w.run("setup", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		setup.stop(t)
		prefix := w.prefix()
		w.deleteLeases()
		p := w.partitions()
		w.fill(20)
		head := w.put("oslo", "last", 1)
		w.raw(fmt.Sprintf(`{"id":%q,"LeaseToken":%q,"Owner":null,"ContinuationToken":"\"%d\""}`, prefix+".."+p[0].ID,
			p[0].ID, head))
		w.raw(fmt.Sprintf(`{"id":%q,"LeaseToken":%q,"Owner":null,"ContinuationToken":"\"0\""}`, prefix+".."+p[1].ID,
			p[1].ID))
		owed := 0
		for page, err := range changefeed.Pull(t.Context(), w.orders, p[1].Range,
			feed.Position{Start: feed.FromBeginning()}, changefeed.PullOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			owed += len(page.Changes)
		}
		w.merge(0)
		y := &tally{}
		a := w.run("a", y, changefeed.Options{})
		time.Sleep(5 * time.Minute)
		if items, _ := y.items(); owed == 0 || items < owed {
			t.Errorf("got %d items of the %d behind the position of the second lease", items, owed)
		}
		if a.errs.find(feed.ErrOverlap) == nil {
			t.Error("the other lease was not reported")
		}
		a.stop(t)
	})
}

// A listing is not of one moment. One that shows a parent beside its children met a split.
func TestAListingThatRacesWithASplitReportsNothing(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		store := &hookedStore{Leases: w.leases}
		var parent atomic.Pointer[feed.Record]
		var raced atomic.Bool
		store.list = func(ctx context.Context) ([]feed.Record, time.Time, error) {
			records, now, err := w.leases.List(ctx)
			if l := parent.Load(); l != nil && !raced.Swap(true) {
				records = append(records, *l)
			}
			return records, now, err
		}
		a := w.runWith(w.orders, store, "a", &tally{}, changefeed.Options{})
		w.balanced(1)
		before := w.records(feed.KindLease)[0]
		w.split(0)
		w.until(time.Minute, "split", func() bool { return w.owners()["a"] == 2 })
		parent.Store(&before)
		time.Sleep(10 * time.Minute)
		if !raced.Load() {
			t.Error("nothing was listed")
		}
		for _, err := range a.errs.all() {
			t.Errorf("reported: %v", err)
		}
		a.stop(t)
	})
}

// A processor that knows nothing of ours may just take a lease. The follower tells, and
// then two should not work on it until the next renewal.
func TestALeaseTakenByAnotherProcessorIsLetGoSoon(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		var ended time.Time
		h := feed.HandlerFunc(func(ctx context.Context, _ *feed.Batch) error {
			<-ctx.Done()
			if ended.IsZero() {
				ended = time.Now()
			}
			return context.Cause(ctx)
		})
		a := w.run("a", h, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(18 * time.Second)
		w.put("oslo", "1", 1)
		time.Sleep(time.Second)
		l := w.records(feed.KindLease)[0]
		l.Owner, l.Epoch, l.Expiration = "net-1", "", 0
		if _, err := w.leases.Update(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		taken := time.Now()
		time.Sleep(time.Minute)
		synctest.Wait()
		if took := ended.Sub(taken); ended.IsZero() || took < 0 || took > 5*time.Second {
			t.Errorf("the handler's context ended %v after the lease had another owner, want soon after that", took)
		}
		a.stop(t)
	})
}

// What a lease that is splitting has been replaced in already counts for its children.
func TestTheEstimateCountsNothingTwiceWhileASplitIsUnfinished(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		const steps = 3 // all but the deletion of the parent
		p := w.runToCrash(steps, "a", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
		w.fill(20)
		time.Sleep(30 * time.Second)
		w.split(0)
		<-p.done
		if n := len(w.records(feed.KindLease)); n != 3 {
			t.Errorf("%d leases, want the parent and two children", n)
		}
		w.fill(10)
		if n := w.pending(); n != 10 {
			t.Errorf("%d pending, want 10", n)
		}
	})
}

// Another processor keeps the fence that one of ours has left in a lease.
func TestAForeignOwnerWithAnOldFenceGivesItsShare(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, w *world) {
		setup := w.run("setup", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Minute)
		setup.stop(t)
		for _, l := range w.records(feed.KindLease) {
			l.Owner, l.Fence = "net-1", time.Now().Add(30*time.Second)
			if _, err := w.leases.Update(t.Context(), l); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { w.dotnet(ctx, "net-1"); close(ended) }()
		b := w.run("b", &tally{}, changefeed.Options{})
		time.Sleep(5 * time.Minute)
		if owners := w.owners(); owners["b"] != 2 || owners["net-1"] != 2 {
			t.Errorf("owners %v after 5 minutes, want two leases each", owners)
		}
		cancel()
		<-ended
		b.stop(t)
	})
}

// A process dies in the middle of a split, and the child that it made splits too before
// anybody goes on.
func TestAChildThatSplitsBeforeItsParentIsGoneLosesNothing(t *testing.T) {
	for _, mode := range []feed.Mode{feed.LatestVersion, feed.AllVersionsAndDeletes} {
		for left := 2; left <= 3; left++ {
			t.Run(fmt.Sprintf("%v after %d steps", mode, left), func(t *testing.T) {
				spec := docstore.ContainerSpec{Ranges: 1}
				if mode == feed.AllVersionsAndDeletes {
					spec.Retention = 24 * time.Hour
				}
				inWorldOf(t, spec, func(t *testing.T, w *world) {
					y := &tally{}
					a := w.runToCrash(left, "a", y, changefeed.Options{Mode: mode})
					time.Sleep(time.Second)
					w.fill(20)
					time.Sleep(30 * time.Second)
					w.split(0)
					<-a.done
					w.split(0)
					w.fill(20)
					time.Sleep(3 * time.Minute)
					b := w.runWith(w.orders, farAway(w.leases, 20*time.Millisecond), "b", y,
						changefeed.Options{Mode: mode})
					time.Sleep(5 * time.Minute)
					if err := b.errs.find(feed.ErrHole); err != nil {
						t.Errorf("reported %v", err)
					}
					y.ordered(t)
					if items, again := y.items(); items != 20 || again != 20 {
						t.Errorf("%d items, %d again; want both versions of all 20, once each", items, again)
					}
					w.tiles()
					b.stop(t)
				})
			})
		}
	}
}

// The lease that was worked on is continued, not one for the same range that was found
// beside it, even when nobody owns either.
func TestTheSpareOfALeaseStaysIgnored(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		a := w.run("a", &tally{}, changefeed.Options{Start: feed.FromBeginning()})
		time.Sleep(time.Second)
		p := w.partitions()[1]
		w.raw(fmt.Sprintf(`{"id":%q,"version":0,"LeaseToken":"1","FeedRange":{"Range":{"min":%q,"max":%q}},"Owner":null,"ContinuationToken":null,"properties":{}}`,
			w.prefix()+"..1", p.Range.Min, p.Range.Max))
		time.Sleep(5 * time.Minute)
		a.stop(t)
		w.fill(20)
		y := &tally{}
		b := w.run("b", y, changefeed.Options{})
		time.Sleep(5 * time.Minute)
		if items, _ := y.items(); items != 20 {
			t.Errorf("got %d of 20 items; reported %v", items, b.errs.all())
		}
		b.stop(t)
	})
}
