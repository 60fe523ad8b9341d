package changefeed

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/keyspace"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/records"
)

// The estimator measures the lag of a unit from outside, with the lease store and the source alone. It asks no
// instance, so the lag is right even if no instance runs, and for units of other processors too.

// Lag says how much of its range a lease still has to handle.
type Lag struct {
	Lease   feed.Lease
	Pending int64 // changes without a checkpoint

	// Exact says that Pending counts changes. If Exact is false, Pending is a distance in LSNs, which counts
	// transactions: several changes in a transaction count once, and transactions that were overwritten or deleted
	// since still count. Azure offers no better figure.
	Exact bool

	// Shared says that Pending is a distance and that other leases read the same partition. The distance counts their
	// transactions too: Pending is an upper bound, and you cannot add such lags up.
	Shared bool

	Held     int // partition keys whose changes are parked until they are released, as in [feed.LeaseStatus]
	SetAside int // partition keys that are read again by key, as in [feed.LeaseStatus]; Pending counts their changes

	Oldest time.Time // commit time of the oldest pending change; zero if there is none
	Err    error     // why the lag is unknown, or why the document is no valid lease
}

// Age is how long the oldest pending change has waited at the time now, 0 if no change is pending.
func (l Lag) Age(now time.Time) time.Duration {
	if l.Oldest.IsZero() {
		return 0
	}
	return max(0, now.Sub(l.Oldest))
}

// Estimate measures the lag of every lease of a unit, without taking part in the unit. The lag is right before the
// first checkpoint, because a lease stores its start. The lag is also right after a split that no instance has noticed
// yet, because Estimate then asks all partitions of the range. If the lag of a lease is unknown, its Err says why; the
// other lags stay right.
//
// A unit is done if there are lags, none has an Err, and each Pending is 0. If the unit has no leases yet, there are no
// lags and no error: wait for [Hooks.Ready] first. If Err is set, Pending says nothing.
//
// A source that is a [feed.Counter] counts; the time grows with the number of changes. From any other source Estimate
// reads the first change of each lease, and up to 500 changes of a lease that shares its partition, as
// [Options.MinLeases] makes them: these reads cost request units.
func Estimate(ctx context.Context, source feed.Source, leases feed.LeaseStore) ([]Lag, error) {
	v := records.NewView(leases, source)
	if err := v.List(ctx, time.Now()); err != nil {
		return nil, err
	}
	good, bad := v.Placed()
	origin, _ := v.Origin()
	m := meter{source: source}
	lags := make([]Lag, 0, len(good)+len(bad))
	for _, lease := range slices.Concat(good, bad) {
		if records.HasNoStart(lease) {
			lease.Position.Start = origin
		}
		lag := Lag{Lease: lease.Lease(), Exact: true, Err: lease.Err}
		for _, part := range owed(lease, good) { // a lease in the format of another processor can be measured too
			lag.Err = cmp.Or(lag.Err, m.measureRange(ctx, &lag, part))
		}
		lag.Err = cmp.Or(lag.Err, m.addKeys(ctx, &lag))
		lag.Exact = lag.Exact && lag.Err == nil
		lags = append(lags, lag)
	}
	return lags, context.Cause(ctx)
}

// owed returns the parts of a lease's range that no other lease accounts for: if a splitting lease already has
// children, the backlog is theirs.
func owed(lease feed.Record, all []feed.Record) []feed.Range {
	switch {
	case lease.Range.Empty():
		return nil
	case lease.State == feed.StateLive:
		return []feed.Range{lease.Range}
	}
	return records.Holes(lease.Range, slices.DeleteFunc(slices.Clone(all), func(other feed.Record) bool {
		// the splitting parent leaves its range to this lease
		return other.ID == lease.ID || other.State == feed.StateSplitting && other.Range.Contains(lease.Range)
	}))
}

// meter measures backlogs of a source.
type meter struct {
	source feed.Source
	parts  []feed.Range // the partitions, as last listed; nil before
}

// addKeys adds the held keys and those set aside, and the changes of the latter before the position of the lease.
func (m *meter) addKeys(ctx context.Context, lag *Lag) error {
	at := lag.Lease.Position
	holds, _ := notes.ReadHeld(lag.Lease.Properties[notes.HeldProperty], notes.Place{Position: at.Token})
	lag.Held = len(holds.Keys)
	aside, err := readAside(ctx, m.source, lag.Lease)
	if err != nil {
		return err
	}
	lag.SetAside = len(aside)
	for _, k := range aside {
		from := feed.Position{Token: k.From, Start: at.Start}
		if k.LSN > 0 {
			from, _ = records.PositionAfter(m.source, k.LSN-1, from)
		}
		o := feed.ReadOptions{Mode: lag.Lease.Mode, Key: feed.PartitionKey(k.Key)}
		all, err := m.countPending(ctx, lag.Lease.Range, from, o)
		if errors.Is(err, errors.ErrUnsupported) {
			lag.addBacklog(feed.Backlog{Items: 1}) // or more
			lag.Exact = false
			continue
		}
		if err != nil {
			return err
		}
		after, err := m.countPending(ctx, lag.Lease.Range, at, o)
		if err != nil {
			return err
		}
		if all.Items -= after.Items; all.Items > 0 {
			lag.addBacklog(all)
		}
	}
	return nil
}

// readAside returns the keys that a lease has set aside. If the note was written for another position, it is outdated
// and has no keys.
func readAside(ctx context.Context, source feed.Source, lease feed.Lease) ([]notes.AsideKey, error) {
	text := lease.Properties[notes.AsideProperty]
	if text == "" {
		return nil, nil
	}
	partitions, err := records.Noted(ctx, source)
	if err != nil {
		return nil, err
	}
	lsn, _ := records.TokenLSN(source, lease.Position.Token)
	aside, _ := notes.ReadAside(text, notes.Place{
		Position: lease.Position.Token, LSN: lsn, Min: lease.Range.Min, Max: lease.Range.Max, Partitions: partitions,
	})
	return aside.Keys, nil
}

// countPending asks the source to count; [errors.ErrUnsupported] if the source cannot count.
func (m *meter) countPending(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Backlog,
	error,
) {
	if counter, ok := m.source.(feed.Counter); ok {
		return counter.Pending(ctx, r, from, o)
	}
	return feed.Backlog{}, errors.ErrUnsupported
}

// Small backlogs of leases that share a partition are read and counted, because their distance says little.
const (
	countPage = 100 // changes a page
	countMost = 500 // changes a lease
)

// measureRange adds the backlog of a range.
func (m *meter) measureRange(ctx context.Context, lag *Lag, r feed.Range) error {
	backlog, err := m.countPending(ctx, r, lag.Lease.Position, feed.ReadOptions{Mode: lag.Lease.Mode})
	if !errors.Is(err, errors.ErrUnsupported) {
		lag.addBacklog(backlog)
		if backlog.Ahead {
			err = cmp.Or(err, feed.ErrAhead)
		}
		return err
	}
	// Estimate lists the partitions once for all leases, and again when a read finds them changed.
	for known := m.parts != nil; ; known = false {
		if !known {
			partitions, err := m.source.Partitions(ctx)
			if err != nil {
				return err
			}
			m.parts = records.RangesOf(partitions)
		}
		sum := Lag{Lease: lag.Lease, Exact: true}
		var err error
		for _, cell := range keyspace.CutAt([]feed.Range{r}, m.parts) { // each lies in a single partition
			if err = m.addDistance(ctx, &sum, cell, !slices.Contains(m.parts, cell)); err != nil {
				break
			}
		}
		if errors.Is(err, feed.ErrGone) && known {
			continue // split since they were listed
		}
		lag.addBacklog(feed.Backlog{Items: sum.Pending, Oldest: sum.Oldest})
		lag.Exact, lag.Shared = lag.Exact && sum.Exact, lag.Shared || sum.Shared
		return err
	}
}

// addDistance adds the distance from the first pending change of a range to the head. If the range is a part of a
// partition and has few changes, addDistance adds their number.
func (m *meter) addDistance(ctx context.Context, lag *Lag, r feed.Range, shared bool) error {
	o := feed.ReadOptions{Mode: lag.Lease.Mode, MaxItems: 1}
	if shared {
		o.MaxItems = countPage
	}
	page, err := m.source.Read(ctx, r, lag.Lease.Position, o)
	if page.Ahead {
		err = cmp.Or(err, feed.ErrAhead)
	}
	if err != nil || len(page.Changes) == 0 {
		return err
	}
	first := page.Changes[0]
	// The LSNs from the first pending change to the head, both included, as .NET's
	// estimator counts.
	bound := max(int64(len(page.Changes)), page.Head-first.LSN+1)
	for items := len(page.Changes); shared && items < countMost; items += len(page.Changes) {
		if page, err = m.source.Read(ctx, r, page.Next, o); err != nil {
			return err
		}
		if len(page.Changes) == 0 {
			lag.addBacklog(feed.Backlog{Items: int64(items), Oldest: first.Time})
			return nil
		}
	}
	lag.addBacklog(feed.Backlog{Items: bound, Oldest: first.Time})
	lag.Exact, lag.Shared = false, lag.Shared || shared
	return nil
}

func (l *Lag) addBacklog(backlog feed.Backlog) {
	l.Pending += backlog.Items
	if l.Oldest.IsZero() || !backlog.Oldest.IsZero() && backlog.Oldest.Before(l.Oldest) {
		l.Oldest = backlog.Oldest
	}
}
