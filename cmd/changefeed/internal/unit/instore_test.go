package unit

import (
	"fmt"
	"slices"
	"testing"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// The units of a store are found by their documents, each once and on its container, whatever else the containers have.
// A container with many documents is not searched.
func TestUnitsAreFoundInAStore(t *testing.T) {
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
	users := create(docstore.ContainerSpec{ID: "users", Paths: []string{"/id"}})
	leases, other := create(docstore.LeaseSpec("leases")), create(docstore.LeaseSpec("other"))
	for _, u := range []struct {
		in   *docstore.Container
		name string
		of   *docstore.Container
	}{{leases, "mailer", orders}, {leases, "audit", orders}, {other, "mailer", users}, {other, "mailer", orders}} {
		store, err := docstore.NewLeases(t.Context(), u.in, u.name, u.of)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []feed.Range{{Min: "", Max: "20"}, {Min: "20", Max: "FF"}} {
			lease := feed.Record{Kind: feed.KindLease, Version: 1, Token: r.String(), Range: r}
			if _, err := store.Create(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
		}
	}
	upsert := func(c *docstore.Container, id string) {
		write := feed.Write{Op: feed.WriteUpsert, Body: fmt.Appendf(nil, `{"id":%q}`, id)}
		if _, err := c.Commit(t.Context(), feed.Key(id), []feed.Write{write}); err != nil {
			t.Fatal(err)
		}
	}
	upsert(users, "ada")
	upsert(leases, "note") // no record of a unit
	find := func() (names []string) {
		found, err := FindIn(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range found {
			records, _, err := u.Leases.List(t.Context())
			if err != nil || len(records) != 2 || u.Source == nil {
				t.Errorf("%s on %s: %d records, %v", u.Name, u.Container, len(records), err)
			}
			names = append(names, u.Name+" on "+u.Container)
		}
		slices.Sort(names)
		return names
	}
	places := func(name, container string) (all []string) {
		found, err := FindIn(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range found {
			if u.Name == name && u.Container == container {
				all = append(all, u.Places.Leases+" of "+u.Places.Monitored+" with "+u.Places.Letters)
				if (u.Letters == nil) != (u.Places.Letters == "") {
					t.Errorf("the letters of %s are %v, at %q", u.Name, u.Letters, u.Places.Letters)
				}
			}
		}
		return all
	}
	under := Places{"shop/leases", "shop/orders", "shop/letters"}.Under("http://127.0.0.1:8081/", "mailer")
	for advice, want := range map[string]string{
		"changefeed leases resume": "changefeed leases resume http://127.0.0.1:8081/shop/leases --name mailer",
		"changefeed dlq list":      "changefeed dlq list http://127.0.0.1:8081/shop/letters --name mailer",
	} {
		if got := under.Complete(advice); got != want {
			t.Errorf("%s is %s, want %s", advice, got, want)
		}
	}
	// Two units of one name have the container other, and mailer on orders is a unit in each container of leases.
	want := []string{"audit on orders", "mailer on orders", "mailer on orders", "mailer on users"}
	if got := find(); !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	const audit = "default/leases of default/orders with "
	isAt := func(when, want string) {
		if got := places("audit", "orders"); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: audit is at %q, want %s", when, got, want)
		}
	}
	isAt("without letters", audit)
	create(docstore.ContainerSpec{ID: "letters", Paths: []string{LettersPath}})
	isAt("with a container for letters", audit+"default/letters")
	create(docstore.ContainerSpec{ID: "more", Paths: []string{LettersPath}})
	isAt("with two such containers", audit)
	for n := range mostRecords {
		upsert(leases, fmt.Sprint(n))
	}
	if got := find(); !slices.Equal(got, []string{"mailer on orders", "mailer on users"}) {
		t.Errorf("in a container with many documents: found %q", got)
	}
}
