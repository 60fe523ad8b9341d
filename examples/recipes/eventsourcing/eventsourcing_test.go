package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/examples/recipes/internal/fleettest"
	"github.com/millrace/changefeed/feed"
)

const kills = 20

func TestMain(m *testing.M) { fleettest.RunAs(m, main) }

// bank is an account with streams and views.
type bank struct {
	*cosmostest.Server
	*testing.T
	events, views *docstore.Container
}

func newBank(t *testing.T) *bank {
	t.Helper()
	b := &bank{Server: cosmostest.NewTestServer(t), T: t}
	if _, err := b.DB.CreateDatabase(t.Context(), "bank", nil); err != nil {
		t.Fatal(err)
	}
	for id, c := range map[string]**docstore.Container{"events": &b.events, "views": &b.views} {
		var err error
		if *c, err = b.DB.CreateContainer(t.Context(), docstore.ContainerSpec{
			Database: "bank", ID: id, Paths: []string{"/stream"}, Ranges: 4,
		}); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// unit returns the leases of a projection, when a process has made them.
func (b *bank) unit(name string) *docstore.Leases {
	b.Helper()
	var container *docstore.Container
	fleettest.Eventually(b.T, func() (err error) {
		container, err = b.DB.Container("bank/leases")
		return err
	})
	leases, err := docstore.NewLeases(b.Context(), container, name, b.events)
	if err != nil {
		b.Fatal(err)
	}
	return leases
}

// handled waits until a projection has what is there.
func (b *bank) handled(name string) {
	b.Helper()
	ctx, stop := context.WithTimeout(b.Context(), 40*time.Second)
	defer stop()
	for { // the leases of a new unit are found when they are there
		err := changefeed.CaughtUp(ctx, b.events, b.unit(name))
		if err == nil {
			return
		}
		if !errors.Is(err, feed.ErrNotFound) {
			b.Fatalf("%s: %v", name, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// items reads the items of a container by stream and id.
func (b *bank) items(c *docstore.Container) map[string]map[string]item {
	b.Helper()
	all := map[string]map[string]item{}
	for stored, err := range c.Items(b.Context(), feed.FullRange(), "") {
		var i item
		if err = errors.Join(err, json.Unmarshal(stored.Body, &i)); err != nil {
			b.Fatal(err)
		}
		if all[i.Stream] == nil {
			all[i.Stream] = map[string]item{}
		}
		all[i.Stream][i.ID] = i
	}
	return all
}

// check checks each stream, and compares the views of a projection with the sums of the events.
func (b *bank) check(projection string) (events int) {
	b.Helper()
	views := b.items(b.views)
	for stream, items := range b.items(b.events) {
		newest, sum := items[head].Version, 0
		if len(items) != newest+1 {
			b.Errorf("%s has %d items, want %d events and the head", stream, len(items), newest)
		}
		for n := range newest {
			e, isThere := items[fmt.Sprint(n+1)]
			if !isThere || e.Version != n+1 {
				b.Errorf("%s: event %d is %+v", stream, n+1, e)
			}
			sum += e.Amount
		}
		if v := views[stream][projection]; v.Version != newest || v.Amount != sum {
			b.Errorf("%s of %s is %+v, want the sum %d at version %d", projection, stream, v, sum, newest)
		}
		events += newest
	}
	return events
}

// Processes that append and project are killed, beside a writer of the test, while the projection is reset. In the end
// no stream has a hole, and each view is the sum of the events.
func TestTheViewsAreTheSumsOfTheEvents(t *testing.T) {
	b := newBank(t)
	n, conflicts := 0, 0
	write := func(ctx context.Context) error {
		n++
		stream := fmt.Sprint("account-", n%5)
		newest, _, err := read(ctx, b.events, stream, head)
		if err == nil {
			err = appendTo(ctx, b.events, stream, newest.Version, n, -1, 7)
		}
		if errors.Is(err, feed.ErrConflict) {
			conflicts++
			err = nil
		}
		return err
	}
	all := fleettest.Against(b.Server, "bank/events", t.TempDir(), "-every", "50ms")
	all.KillMany(t, kills, write, func(kill int) {
		if kill%8 == 7 {
			b.spoil()
			b.reset()
		}
	})
	all.Stop(t)
	events := b.project("balances")
	b.project("copies") // a second projection beside the first
	t.Logf("%d events, %d conflicts of the writer", events, conflicts)
}

// project runs a process that only projects, until its views have all events, and checks them.
func (b *bank) project(projection string) (events int) {
	b.Helper()
	f := fleettest.Against(b.Server, "bank/events", b.TempDir(), "-every", "0", "-projection", projection)
	f.Start(b.T)
	b.handled(projection)
	f.Stop(b.T)
	return b.check(projection)
}

// The same without a server: a process that appends and projects is killed on its local store.
func TestTheViewsOfALocalStoreAreTheSumsAfterKills(t *testing.T) {
	f, db := fleettest.KillLocally(t, t.TempDir(), "eventsourcing-data", "bank/events", []string{"-every", "5ms"},
		"-every", "0")
	b := &bank{Server: &cosmostest.Server{DB: db}, T: t}
	for id, c := range map[string]**docstore.Container{"bank/events": &b.events, "bank/views": &b.views} {
		var err error
		if *c, err = db.Container(id); err != nil {
			t.Fatal(err)
		}
	}
	b.handled("balances")
	f.Stop(t)
	if b.check("balances") == 0 {
		t.Error("there is no event")
	}
}

// spoil gives each view a wrong sum, as a defect of an earlier version would.
func (b *bank) spoil() {
	b.Helper()
	for stream, views := range b.items(b.views) {
		for id := range views {
			if _, err := b.views.Patch(b.Context(), feed.Key(stream), id, []feed.PatchOp{
				{Op: "incr", Path: "/amount", Value: json.RawMessage("1000000")},
			}, ""); err != nil {
				b.Error(err)
			}
		}
	}
}

// reset has the projection begin anew.
func (b *bank) reset() {
	b.Helper()
	ctx, stop := context.WithTimeout(b.Context(), 20*time.Second)
	defer stop()
	unit := admin.Open(b.events, b.unit("balances"), admin.Options{By: "test", Reason: "the sums were wrong"})
	if _, err := unit.Reset(ctx, admin.All(), feed.FromBeginning()); err != nil {
		b.Error(err)
	}
}

// A writer with a wrong expectation writes nothing.
func TestAnExpectedVersionIsRight(t *testing.T) {
	b := newBank(t)
	for _, c := range []struct {
		expected int
		want     error
	}{{0, nil}, {0, feed.ErrConflict}, {1, feed.ErrConflict}, {3, feed.ErrNotFound}, {2, nil}, {4, nil}} {
		if err := appendTo(t.Context(), b.events, "s", c.expected, 1, 1); !errors.Is(err, c.want) {
			t.Errorf("expected version %d: %v, want %v", c.expected, err, c.want)
		}
	}
	if n := b.events.Count(); n != 7 {
		t.Errorf("%d items, want 6 events and the head", n)
	}
}
