package admin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// A unit with more leases than it needs says at each lease why it is not joined with a neighbour.
func TestALeaseSaysWhyItIsNotJoined(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		edit func(lease, owner *feed.Record)
		want string
	}{
		"soon":    {func(_, _ *feed.Record) {}, "is joined with a neighbour five expirations after"},
		"paused":  {property(notes.PausedProperty, notes.Outage(now)), "while it is paused"},
		"held":    {property(notes.HeldProperty, "x"), "while keys of it are held"},
		"aside":   {property(notes.AsideProperty, "x"), "while keys of it are set aside"},
		"done":    {property(notes.DoneProperty, "x"), "while keys of it are set aside"},
		"outage":  {property(notes.OutageProperty, notes.Outage(now)), "until a change of it succeeds"},
		"fails":   {func(l, _ *feed.Record) { l.Attempts = 1 }, "until a change of it succeeds"},
		"skips":   {property(notes.SkipsProperty, "x"), "after the changes that were skipped"},
		"fence":   {func(l, _ *feed.Record) { l.Fence = now }, "has come to the changes of its reset"},
		"foreign": {func(l, _ *feed.Record) { l.Epoch = "" }, "another kind of processor"},
		"made": {func(l, _ *feed.Record) {
			delete(l.Properties, notes.GenerationProperty)
		}, "another kind of processor"},
		"keeps": {func(_, o *feed.Record) {
			o.Properties = map[string]string{notes.NeverJoinProperty: "yes"}
		}, "one keeps something for its range"},
		"needed": {func(_, o *feed.Record) { o.Properties = map[string]string{notes.LeastProperty: "2"} }, ""},
	} {
		lease, owner := half(t, 0), host(now, "one")
		lease.Owner, lease.Epoch, lease.Expiration, lease.Updated = "one", "e1", time.Minute, now
		lease.Properties = map[string]string{notes.GenerationProperty: "1"}
		c.edit(&lease, &owner)
		l := listingOf(now, owner, lease, half(t, 1))
		db, err := docstore.Open("", docstore.Options{InMemory: true})
		if err != nil {
			t.Fatal(err)
		}
		source, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "orders", Paths: []string{"/id"}})
		if err != nil {
			t.Fatal(err)
		}
		l.countNeeded(t.Context(), source)
		said := strings.Join(l.Explain(nil)[0].Facts, "\n")
		if has := strings.Contains(said, "The unit has 2 leases and needs 1. "); has != (c.want != "") ||
			!strings.Contains(said, c.want) {
			t.Errorf("%s: said\n%s\nwant %q", name, said, c.want)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

// property sets a property of a lease.
func property(name, value string) func(lease, owner *feed.Record) {
	return func(lease, _ *feed.Record) { lease.Properties[name] = value }
}

// Nobody is told about joins if the partitions are not known, or if no instance works.
func TestOnlyAUnitAtWorkJoinsLeases(t *testing.T) {
	now := time.Now()
	for name, records := range map[string][]feed.Record{
		"unknown":       {host(now, "one"), half(t, 0), half(t, 1)},
		"without hosts": {half(t, 0), half(t, 1)},
	} {
		l := listingOf(now, records...)
		if name == "without hosts" {
			l.needed = 1
		}
		if said := fmt.Sprint(l.Explain(nil)[0].Facts); strings.Contains(said, "needs") {
			t.Errorf("%s: said %s", name, said)
		}
	}
}
