package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// Listing is the state of a unit at a time: the result of [Unit.List]. The methods judge the fields, without any
// request.
type Listing struct {
	At        time.Time // when the records were listed, by the clock of the lease store
	Leases    []Lease   // by their ranges; also those that others have replaced, and documents that are no valid leases
	Holes     []Hole    // by their ranges
	Instances []Instance
	Requests  []Request
	Documents []Document // the other records that a later version may understand, or that nobody can read

	// Estimate has the lag of the unit as a whole, the watermark, the pace and the cost of List. If the lag could not
	// be measured, Estimate.Total.Err says why.
	Estimate changefeed.Estimation

	needed int // how many leases the unit needs; 0 if nobody has counted
}

// Hole is a range of keys that no lease of the unit covers.
type Hole struct {
	Range feed.Range
	Notes []string // for people
}

// Document is a record of the unit that is no lease, no instance and no request.
type Document struct {
	feed.Record
	Notes []string // for people: the nature of the record
}

// errNoSource is why the lags of a unit without a source are unknown.
var errNoSource = errors.New("the unit was opened without the container that it reads")

// List lists the leases, the instances and the requests of the unit. Each lease has the owner and since when, the
// position and the changes after the position, the batch in the handler, and the reason if nobody serves the lease. See
// [Listing.Findings] for problems, and [Unit.Explain] for sentences.
//
// List reads the records once, and measures the lags as [changefeed.Estimator] does: a source that is a [feed.Counter]
// is asked once for each lease; from another source List reads up to 100 changes of each lease. List does that for 8
// leases at once. A unit that was opened without a source has no lags. From the second call on the same Unit, or with
// the same Options.Estimator, the leases have a pace.
//
// A unit without records has no leases and a single hole, without an error. Errors: those of the lease store. A failed
// measurement is no error: then the lags are unknown, and each lease says why.
func (u *Unit) List(ctx context.Context) (*Listing, error) {
	listing, _, err := survey(ctx, u)
	return listing, err
}

// survey reads the records of a unit, and describes them.
func survey(ctx context.Context, u *Unit) (*Listing, []feed.Record, error) {
	var cost feed.Meter
	ctx = feed.WithMeter(ctx, &cost)
	records, now, err := u.leases.List(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read leases: %w", err)
	}
	l := describeRecords(records, now)
	est, err := changefeed.Estimation{}, errNoSource
	if u.source != nil {
		est, err = u.estimator.Measure(ctx, u.source, listed{LeaseStore: u.leases, records: records, now: now})
	}
	if errors.Is(ctx.Err(), context.Canceled) { // after a timeout, the caller gets the known facts
		return nil, nil, fmt.Errorf("measure the lags: %w", context.Cause(ctx))
	}
	l.addLags(est, err)
	l.Estimate.Cost = cost.Cost()
	l.relate()
	return l, records, nil
}

// describeRecords describes each record, as far as that needs no source.
func describeRecords(records []feed.Record, now time.Time) *Listing {
	l := &Listing{At: now}
	for _, record := range records {
		switch record.Kind {
		case feed.KindLease:
			l.Leases = append(l.Leases, newLease(record, now))
		case feed.KindHost:
			l.Instances = append(l.Instances, describeInstance(record, now))
		case feed.KindRequest:
			l.Requests = append(l.Requests, describeRequest(record, now))
		case feed.KindInfo, feed.KindLock, feed.KindHistory:
			// If these are valid, they tell an operator nothing here; see [Unit.History] for the last action.
			if record.Err != nil {
				l.Documents = append(l.Documents, Document{Record: record, Notes: []string{record.Err.Error()}})
			}
		default:
			l.Documents = append(l.Documents, describeUnknown(record))
		}
	}
	for i := range l.Leases {
		l.Leases[i].describe(l)
	}
	return l
}

// describeUnknown describes a record of a kind that this version does not know.
func describeUnknown(record feed.Record) Document {
	d := Document{Record: record}
	if record.Err != nil {
		d.Notes = append(d.Notes, record.Err.Error())
	}
	d.Notes = append(d.Notes, fmt.Sprintf("a record of kind %q, which belongs to a later version", record.Kind))
	return d
}

// relate adds the facts that need several records.
func (l *Listing) relate() {
	l.countLeases()
	l.addShares()
	l.addSlow()
	l.markStopped()
	l.addOverlaps()
	l.addPauses()
	l.addParts()
	for i := range l.Leases {
		l.Leases[i].addFailing()
	}
	l.noteDifferences()
	slices.SortStableFunc(l.Leases, func(a, b Lease) int { return compareRanges(a.Range, b.Range) })
}

// compareRanges orders ranges by their beginnings, and then by their ends.
func compareRanges(a, b feed.Range) int {
	return cmp.Or(strings.Compare(a.Min, b.Min), strings.Compare(a.Max, b.Max))
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

// addLags adds the lags of an estimate to the leases; err is why the estimate has failed.
func (l *Listing) addLags(est changefeed.Estimation, err error) {
	l.Estimate = est
	if err != nil {
		l.Estimate = changefeed.Estimation{At: l.At, Total: changefeed.Lag{Err: err}}
	}
	lags := slices.Clone(est.Leases)
	for i := range l.Leases {
		lease := &l.Leases[i]
		switch at := slices.IndexFunc(lags, lease.isOf); {
		case err != nil:
			lease.Unknown = err
			if !errors.Is(err, errNoSource) { // who opened the unit without one knows
				lease.note("lag unknown: %v", err)
			}
		case at >= 0:
			lease.addLag(lags[at])
			lags = slices.Delete(lags, at, at+1) // two documents may have the same id
		}
	}
}

// isOf reports whether a lag is that of the lease.
func (l *Lease) isOf(lag changefeed.Lag) bool {
	return lag.Lease.ID == l.ID && lag.Lease.Updated.Equal(l.Updated) && lag.Lease.Position.Token == l.Position.Token
}

// addLag adds the lag, and the range if the lease does not store a range.
func (l *Lease) addLag(lag changefeed.Lag) {
	l.Stuck = lag.Stuck
	switch {
	case lag.Known():
		l.Lag, l.Range = &lag, lag.Lease.Range
	case errors.Is(lag.Err, feed.ErrNoStart):
		l.Unknown = lag.Err
		l.note("lag unknown: it has no position, and nothing says where its unit began: changefeed run wants --from")
	case errors.Is(lag.Err, feed.ErrBadLease) && l.Err == nil:
		l.breakBecause(lag.Err) // it has no range
	default:
		l.Unknown = lag.Err
		l.note("lag unknown: %v", lag.Err)
	}
}

// IsAtWork reports whether an instance of the unit runs, or may run as the owner of a lease. An owner with the presence
// of a lost or ended instance does not run.
func (l *Listing) IsAtWork() bool {
	return slices.ContainsFunc(l.Instances, func(i Instance) bool { return i.Presence == Running }) ||
		slices.ContainsFunc(l.Leases, func(lease Lease) bool { return lease.isAtWork() && !l.hasLeft(&lease) })
}

// addOverlaps adds the overlaps of leases, and the holes between them.
func (l *Listing) addOverlaps() {
	var covering []*Lease
	for i := range l.Leases {
		if lease := &l.Leases[i]; lease.Record.State != feed.StateRetired && !lease.Range.Empty() {
			covering = append(covering, lease)
		}
	}
	slices.SortStableFunc(covering, func(a, b *Lease) int { return strings.Compare(a.Range.Min, b.Range.Min) })
	covered := ""
	for i, lease := range covering {
		// Compare with all earlier leases and not only with the last: a wide lease may overlap several.
		for _, other := range covering[:i] {
			// A splitting parent overlaps its children for a while, and reads nothing.
			handedOver := lease.Record.State == feed.StateSplitting || other.Record.State == feed.StateSplitting
			unread := lease.State == StateBroken || other.State == StateBroken
			if !handedOver && !unread && lease.Range.Overlaps(other.Range) {
				lease.addOverlap(other)
				other.addOverlap(lease)
			}
		}
		l.addHole(covered, lease.Range.Min)
		covered = max(covered, lease.Range.Max)
	}
	l.addHole(covered, feed.FullRange().Max)
}

// addOverlap notes that a lease overlaps another.
func (l *Lease) addOverlap(other *Lease) {
	l.Overlaps = append(l.Overlaps, other.ID)
	l.note("overlaps %s: keys in both are handled twice", other.ID)
}

// addHole adds a range without a lease, if the range is not empty.
func (l *Listing) addHole(from, to string) {
	if r := (feed.Range{Min: from, Max: to}); !r.Empty() {
		l.Holes = append(l.Holes, Hole{r, []string{"no lease covers these keys: running processors repair that"}})
	}
}
