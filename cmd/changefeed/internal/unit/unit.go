// Package unit describes the deployment units of a lease container for tools: the leases and instances of each unit,
// their positions and problems. Package unit also deletes units.
package unit

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/feed"
)

// DefaultContainer is the default name of the lease container.
const DefaultContainer = "leases"

// A Unit is a deployment unit: the processors with the same name on a container.
type Unit struct {
	Processor string
	Container string // the monitored container; empty if not in this store
	Rows      []Row
	Alike     []string              // names of other units on the container that may be misspellings of this name
	Commands  Commands              // that advice names
	Estimate  changefeed.Estimation // zero after a failure, and for documents of no unit
	intended  []string              // names that the user has given on purpose
	listing   *admin.Listing        // empty for documents of no unit
	store     Store                 // nil for documents of no unit
}

// The kinds of lines.
const (
	KindUnit     = "unit" // no row: the sums of the rows
	KindLease    = "lease"
	KindInstance = "instance"
	KindRequest  = "request"  // of an operator, see package deadletters
	KindHole     = "hole"     // keys that no lease covers
	KindDocument = "document" // no record of a unit, or a record of an unknown kind
)

// A Surveyor reads units again and again, and so knows how fast their leases are. The zero value is ready.
type Surveyor struct {
	Intended []string // names of units that are meant to look alike

	estimators map[[2]string]*changefeed.Estimator // by unit and container
}

// Survey reads the units of the lease container at an address. Survey looks for the monitored containers in the same
// store or database, because no lease names them, and at the other addresses.
func Survey(ctx context.Context, o *place.Opener, at place.Address, others ...place.Address) ([]Unit, error) {
	return new(Surveyor).Survey(ctx, o, at, others...)
}

// Survey is the function [Survey]. From the second call on, leases have a pace.
func (s *Surveyor) Survey(ctx context.Context, o *place.Opener, at place.Address, others ...place.Address) ([]Unit,
	error,
) {
	leases, err := o.Open(ctx, at)
	if err != nil {
		return nil, err
	}
	monitored, err := o.Neighbours(ctx, leases)
	if err != nil {
		return nil, err
	}
	for _, other := range others {
		c, err := o.Open(ctx, other)
		if err != nil {
			return nil, err
		}
		monitored = append(monitored, c)
	}
	return s.list(ctx, leases, monitored)
}

// estimatorOf returns the estimator of a unit.
func (s *Surveyor) estimatorOf(name [2]string) *changefeed.Estimator {
	if s.estimators == nil {
		s.estimators = map[[2]string]*changefeed.Estimator{}
	}
	if s.estimators[name] == nil {
		s.estimators[name] = &changefeed.Estimator{}
	}
	return s.estimators[name]
}

// List reads the units of a lease container with the given monitored containers. Documents that belong to none of them
// are in a last unit without a name.
func List(ctx context.Context, leases *place.Container, monitored []*place.Container) ([]Unit, error) {
	return new(Surveyor).list(ctx, leases, monitored)
}

// list is the function List.
func (s *Surveyor) list(ctx context.Context, leases *place.Container, monitored []*place.Container) ([]Unit, error) {
	r := registry{leases, monitored}
	documents, err := everything(ctx, r.leases.Source)
	if err != nil {
		return nil, err
	}
	suffixes, err := r.listSuffixes(ctx)
	if err != nil {
		return nil, err
	}
	units := map[[2]string]*Unit{}
	var strays Unit
	// The documents are read first only to find the units. Then each unit is listed by the unit's store, which judges
	// records as a processor does.
	for _, doc := range documents {
		processor, monitored := unitOf(suffixes, doc.ID)
		if processor == "" {
			strays.Rows = append(strays.Rows, stray(doc, suffixes))
			continue
		}
		name := [2]string{processor, monitored.Address.Name()}
		if units[name] != nil {
			continue
		}
		u, err := readUnit(ctx, r.leases, processor, monitored, s.estimatorOf(name))
		if err != nil {
			return nil, err
		}
		u.Commands = CommandsOf(r.leases.Address, processor, r.monitored)
		u.intended, units[name] = s.Intended, u
	}
	var all []Unit
	others := slices.Collect(maps.Values(units))
	for name, u := range units {
		u.findAlike(others)
		if slices.ContainsFunc(others, func(o *Unit) bool { return o.Processor == u.Processor && o != u }) {
			u.Commands.Source = r.addressOf(name[1])
		}
		all = append(all, *u)
	}
	slices.SortFunc(all, func(a, b Unit) int {
		return cmp.Or(strings.Compare(a.Processor, b.Processor), strings.Compare(a.Container, b.Container))
	})
	if len(strays.Rows) > 0 {
		all = append(all, strays)
	}
	return all, nil
}

// addressOf returns the address of a monitored container.
func (r registry) addressOf(name string) string {
	i := slices.IndexFunc(r.monitored, func(c *place.Container) bool { return c.Address.Name() == name })
	return r.monitored[i].Address.String()
}

// everything returns all documents of a container.
func everything(ctx context.Context, c feed.Source) (documents []feed.Change, err error) {
	from := feed.Position{Start: feed.FromBeginning()}
	for page, err := range changefeed.Pull(ctx, c, feed.FullRange(), from, changefeed.PullOptions{}) {
		if err != nil {
			return nil, err
		}
		documents = append(documents, page.Changes...)
	}
	return documents, context.Cause(ctx)
}

// readUnit lists a unit.
func readUnit(ctx context.Context, leases *place.Container, processor string, monitored *place.Container,
	estimator *changefeed.Estimator,
) (*Unit, error) {
	store, err := OpenStore(ctx, leases, processor, monitored)
	if err != nil {
		return nil, err
	}
	listing, err := admin.Open(monitored.Source, store, admin.Options{Estimator: estimator}).List(ctx)
	if err != nil {
		return nil, err
	}
	u := Of(processor, monitored.Address.Name(), listing)
	u.store = store
	return u, nil
}

// Of returns the unit that has a listing.
func Of(processor, container string, l *admin.Listing) *Unit {
	u := &Unit{Processor: processor, Container: container, Rows: rowsOf(l), Estimate: l.Estimate, listing: l}
	for i := range u.Rows {
		u.Rows[i].Processor, u.Rows[i].Container = u.Processor, u.Container
	}
	return u
}

// Listing returns the facts about the unit; empty for documents of no unit.
func (u *Unit) Listing() *admin.Listing {
	if u.listing == nil {
		return &admin.Listing{}
	}
	return u.listing
}
