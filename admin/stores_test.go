package admin

import (
	"testing"

	"github.com/millrace/changefeed/docstore"
)

// stores are a store with a container and a lease container.
func stores(t *testing.T) (*docstore.Container, *docstore.Leases) {
	t.Helper()
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	orders, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "orders", Paths: []string{"/pk"}})
	if err != nil {
		t.Fatal(err)
	}
	container, err := db.CreateContainer(t.Context(), docstore.LeaseSpec("leases"))
	if err != nil {
		t.Fatal(err)
	}
	leases, err := docstore.NewLeases(t.Context(), container, "mailer", orders)
	if err != nil {
		t.Fatal(err)
	}
	return orders, leases
}
