package changefeed_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/records"
	"github.com/millrace/changefeed/internal/proof/detector"
)

// keepAll gives the unit a lease container that removes no record by itself.
func (w *world) keepAll() {
	w.container = w.create(docstore.ContainerSpec{ID: "kept", Paths: []string{"/id"}})
	w.leases = w.unit("unit")
}

// surplus finds the surplus of the unit, as "kind token".
func (w *world) surplus() (found []admin.Surplus, names []string) {
	w.t.Helper()
	found, err := w.admin(admin.Options{}).Surplus(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range found {
		name := string(s.Kind) + " " + s.Token
		if s.Mark {
			name = "mark of " + name
		}
		names = append(names, name)
	}
	return found, names
}

// cleanUp removes surplus, and fails the test if something is left.
func (w *world) cleanUp(found []admin.Surplus) {
	w.t.Helper()
	done, err := w.admin(admin.Options{By: "ada"}).CleanUp(w.t.Context(), found)
	if err != nil {
		w.t.Error(err)
	}
	for _, s := range done {
		if !s.Done || s.Left != "" {
			w.t.Errorf("%s %s is left: %s", s.Kind, s.Token, s.Left)
		}
	}
}

// The presence of an instance that has died is removed when it is long gone, and not before.
func TestThePresenceOfDeadInstancesIsSurplus(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.keepAll()
		p := w.run("a", &tally{}, changefeed.Options{})
		time.Sleep(time.Minute)
		p.kill(t)
		time.Sleep(9 * time.Minute)
		if _, names := w.surplus(); len(names) != 0 {
			t.Errorf("after 9 minutes %q are surplus", names)
		}
		time.Sleep(2 * time.Minute)
		found, names := w.surplus()
		if len(names) != 1 || found[0].Kind != feed.KindHost || !strings.Contains(found[0].Why, "no life for 11m") {
			t.Fatalf("after 11 minutes %q are surplus: %+v", names, found)
		}
		dry, err := w.admin(admin.Options{DryRun: true}).CleanUp(t.Context(), found)
		if err != nil || len(dry) != 1 || dry[0].Done || len(w.records(feed.KindHost)) != 1 || len(w.history()) != 0 {
			t.Errorf("a dry run: %+v, %v, hosts %v", dry, err, w.records(feed.KindHost))
		}
		w.cleanUp(found)
		if hosts := w.records(feed.KindHost); len(hosts) != 0 {
			t.Errorf("the hosts are %v", hosts)
		}
		entries := w.history()
		if len(entries) != 1 || entries[0].Action != admin.ActionCleanUp || entries[0].Done != 1 ||
			entries[0].By != "ada" {
			t.Errorf("the history is %+v, want a clean-up of one record", entries)
		}
		if _, names := w.surplus(); len(names) != 0 {
			t.Errorf("after the clean-up %q are surplus", names)
		}
		w.cleanUp(nil)
	})
}

// Nothing of a unit that works is surplus, for a day.
func TestNothingOfAUnitThatWorksIsSurplus(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		w.keepAll()
		y := &tally{}
		o := changefeed.Options{Start: feed.FromBeginning()}
		a, b := w.run("a", y, o), w.run("b", y, o)
		time.Sleep(time.Minute)
		one := w.records(feed.KindLease)[0].Range
		operate(t, func(ctx context.Context) ([]admin.Step, error) {
			return w.admin(admin.Options{}).Pause(ctx, admin.Of(one))
		})
		for range detector.Rounds(24, 4) {
			w.fill(2)
			time.Sleep(time.Hour)
			if found, names := w.surplus(); len(names) != 0 {
				t.Fatalf("%q are surplus: %+v", names, found)
			}
		}
		a.stop(t)
		b.stop(t)
	})
}

// A request is surplus when its time is over: one that was served or withdrawn, and one whose caller has died.
func TestRequestsWhoseTimeIsOverAreSurplus(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.keepAll()
		w.ran(&tally{}, changefeed.Options{})
		unit := w.admin(admin.Options{})
		operate(t, func(ctx context.Context) ([]admin.Step, error) { return unit.Pause(ctx, admin.All()) })
		operate(t, func(ctx context.Context) ([]admin.Step, error) { return unit.Resume(ctx, admin.All()) })
		later := feed.Record{Kind: feed.KindRequest, Token: "later", TTL: time.Minute, State: "paused"}
		died := feed.Record{
			Kind: feed.KindRequest, Token: "died", TTL: 20 * time.Minute,
			Properties: notes.Request{Action: notes.Release, EPK: "05", Key: `["x"]`}.Properties(nil),
		}
		for _, r := range []feed.Record{later, died} {
			if _, err := w.leases.Create(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		operate(t, func(ctx context.Context) ([]admin.Step, error) {
			return unit.Pause(ctx, admin.Of(feed.FullRange()))
		})
		time.Sleep(10 * time.Minute)
		operate(t, func(ctx context.Context) ([]admin.Step, error) { return unit.Resume(ctx, admin.All()) })
		time.Sleep(notes.OutcomeTTL - time.Second)
		_, names := w.surplus()
		if !slices.Contains(names, "request died") || slices.Contains(names, "request pause.-FF") {
			t.Errorf("%q are surplus, want the request whose caller has died, and not the withdrawn one", names)
		}
		time.Sleep(time.Minute)
		found, names := w.surplus()
		if !slices.Contains(names, "request pause.-FF") || slices.Contains(names, "request later") {
			t.Errorf("%q are surplus, want the withdrawn one too, and not the one of a later version", names)
		}
		w.cleanUp(found)
		if left := w.records(feed.KindRequest); len(left) != 1 || left[0].Token != "later" {
			t.Errorf("the requests are %+v", left)
		}
	})
}

// A lease that was replaced, and could not be deleted, is surplus when others hold all of its keys.
func TestReplacedLeasesAreSurplus(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{Start: feed.FromBeginning()})
		store := &hookedStore{Leases: w.leases, delete: func(context.Context, feed.Record) error {
			return feed.ErrForbidden
		}}
		w.split(0)
		p := w.runWith(w.orders, store, "b", &tally{}, changefeed.Options{})
		time.Sleep(5 * time.Minute)
		p.stop(t)
		if _, names := w.surplus(); slices.Contains(names, "lease -FF") {
			t.Errorf("after 5 minutes %q are surplus", names)
		}
		time.Sleep(10 * time.Minute)
		found, names := w.surplus()
		if !slices.Equal(names, []string{"lease -FF"}) {
			t.Fatalf("%q are surplus, want the lease that was split", names)
		}
		forbidden, err := admin.Open(w.orders, store, admin.Options{}).CleanUp(t.Context(), found)
		if err != nil || forbidden[0].Done || forbidden[0].Left != "the right to delete is missing" {
			t.Errorf("without the right to delete: %+v, %v", forbidden, err)
		}
		w.cleanUp(found)
		if leases := w.records(feed.KindLease); len(leases) != 2 {
			t.Errorf("%d leases, want those of the parts", len(leases))
		}
	})
}

// A replaced lease stays if its keys have no other lease: it knows where a lease for the hole has to begin.
func TestAReplacedLeaseOfAHoleIsNotSurplus(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{})
		lease := w.records(feed.KindLease)[0]
		lease.State = feed.StateRetired
		if _, err := w.leases.Update(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if _, names := w.surplus(); len(names) != 0 {
			t.Errorf("%q are surplus", names)
		}
	})
}

// The mark of a pause that is over is removed if no instance runs, and the mark of a pause that goes on never.
func TestOldMarksAreSurplus(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		w.ran(&tally{}, changefeed.Options{})
		mark := func() feed.Record {
			return w.edit(func(l *feed.Record) { records.MarkPaused(l, time.Now()) })
		}
		mark()
		found, names := w.surplus()
		if !slices.Equal(names, []string{"mark of lease -FF"}) {
			t.Fatalf("%q are surplus", names)
		}
		// Somebody pauses the unit after the first listing.
		unit := w.admin(admin.Options{})
		c := notes.Control{Action: notes.Pause, Max: "FF"}
		request := feed.Record{Kind: feed.KindRequest, Token: c.Token(), Properties: c.Properties(nil)}
		request, err := w.leases.Create(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		done, err := unit.CleanUp(t.Context(), found)
		if err != nil || done[0].Done || done[0].Left == "" || !records.IsMarkedPaused(w.records(feed.KindLease)[0]) {
			t.Errorf("the mark of a pause that has begun meanwhile: %+v, %v", done, err)
		}
		if err := w.leases.Delete(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		p := w.run("b", &tally{}, changefeed.Options{})
		// the first has stopped
		w.until(time.Minute, "shown", func() bool { return len(w.records(feed.KindHost)) == 2 })
		if _, names := w.surplus(); len(names) != 0 || !records.IsMarkedPaused(w.records(feed.KindLease)[0]) {
			t.Errorf("while an instance runs %q are surplus, or the mark is gone", names)
		}
		p.stop(t)
		mark()
		found, _ = w.surplus()
		w.cleanUp(found)
		if records.IsMarkedPaused(w.records(feed.KindLease)[0]) {
			t.Error("the mark is left")
		}
	})
}

// What was written after the listing is left, and a unit that does not exist is an error.
func TestWhatWasWrittenMeanwhileIsLeft(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, w *world) {
		_, err := w.admin(admin.Options{}).Surplus(t.Context())
		if !errors.Is(err, feed.ErrNotFound) {
			t.Errorf("the surplus of a unit that does not exist: %v, want %v", err, feed.ErrNotFound)
		}
		w.keepAll()
		w.ran(&tally{}, changefeed.Options{})
		time.Sleep(time.Hour)
		found, names := w.surplus()
		if len(names) != 1 {
			t.Fatalf("%q are surplus, want a host", names)
		}
		// The host is written between the second listing and the delete.
		store := &hookedStore{Leases: w.leases, delete: func(ctx context.Context, r feed.Record) error {
			if _, err := w.leases.Update(ctx, r); err != nil {
				t.Error(err)
			}
			return w.leases.Delete(ctx, r)
		}}
		done, err := admin.Open(w.orders, store, admin.Options{}).CleanUp(t.Context(), found)
		if err != nil || done[0].Done || !strings.Contains(done[0].Left, "meanwhile") || len(w.history()) != 0 {
			t.Errorf("got %+v, %v", done, err)
		}
		store.delete = func(context.Context, feed.Record) error { return errCutOff }
		time.Sleep(time.Hour)
		found, _ = w.surplus()
		done, err = admin.Open(w.orders, store, admin.Options{}).CleanUp(t.Context(), found)
		if !errors.Is(err, errCutOff) || done[0].Done || len(w.history()) != 1 {
			t.Errorf("a store that fails: %+v, %v, history %+v", done, err, w.history())
		}
	})
}
