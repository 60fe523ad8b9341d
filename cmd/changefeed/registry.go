package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/docstore"
)

// A registry is a lease container, and the containers whose leases may be in it.
type registry struct {
	leases    *container
	monitored []*container
}

// neighbours are the containers whose leases may be in this one: those of the same
// store or, in an account, of the same database.
func (o *opener) neighbours(ctx context.Context, leases *container) (all []*container, err error) {
	if leases.local != nil {
		for _, c := range o.stores[filepath.Clean(leases.address.dir)].Containers() {
			all = append(all, stored(c, address{dir: leases.address.dir, database: c.Database(), container: c.ID()}))
		}
		return all, nil
	}
	var list struct {
		DocumentCollections []struct{ ID string }
	}
	if err := leases.account.call(ctx, http.MethodGet, []string{"dbs", leases.address.database}, "colls", nil, &list); err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	for _, c := range list.DocumentCollections {
		found, err := o.open(ctx, leases.address.beside(c.ID))
		if err != nil {
			return nil, err
		}
		all = append(all, found)
	}
	return all, nil
}

// A prefixedStore tells what the ids of its documents begin with.
type prefixedStore interface {
	changefeed.LeaseStore
	Prefix() string
}

// leaseStore is the lease store of a processor.
func leaseStore(ctx context.Context, leases *container, processor string, monitored *container) (prefixedStore, error) {
	switch {
	case leases.local != nil && monitored.local != nil:
		return docstore.NewLeases(ctx, leases.local, processor, monitored.local)
	case leases.remote != nil && monitored.remote != nil:
		return cosmos.OpenLeases(ctx, leases.remote, processor, monitored.remote, cosmos.LeaseOptions{})
	}
	return nil, usageError{fmt.Errorf("--leases is %s and --source is %s: want both in stores, or both in accounts", leases.address.given, monitored.address.given)}
}
