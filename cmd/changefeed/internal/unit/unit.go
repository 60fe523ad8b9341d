// Package unit describes the deployment units of a lease container for tools: the leases and instances of each unit,
// their positions and problems. Package unit also deletes units.
package unit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/leasedoc"
)

// DefaultContainer is the default name of the lease container.
const DefaultContainer = "leases"

// A Unit is a deployment unit: the processors with the same name on a container.
type Unit struct {
	Processor string
	Container string // the monitored container; empty if it is not in this store
	Rows      []Row
	Warnings  []Warning
	Estimate  changefeed.Estimation // zero if it has failed, and for documents of no unit
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

// A Row describes a record, or keys without a record.
type Row struct {
	Processor string
	Container string
	Kind      string
	ID        string
	Lease     string // token
	Range     string
	Owner     string
	Epoch     string
	Position  string
	Mode      string
	State     string
	Attempts  int
	Held      int      // partition keys
	HeldKeys  []string // their names
	SetAside  int      // partition keys
	Outage    string
	IsDefiant bool // its owner has not obeyed a pause yet
	Silent    float64
	Lag       *int64 // changes; nil if unknown
	Exact     bool
	Shared    bool     // an upper bound, see [changefeed.Lag]
	Waited    *float64 // of the oldest of these changes; nil if unknown
	Watermark time.Time
	Stuck     []feed.Stuck
	Pace      *changefeed.Pace
	Request   *Request
	Overlaps  []string      // the ids of leases that cover some of the same keys
	InHand    *float64      // seconds that a batch of a lease has been in the handler, if that is too long
	Leases    int           // of an instance
	Runs      *feed.Variant // what an instance runs; nil if the instance does not tell
	Notes     []string

	record feed.Record
	// an instance that has stopped, or has been silent for too long; or a lease of such an owner, if no instance of the
	// unit runs
	gone bool
}

func (r *Row) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// A Surveyor reads units again and again, and so knows how fast their leases are. The zero value is ready.
type Surveyor struct {
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
	// The documents are read first only to find the units. Then each unit is listed by its own store, which judges
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
		if units[name], err = readUnit(ctx, r.leases, processor, monitored,
			s.estimatorOf(name)); err != nil {
			return nil, err
		}
	}
	var all []Unit
	others := slices.Collect(maps.Values(units))
	for _, u := range units {
		u.warn(others)
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

// stray describes a document that belongs to no unit of this store.
func stray(doc feed.Change, suffixes []suffix) Row {
	r := Row{Kind: KindDocument, ID: doc.ID}
	prefix, token, isLease := strings.Cut(doc.ID, "..")
	if !isLease {
		r.note("no lease of a container in this store")
		return r
	}
	record := leasedoc.Unmarshal(prefix, doc.Body)
	r.Owner, r.Lease = record.Owner, token
	elsewhere := func(s suffix) bool {
		_, rids, ok := strings.Cut(s.text, "_") // after the host
		return ok && strings.HasSuffix(prefix, "_"+rids)
	}
	if slices.ContainsFunc(suffixes, elsewhere) {
		r.note("a lease of a unit that has its containers from another address, whose host is in the id: look " +
			"from there")
	} else {
		r.note("a lease, but of a container that is not in this store")
	}
	return r
}

// readUnit reads the records of a unit, and measures its leases.
func readUnit(ctx context.Context, leases *place.Container, processor string, monitored *place.Container,
	estimator *changefeed.Estimator,
) (*Unit, error) {
	store, err := OpenStore(ctx, leases, processor, monitored)
	if err != nil {
		return nil, err
	}
	var cost feed.Meter
	ctx = feed.WithMeter(ctx, &cost)
	records, now, err := store.List(ctx)
	if err != nil {
		return nil, err
	}
	u := &Unit{Processor: processor, Container: monitored.Address.Name(), store: store}
	for _, record := range records {
		r := describe(record, now)
		switch record.Kind {
		case feed.KindLease: // see addLags
		case feed.KindHost:
			r.describeInstance(now)
		case feed.KindInfo, feed.KindLock, feed.KindHistory:
			// If these are valid, they tell an operator nothing here; changefeed leases history shows the last one.
			if record.Err == nil {
				continue
			}
			r.Kind = KindDocument
		case feed.KindRequest:
			r.describeRequest(now)
		default:
			r.Kind = KindDocument
			r.note("a record of kind %q, which belongs to a later version", record.Kind)
		}
		u.Rows = append(u.Rows, r)
	}
	est, err := estimator.Measure(ctx, monitored.Source, listed{LeaseStore: store, records: records, now: now})
	u.addLags(est, err, now)
	u.Estimate.Cost = cost.Cost()
	u.countLeases()
	u.noteSlow()
	u.noteEnded()
	u.noteOverlaps()
	u.markDefiant()
	// Sorted by their ranges, so that a hole stands at the right place.
	slices.SortStableFunc(u.Rows, func(a, b Row) int {
		return cmp.Or(strings.Compare(a.record.Range.Min, b.record.Range.Min),
			strings.Compare(a.record.Range.Max, b.record.Range.Max))
	})
	for i := range u.Rows {
		u.Rows[i].Processor, u.Rows[i].Container = u.Processor, u.Container
	}
	return u, nil
}

// listed is a lease store that was listed already.
type listed struct {
	feed.LeaseStore
	records []feed.Record
	now     time.Time
}

// List returns the records.
func (s listed) List(context.Context) ([]feed.Record, time.Time, error) {
	return slices.Clone(s.records), s.now, nil
}

// addLags adds what an estimate knows of the leases; err is why it has failed.
func (u *Unit) addLags(est changefeed.Estimation, err error, now time.Time) {
	u.Estimate = est
	if err != nil {
		u.Estimate = changefeed.Estimation{Total: changefeed.Lag{Err: err}}
	}
	lags := slices.Clone(est.Leases)
	for i := range u.Rows {
		r := &u.Rows[i]
		if r.Kind != KindLease {
			continue
		}
		switch at := slices.IndexFunc(lags, r.isOf); {
		case err != nil:
			r.note("lag unknown: %v", err)
		case at >= 0:
			r.addLag(lags[at], now)
			lags = slices.Delete(lags, at, at+1) // two documents may have the same id
		}
		if !r.record.Range.Empty() {
			r.Range = r.record.Range.String()
		}
	}
}

// isOf reports whether a lag is that of the row.
func (r *Row) isOf(lag changefeed.Lag) bool {
	return lag.Lease.ID == r.record.ID && lag.Lease.Updated.Equal(r.record.Updated) &&
		lag.Lease.Position.Token == r.record.Position.Token
}

// addLag adds the lag, and the range if the lease does not store it.
func (r *Row) addLag(lag changefeed.Lag, now time.Time) {
	r.Stuck = lag.Stuck
	switch {
	case lag.Known():
		r.Lag, r.Exact, r.Shared, r.Waited = new(lag.Pending), lag.Exact, lag.Shared, new(lag.Age(now).Seconds())
		r.Watermark, r.Pace = lag.Watermark, lag.Pace
		r.record.Range = lag.Lease.Range
	case errors.Is(lag.Err, feed.ErrNoStart):
		r.note("lag unknown: it has no position, and nothing says where its unit began: changefeed run wants --from")
	case errors.Is(lag.Err, feed.ErrBadLease) && r.record.Err == nil:
		r.breakBecause(lag.Err) // it has no range
	default:
		r.note("lag unknown: %v", lag.Err)
	}
}

// A Sum is the sum of the rows of a unit.
type Sum struct {
	Leases    int
	Instances int // at work
	Lag       int64
	Exact     bool // lag is a count
	// lag is an upper bound, because leases share a partition; if false and not exact, lag is a distance of LSNs
	Shared bool
	Known  bool    // lag includes all leases
	Waited float64 // seconds that the oldest pending change has waited
}

// Sums adds the rows up.
func (u *Unit) Sums() Sum {
	s := Sum{Known: true, Exact: true}
	for _, r := range u.Rows {
		switch r.Kind {
		case KindLease:
			s.Leases++
			s.Known = s.Known && (r.Lag != nil || r.record.State == feed.StateRetired)
		case KindHole:
			s.Known = false
		case KindInstance:
			if !r.gone {
				s.Instances++
			}
		}
		if r.Lag != nil {
			s.Lag += *r.Lag
			s.Exact = s.Exact && r.Exact
			s.Shared = s.Shared || !r.Exact && r.Shared
		}
		if len(r.Overlaps) > 0 { // changes of these keys count twice
			s.Exact, s.Shared = false, true
		}
		if r.Waited != nil {
			s.Waited = max(s.Waited, *r.Waited)
		}
	}
	return s
}
