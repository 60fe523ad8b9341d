package unit

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/docstore"
)

// Of the containers that a unit may read, the one is found on which it has leases.
func TestAUnitIsFoundByItsLeases(t *testing.T) {
	o := newOffice(t)
	bills, err := o.db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "bills", Paths: []string{"/id"}})
	if err != nil {
		t.Fatal(err)
	}
	stored := func(c *docstore.Container) *place.Container {
		return place.Stored(c, place.Address{Container: c.ID(), Database: c.Database()})
	}
	leases, first, second := stored(o.leases), stored(o.monitored), stored(bills)
	orders := []*place.Container{first, second}
	if _, _, err := Find(t.Context(), leases, orders, "mailer"); !errors.As(err, new(usage.Error)) ||
		!strings.HasPrefix(err.Error(), "--name is mailer: there is no such unit in leases") {
		t.Errorf("a unit without leases: %v", err)
	}
	o.lease(t, "-FF", nil)
	for _, among := range [][]*place.Container{{first, second}, {second, first}, {first}} {
		if c, store, err := Find(t.Context(), leases, among, "mailer"); c != first || store == nil || err != nil {
			t.Errorf("found %v, %v, %v", c, store, err)
		}
	}
	if o.store, err = docstore.NewLeases(t.Context(), o.leases, "mailer", bills); err != nil {
		t.Fatal(err)
	}
	o.lease(t, "-FF", nil)
	if _, _, err := Find(t.Context(), leases, orders, "mailer"); !errors.As(err, new(usage.Error)) ||
		!strings.Contains(err.Error(), "units of this name read orders and bills: want --source") {
		t.Errorf("two units of the name: %v", err)
	}
	if c, _, err := Find(t.Context(), leases, orders[1:], "mailer"); c != second || err != nil {
		t.Errorf("the one that is meant: %v, %v", c, err)
	}
}

// No store has leases for a container of an account, nor the other way round.
func TestLeasesAndWhatTheyAreForAreInOnePlace(t *testing.T) {
	o := newOffice(t)
	given := place.Address{Given: "cosmos:a/b", Database: "a", Container: "b"}
	local := place.Stored(o.leases, place.Address{Dir: "d", Database: "default", Container: "leases"}) // by --db
	remote := &place.Container{Address: given, Remote: new(cosmos.Container)}
	for _, c := range [][2]*place.Container{{local, remote}, {remote, local}} {
		if _, err := OpenStore(t.Context(), c[0], "mailer", c[1]); !errors.As(err, new(usage.Error)) ||
			!strings.Contains(err.Error(), "want both in stores, or both in accounts") ||
			!strings.Contains(err.Error(), c[0].Address.String()) ||
			!strings.Contains(err.Error(), c[1].Address.String()) {
			t.Errorf("leases in %s of %s: %v", c[0].Address, c[1].Address, err)
		}
	}
}
