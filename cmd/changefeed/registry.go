package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/leasedoc"
	"github.com/millrace/changefeed/internal/usage"
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
	Searched() []string
}

// leaseStore is the lease store of a processor.
func leaseStore(ctx context.Context, leases *container, processor string, monitored *container) (prefixedStore, error) {
	switch {
	case leases.local != nil && monitored.local != nil:
		return docstore.NewLeases(ctx, leases.local, processor, monitored.local)
	case leases.remote != nil && monitored.remote != nil:
		return cosmos.OpenLeases(ctx, leases.remote, processor, monitored.remote, cosmos.LeaseOptions{})
	}
	return nil, usage.Error{Err: fmt.Errorf("--leases is %s and --source is %s: want both in stores, or both in accounts", leases.address.given, monitored.address.given)}
}

// A suffix is what the ids of the units on a container have after the processor's name,
// up to the dot.
type suffix struct {
	text      string
	monitored *container
}

// anybody is the name of a processor that is only asked for what is the same for all.
const anybody = "x"

// suffixes are those of all containers, in each spelling that a unit may have.
func (r registry) suffixes(ctx context.Context) (all []suffix, err error) {
	for _, c := range r.monitored {
		store, err := leaseStore(ctx, r.leases, anybody, c)
		if err != nil {
			return nil, err
		}
		for _, prefix := range store.Searched() {
			all = append(all, suffix{strings.TrimPrefix(prefix, anybody), c})
		}
	}
	return all, nil
}

// unitOf finds the unit of a document by its id.
func unitOf(suffixes []suffix, id string) (processor string, monitored *container) {
	for _, s := range suffixes {
		if processor, _, ok := strings.Cut(id, s.text); ok && processor != "" {
			if _, _, ok := leasedoc.KindOf(processor+s.text, id); ok {
				return processor, s.monitored
			}
		}
	}
	return "", nil
}
