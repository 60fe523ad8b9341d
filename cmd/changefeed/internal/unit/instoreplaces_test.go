package unit

import (
	"slices"
	"testing"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// The leases of a unit may be in another database than the container that it reads, also beside one of the same name.
// The commands about such a unit say where that container is.
func TestAUnitWithLeasesInAnotherDatabaseIsFound(t *testing.T) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	create := func(database string, spec docstore.ContainerSpec) *docstore.Container {
		spec.Database = database
		c, err := db.CreateContainer(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, name := range []string{"shop", "ops"} {
		if _, err := db.CreateDatabase(t.Context(), name, nil); err != nil {
			t.Fatal(err)
		}
	}
	orders := docstore.ContainerSpec{ID: "orders", Paths: []string{"/city"}}
	monitored := create("shop", orders)
	create("ops", orders)
	leases := create("ops", docstore.LeaseSpec("leases"))
	store, err := docstore.NewLeases(t.Context(), leases, "mailer", monitored)
	if err != nil {
		t.Fatal(err)
	}
	all := feed.FullRange()
	lease := feed.Record{Kind: feed.KindLease, Version: 1, Token: all.String(), Range: all}
	if _, err := store.Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	found, err := FindIn(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	var places []Places
	for _, u := range found {
		places = append(places, u.Places)
	}
	if want := []Places{{Leases: "ops/leases", Monitored: "shop/orders"}}; !slices.Equal(places, want) {
		t.Fatalf("found %+v, want %+v", places, want)
	}
	const url = "http://127.0.0.1:8081/"
	want := "changefeed leases resume " + url + "ops/leases --name mailer --source " + url + "shop/orders"
	if got := places[0].Under(url, "mailer").Complete("changefeed leases resume"); got != want {
		t.Errorf("a command is %s, want %s", got, want)
	}
}
