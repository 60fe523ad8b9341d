package ui

import (
	"slices"
	"testing"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// Two units of one name on one container, in two lease containers, are two units for the dashboard.
func TestUnitsOfOneNameAreToldApart(t *testing.T) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	create := func(spec docstore.ContainerSpec) *docstore.Container {
		c, err := db.CreateContainer(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	orders := create(docstore.ContainerSpec{ID: "orders", Paths: []string{"/city"}})
	add := func(leases *docstore.Container, name string) {
		store, err := docstore.NewLeases(t.Context(), leases, name, orders)
		if err != nil {
			t.Fatal(err)
		}
		all := feed.FullRange()
		lease := feed.Record{Kind: feed.KindLease, Version: 1, Token: all.String(), Range: all}
		if _, err := store.Create(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
	}
	before, now := create(docstore.LeaseSpec("before")), create(docstore.LeaseSpec("now"))
	add(before, "mailer")
	add(now, "mailer")
	add(now, "audit")
	var s Store
	s.db.Store(db)
	found, err := s.find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	s.ServedAt("http://127.0.0.1:8081/")
	for _, u := range found {
		names = append(names, u.Name)
		if got := u.Complete("changefeed leases resume"); u.Name == "audit" && got != "changefeed leases resume" {
			t.Errorf("before the server serves, a command is %q", got)
		}
	}
	if found, err = s.find(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, u := range found {
		want := "changefeed leases resume http://127.0.0.1:8081/default/now --name audit"
		if got := u.Complete("changefeed leases resume"); u.Name == "audit" && got != want {
			t.Errorf("a command is %q, want %q", got, want)
		}
	}
	slices.Sort(names)
	if want := []string{"audit", "mailer in before", "mailer in now"}; !slices.Equal(names, want) {
		t.Errorf("found %q, want %q", names, want)
	}
}
