package unit

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/spelling"
)

// UnknownError means that no unit has the name.
type UnknownError struct{ error }

// Unwrap returns the error of the flag.
func (e UnknownError) Unwrap() error { return e.error }

// Find finds the unit with a name in a lease container: the container that the unit reads, among the given containers,
// and the unit's lease store.
func Find(ctx context.Context, leases *place.Container, among []*place.Container, name string) (*place.Container,
	feed.LeaseStore, error,
) {
	var source *place.Container
	var found feed.LeaseStore
	for _, c := range among {
		// The name of a unit does not say where its documents are: their ids contain the container's resource id, so
		// Find tries each container.
		store, err := OpenStore(ctx, leases, name, c)
		if err != nil {
			return nil, nil, err
		}
		records, _, err := store.List(ctx)
		switch {
		case err != nil:
			return nil, nil, err
		case len(records) == 0:
		case source != nil:
			return nil, nil,
				usage.Error{Err: fmt.Errorf("--name is %s: units of this name read %s and %s: want --source with the "+
					"address of one", name, source.Address.Name(), c.Address.Name())}
		default:
			source, found = c, store
		}
	}
	if source == nil {
		return nil, nil, UnknownError{usage.Missing{Err: usage.Error{Err: fmt.Errorf("--name is %s: there is no such unit in %s: want one that "+
			"%s shows%s", name, leases.Address.Name(),
			CommandsOf(leases.Address, name, nil).Complete("changefeed leases"), similar(ctx, leases, among, name))}}}
	}
	return source, found, nil
}

// similar names the units that a misspelled name can mean. The text is empty if there are none, or if they cannot be
// listed: the rest of the error says enough.
func similar(ctx context.Context, leases *place.Container, among []*place.Container, wrong string) string {
	var names []string
	for _, c := range among {
		if all, err := Names(ctx, leases, c); err == nil {
			names = append(names, all...)
		}
	}
	slices.Sort(names)
	near := spelling.Nearest(wrong, slices.Compact(names))
	if len(near) == 0 {
		return ""
	}
	return ", such as " + strings.Join(near, " or ")
}
