// Package connect opens the containers of a unit by address: the monitored container and its leases, in the directory
// of a store or in an account of Azure Cosmos DB. The rest of a program is the same for both, so only the address
// differs between your machine and Azure.
//
//	u, err := connect.Open(ctx, "docstore:data#shop/orders", "mailer", connect.Options{})
//	if err != nil {
//		return err
//	}
//	defer u.Close()
//	p, err := changefeed.New(u.Source, u.Leases, handler, changefeed.Options{Start: feed.FromBeginning()})
//
// The addresses are those of the command changefeed:
//
//   - docstore:DIR#DATABASE/CONTAINER for a store. Without the database and the slash, the database is "default". Only
//     one process can have a store open; changefeed serve makes an account of a store, for several processes.
//   - https://HOST:PORT/DATABASE/CONTAINER for an account, of Azure or of changefeed serve.
//   - cosmos:DATABASE/CONTAINER for the account of $COSMOS_ENDPOINT or $COSMOS_CONNECTION_STRING.
//
// If you always use the same kind, you need only package docstore or package cosmos, and your program links only that
// package.
package connect

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/address"
)

// DefaultLeases is the name of the lease container, if you name none.
const DefaultLeases = "leases"

// Options are the optional settings of [Open]. The zero value opens containers that exist.
type Options struct {
	// Leases is the lease container: the name, for a container in the same database, or otherwise the address. Empty
	// means [DefaultLeases].
	Leases string

	// Create makes a missing monitored container, and the database, the directory of the store and the lease container
	// too. Create has the partition key paths, time to live, retention and, for a store, further properties; the
	// address has the names. An existing container stays unchanged; for other paths of the partition key, Open returns
	// [feed.ErrConflict]. If Create is nil, a missing monitored container is [feed.ErrNotFound].
	Create *docstore.ContainerSpec

	// CreateLeases makes a missing lease container, also if Create is nil. A unit whose lease container has another
	// name begins anew, so do not set CreateLeases if the name could be mistyped.
	CreateLeases bool

	// Credential is for an account. The zero value is the key in $COSMOS_KEY or $COSMOS_CONNECTION_STRING and, for an
	// account on this machine, the well-known key of the emulator. The variables' key is sent to no other account than
	// that of $COSMOS_ENDPOINT or $COSMOS_CONNECTION_STRING, if any of these is set.
	Credential cosmos.Credential

	Cosmos   cosmos.Options      // of the client of an account
	ForLease cosmos.LeaseOptions // of leases in an account
	Store    docstore.Options    // of a store
}

// Container is an open container: a *docstore.Container or a *cosmos.Container.
type Container interface {
	feed.Source
	feed.Committer
	Named
}

// Named distinguishes a container from others.
type Named interface {
	Database() string
	ID() string
	RID() string // resource id, which changes if the container is made anew
}

// Unit has the two stores of a processor: a monitored container and the leases of a unit. Close the Unit after the end
// of the processor.
type Unit struct {
	Source Container
	Leases feed.LeaseStore

	at      address.Address
	records Container
	from    *opener
}

// Open opens the monitored container at an address and the leases of the unit with this name. The error names the
// address and the problem.
func Open(ctx context.Context, container, unit string, o Options) (*Unit, error) {
	at, ok := address.Parse(container)
	if !ok {
		return nil, fmt.Errorf("address is %q: want %s: %w", container, address.Forms, feed.ErrBadRequest)
	}
	leases, err := leaseAddress(at, o.Leases)
	if err != nil {
		return nil, err
	}
	u := &Unit{at: at, from: newOpener(o)}
	if err := u.open(ctx, leases, unit, o); err != nil {
		return nil, errors.Join(err, u.from.close())
	}
	return u, nil
}

// open opens the containers and the leases.
func (u *Unit) open(ctx context.Context, leases address.Address, unit string, o Options) (err error) {
	if u.Source, err = u.from.find(ctx, u.at, o.Create); err != nil {
		return err
	}
	var missing *docstore.ContainerSpec
	if o.CreateLeases || o.Create != nil {
		missing = new(docstore.LeaseSpec(leases.Container))
	}
	if u.records, err = u.from.find(ctx, leases, missing); err != nil {
		return err
	}
	u.Leases, err = u.Another(ctx, unit)
	return err
}

// leaseAddress returns the address of a lease container, which may be a name in the monitored container's database.
func leaseAddress(monitored address.Address, leases string) (address.Address, error) {
	if leases == "" {
		leases = DefaultLeases
	}
	if at, ok := address.Parse(leases); ok {
		return at, nil
	}
	at := monitored
	_, name, ok := address.ParseName(leases)
	if at.Container = name; !ok || name != leases {
		return at, fmt.Errorf("option Leases is %q: want the name of a container beside the monitored one, or %s: %w", leases,
			address.Forms, feed.ErrBadRequest)
	}
	return at, nil
}

// Another returns the leases of another unit on the same containers.
func (u *Unit) Another(ctx context.Context, unit string) (feed.LeaseStore, error) {
	switch source := u.Source.(type) {
	case *docstore.Container:
		records, ok := u.records.(*docstore.Container)
		if !ok {
			return nil, fmt.Errorf("option Leases is in an account: want a container of a store, like the monitored one: %w",
				feed.ErrBadRequest)
		}
		return docstore.NewLeases(ctx, records, unit, source)
	case *cosmos.Container:
		records, ok := u.records.(*cosmos.Container)
		if !ok {
			return nil, fmt.Errorf("option Leases is in a store: want a container of an account, like the monitored one: %w",
				feed.ErrBadRequest)
		}
		return cosmos.OpenLeases(ctx, records, unit, source, u.from.options.ForLease)
	}
	return nil, fmt.Errorf("open leases: %T is no container of a store or an account", u.Source)
}

// Container opens a further container in the database of the monitored container, such as a target, or a container for
// dead letters, whose partition key path is /key. If create is not nil, a missing container is made, as with
// Options.Create.
func (u *Unit) Container(ctx context.Context, id string, create *docstore.ContainerSpec) (Container, error) {
	at := u.at
	at.Container = id
	return u.from.find(ctx, at, create)
}

// Close closes the store or the client. Call Close when nothing uses the containers any more.
func (u *Unit) Close() error { return u.from.close() }
