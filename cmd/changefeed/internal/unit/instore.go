package unit

import (
	"context"
	"slices"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// Units of a store that this process has open: a server shows the units of its clients.

// Found is a unit of a store.
type Found struct {
	Name, Container string // as those of Unit
	Source          feed.Source
	Leases          feed.LeaseStore
}

// mostRecords is how many documents a container may have that is searched for leases. A container with more is one of a
// user, which would take long to read.
const mostRecords = 20_000

// FindIn finds the units in the containers of a store that may have leases.
func FindIn(ctx context.Context, db *docstore.DB) (found []Found, err error) {
	all := db.Containers()
	for _, c := range all {
		leases := place.Stored(c, place.Address{Database: c.Database(), Container: c.ID()})
		if checkLeaseKey(leases) != nil {
			continue
		}
		var monitored []*place.Container
		for _, other := range all {
			if other.Database() == c.Database() {
				monitored = append(monitored, place.Stored(other, place.Address{
					Database:  other.Database(),
					Container: other.ID(),
				}))
			}
		}
		units, err := findUnits(ctx, registry{leases, monitored})
		if err != nil {
			return nil, err
		}
		found = append(found, units...)
	}
	return found, nil
}

// findUnits finds the units of a container.
func findUnits(ctx context.Context, r registry) (found []Found, err error) {
	suffixes, err := r.listSuffixes(ctx)
	if err != nil {
		return nil, err
	}
	documents, err := someOf(ctx, r.leases.Source, mostRecords)
	if err != nil || len(documents) > mostRecords {
		return nil, err
	}
	for _, doc := range documents {
		name, monitored := unitOf(suffixes, doc.ID)
		if name == "" || slices.ContainsFunc(found, func(f Found) bool {
			return f.Name == name && f.Container == monitored.Address.Name()
		}) {
			continue
		}
		store, err := OpenStore(ctx, r.leases, name, monitored)
		if err != nil {
			return nil, err
		}
		found = append(found, Found{name, monitored.Address.Name(), monitored.Source, store})
	}
	return found, nil
}
