package unit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/leasedoc"
)

// The id of a record begins with the processor's name, which the account's host follows without a separator. The rest
// from the host on is known for each container, so an id is cut at the beginning of that rest.

// A registry is a lease container, with the containers whose leases may be there.
type registry struct {
	leases    *place.Container
	monitored []*place.Container
}

// A Store knows the prefixes of the ids of all documents.
type Store interface {
	feed.LeaseStore
	Prefix() string
	Searched() []string
}

// Unnamed stands for the empty name, which a function of Azure Functions has without a leaseContainerPrefix. No
// processor can have Unnamed in its name. The dead letters of such a function have Unnamed and the name of the
// function, because functions may share a container for letters.
const Unnamed = "/"

// OfLetters returns the name of the unit whose dead letters have a name.
func OfLetters(name string) string {
	if strings.HasPrefix(name, Unnamed) {
		return Unnamed
	}
	return name
}

// OpenStore opens the lease store of a processor. Both containers must be in stores, or both in accounts.
func OpenStore(ctx context.Context, leases *place.Container, processor string, monitored *place.Container) (Store,
	error,
) {
	if err := checkLeaseKey(leases); err != nil {
		return nil, err
	}
	switch {
	case processor == Unnamed && leases.Remote == nil:
		return nil, UnknownError{usage.Missing{Err: usage.Flag("name", Unnamed,
			"the name of a unit: only in an account are units without a name")}}
	case processor == Unnamed && monitored.Remote != nil:
		return OpenFunction(ctx, leases, "", monitored)
	case leases.Local != nil && monitored.Local != nil:
		return docstore.NewLeases(ctx, leases.Local, processor, monitored.Local)
	case leases.Remote != nil && monitored.Remote != nil:
		return cosmos.OpenLeases(ctx, leases.Remote, processor, monitored.Remote, cosmos.LeaseOptions{})
	}
	return nil,
		usage.Error{Err: fmt.Errorf("the leases are in %s, and the container that they are for is %s: want both in stores, "+
			"or both in accounts", leases.Address, monitored.Address)}
}

// checkLeaseKey refuses a container whose partition key cannot be that of leases, in the same words for a store and an
// account.
func checkLeaseKey(leases *place.Container) error {
	path := strings.Join(leases.KeyPaths(), ",")
	if path != "" && path != "/id" && path != "/partitionKey" {
		return usage.Error{Err: fmt.Errorf("%s: the container is partitioned by %s: want a lease container, partitioned "+
			"by /id or /partitionKey", leases.Address.Quote(), path)}
	}
	return nil
}

// OpenFunction opens the lease store of a function of Azure Functions, whose name is often empty. Both containers must
// be in accounts.
func OpenFunction(ctx context.Context, leases *place.Container, prefix string, monitored *place.Container) (Store,
	error,
) {
	return cosmos.OpenLeases(ctx, leases.Remote, prefix, monitored.Remote, cosmos.LeaseOptions{Unnamed: true})
}

// A suffix is the text between the processor's name and the dot in the ids of the units on a container. The id of a
// unit without a name begins with it.
type suffix struct {
	text      string
	monitored *place.Container
}

// anybody is the name of a processor for questions whose answer does not depend on the name.
const anybody = "x"

// listSuffixes returns the suffixes of all containers, in each spelling that a unit may have.
func (r registry) listSuffixes(ctx context.Context) (all []suffix, err error) {
	for _, c := range r.monitored {
		store, err := OpenStore(ctx, r.leases, anybody, c)
		if err != nil {
			return nil, err
		}
		for _, prefix := range store.Searched() {
			all = append(all, suffix{strings.TrimPrefix(prefix, anybody), c})
		}
	}
	return all, nil
}

// Names returns the names of the units of a lease container that read a monitored container, sorted.
func Names(ctx context.Context, leases, monitored *place.Container) ([]string, error) {
	suffixes, err := registry{leases, []*place.Container{monitored}}.listSuffixes(ctx)
	if err != nil {
		return nil, err
	}
	documents, err := everything(ctx, leases.Source)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, doc := range documents {
		if name, _ := unitOf(suffixes, doc.ID); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// unitOf finds the unit of a document by the id. The name is empty if the document belongs to no unit.
func unitOf(suffixes []suffix, id string) (processor string, monitored *place.Container) {
	for _, s := range suffixes {
		processor, _, ok := strings.Cut(id, s.text)
		if !ok || processor == "" && s.monitored.Remote == nil {
			continue
		}
		if _, _, ok := leasedoc.KindOf(processor+s.text, id); ok {
			return cmp.Or(processor, Unnamed), s.monitored
		}
	}
	return "", nil
}
