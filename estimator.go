package changefeed

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/keyspace"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/records"
)

// The estimator measures the lag of a unit from outside, with the lease store and the source alone. The estimator asks
// no instance, so the lag is right even if no instance runs, and for units of other processors too.

// Lag says how much of the range a lease still has to handle.
type Lag struct {
	Lease   feed.Lease
	Pending int64 // changes without a checkpoint

	// Exact says that Pending counts changes. If Exact is false, Pending is a distance in LSNs, which counts
	// transactions: several changes in a transaction count once, and transactions that were overwritten or deleted
	// since still count. Azure offers no better figure for more changes than Estimate reads.
	Exact bool

	// Shared says that Pending is a distance and that other leases read the same partition. The distance counts their
	// transactions too: Pending is an upper bound of the transactions of the lease, and you cannot add such lags up.
	Shared bool

	Held     int // partition keys whose changes are parked until they are released, as in [feed.LeaseStatus]
	SetAside int // partition keys that are read again by key, as in [feed.LeaseStatus]; Pending counts their changes

	Oldest time.Time // commit time of the oldest pending change; zero if there is none, or if the time is unknown

	// Watermark is the time before which all is handled: the unit has handled every change of the range that the feed
	// shows with an earlier commit time. Zero is unknown. If nothing is pending, Watermark is the time of the estimate
	// by the store's clock, less some seconds, because a store may show a change a little after its commit time.
	// Otherwise Watermark is some seconds before the time of the oldest pending change, because the clocks of a store's
	// servers may differ. The changes of a held partition key are not handled: Watermark is at most the time of the
	// change for which the key is held, and unknown if the feed no longer has that version. A change that was parked
	// and holds no key counts as handled.
	Watermark time.Time

	Stuck []feed.Stuck // why nobody handles the pending changes; empty if somebody does, or if nothing is pending
	Pace  *Pace        // nil in the first estimate of a lease, and if the pace is unknown

	// Err is why the lag is unknown, or why the document is no valid lease: see Known.
	Err error

	measured bool // although Err is set
	untimed  bool // the time of a pending change is unknown
}

// Age returns how long the oldest pending change has waited at a time; 0 if none is pending. If the commit time of a
// pending change is unknown, known is false, and the oldest change may have waited for longer than age.
func (l Lag) Age(now time.Time) (age time.Duration, known bool) {
	if !l.Oldest.IsZero() {
		age = max(0, now.Sub(l.Oldest))
	}
	return age, !l.untimed && (l.Pending == 0 || !l.Oldest.IsZero())
}

// Known reports whether Pending is known. If Err is an [feed.ErrForeignLease], as that of a lease of a Java processor,
// or an [feed.ErrOverlap], because another lease has the same range, Pending may be known all the same.
func (l Lag) Known() bool { return l.Err == nil || l.measured }

// Estimate measures the lag of every lease of a unit, without taking part in the unit. The lag is right before the
// first checkpoint, because a lease stores its start. The lag is also right after a split that no instance has noticed
// yet, because Estimate then asks all partitions of the range. If the lag of a lease is unknown, the Err of this lag
// says why; the other lags stay right.
//
// A unit is done if there are lags, none has an Err, and each Pending is 0. If the unit has no leases yet, there are no
// lags and no error: wait for [Hooks.Ready] first. If a lag is not [Lag.Known], Pending says nothing.
//
// A source that is a [feed.Counter] counts; the time grows with the number of changes. From any other source Estimate
// reads up to 100 changes of each lease, and up to 500 changes of a lease that shares its partition, as
// [Options.MinLeases] makes them: these reads cost request units. If a lease has no more changes, the lag is exact.
// Either takes a request a lease or more; Estimate measures 8 leases at once.
//
// Estimate is [Estimator.Measure] for the lags of a single moment. To also get totals, the watermark, the cost or how
// fast leases handle their changes, use an [Estimator] or [WatchLag].
func Estimate(ctx context.Context, source feed.Source, leases feed.LeaseStore) ([]Lag, error) {
	unit, err := new(Estimator).Measure(ctx, source, leases)
	return unit.Leases, err
}

// measuredAtOnce is how many leases are measured at once: an account answers some hundred requests a second.
const measuredAtOnce = 8

// compareLease measures a lease, and compares the lag with that of the estimate before.
func (u *measuredUnit) compareLease(ctx context.Context, last map[string]seenLag, lease feed.Record, parts []feed.Range,
	foreign error, now time.Time,
) seenLag {
	this := seenLag{Lag: u.measureLease(ctx, lease, parts, foreign), at: now, still: now}
	if before, ok := last[lease.ID]; ok && this.Known() && lease.Err == nil {
		this.Pace = u.paceSince(ctx, before, this, parts)
		if this.isAsStillAs(before) {
			this.still = before.still
		}
	}
	if this.Pending > 0 && now.Sub(this.still) >= failingFor {
		this.Stuck = append(this.Stuck, feed.StuckStill)
	}
	return this
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

// meter measures backlogs of a source, of several leases at once.
type meter struct {
	source feed.Source
	counts atomic.Bool // the source has counted

	gate     chan struct{} // guards the rest; a channel, because a listing waits
	parts    partitions    // as last listed
	listings int           // how often they were listed
}

// partitions are those of a source, in the forms that the leases need. All leases share them: with a copy for each
// lease the cost of an estimate would grow with the square of their number.
type partitions struct {
	ranges []feed.Range // sorted
	noted  []notes.Partition
}

func newMeter(source feed.Source) *meter { return &meter{source: source, gate: make(chan struct{}, 1)} }

// partitions returns the partitions, and how often they were listed. All leases share a listing, unless a lease has
// found the partitions of a listing changed: gone is the number of that listing, and 0 is none.
func (m *meter) partitions(ctx context.Context, gone int) (parts partitions, listing int, err error) {
	select {
	case m.gate <- struct{}{}:
		defer func() { <-m.gate }()
	case <-ctx.Done():
		return parts, 0, context.Cause(ctx)
	}
	if m.listings == gone {
		all, err := m.source.Partitions(ctx)
		if err != nil {
			return parts, 0, err
		}
		m.parts, m.listings = partitions{records.RangesOf(all), records.InNotes(all)}, m.listings+1
		slices.SortFunc(m.parts.ranges, func(a, b feed.Range) int { return cmp.Compare(a.Min, b.Min) })
	}
	return m.parts, m.listings, nil
}

// countPending asks the source to count; [errors.ErrUnsupported] if the source cannot count.
func (m *meter) countPending(ctx context.Context, r feed.Range, from feed.Position, o feed.ReadOptions) (feed.Backlog,
	error,
) {
	counter, ok := m.source.(feed.Counter)
	if !ok {
		return feed.Backlog{}, errors.ErrUnsupported
	}
	backlog, err := counter.Pending(ctx, r, from, o)
	if err == nil {
		m.counts.Store(true)
	}
	return backlog, err
}

// Small backlogs are read and counted, because a distance counts transactions, also those of other leases.
const (
	countPage = 100 // changes a page, and of a lease that has the partition to itself
	countMost = 500 // changes of a lease that shares the partition
	mostEmpty = 10  // pages in a row without a change, before the rest counts as unknown
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
	for gone, again := 0, false; ; again = true {
		all, listing, err := m.partitions(ctx, gone)
		if err != nil {
			return err
		}
		parts := keyspace.Among(r, all.ranges)
		sum := Lag{Lease: lag.Lease, Exact: true}
		for _, cell := range keyspace.CutAt([]feed.Range{r}, parts) { // each lies in a single partition
			if err = m.addDistance(ctx, &sum, cell, !slices.Contains(parts, cell)); err != nil {
				break
			}
		}
		if gone = listing; errors.Is(err, feed.ErrGone) && !again {
			continue // split since they were listed
		}
		lag.addPart(sum)
		return err
	}
}

// addDistance adds the number of changes of a range if they are few, or the distance from the first to the head.
func (m *meter) addDistance(ctx context.Context, lag *Lag, r feed.Range, shared bool) error {
	most := countPage
	if shared {
		most = countMost
	}
	var first feed.Change
	var head int64
	o := feed.ReadOptions{Mode: lag.Lease.Mode, MaxItems: countPage}
	at := lag.Lease.Position
	for items, empty := 0, 0; ; {
		page, err := m.source.Read(ctx, r, at, o)
		if page.Ahead {
			err = cmp.Or(err, feed.ErrAhead)
		}
		if err != nil {
			return err
		}
		if items == 0 && len(page.Changes) > 0 {
			first, head = page.Changes[0], page.Head
		}
		items += len(page.Changes)
		if empty++; len(page.Changes) > 0 {
			empty = 0
		}
		switch {
		case m.isEnd(page, at):
			lag.addBacklog(feed.Backlog{Items: int64(items), Oldest: first.Time})
			return nil
		case empty == mostEmpty: // the rest is unknown
			at, known := records.TokenLSN(m.source, page.Next.Token)
			if !known {
				at = page.Head
			}
			lag.addBacklog(feed.Backlog{Items: max(int64(items), page.Head-at, 1), Oldest: first.Time})
			lag.Exact, lag.Shared = false, lag.Shared || shared
			return nil
		case items >= most:
			distance := head - first.LSN + 1 // both included, as .NET's estimator counts
			lag.addBacklog(feed.Backlog{Items: max(int64(items), distance), Oldest: first.Time})
			lag.Exact, lag.Shared = false, lag.Shared || shared
			return nil
		}
		at = page.Next
	}
}

// isEnd reports whether no change comes after a page read from a position. An empty page may be followed by others,
// because a source may omit changes that are older than a start time.
func (m *meter) isEnd(page feed.Page, from feed.Position) bool {
	if n := len(page.Changes); n > 0 {
		return page.Head > 0 && page.Changes[n-1].LSN >= page.Head
	}
	lsn, ok := records.TokenLSN(m.source, page.Next.Token)
	return page.Next.Token == from.Token || ok && page.Head > 0 && lsn >= page.Head
}

// addBacklog adds to the pending changes.
func (l *Lag) addBacklog(backlog feed.Backlog) {
	l.Pending += backlog.Items
	l.untimed = l.untimed || backlog.Items > 0 && backlog.Oldest.IsZero()
	if l.Oldest.IsZero() || !backlog.Oldest.IsZero() && backlog.Oldest.Before(l.Oldest) {
		l.Oldest = backlog.Oldest
	}
}

// addPart adds the lag of a part of the range, or of a lease to a total.
func (l *Lag) addPart(part Lag) {
	l.addBacklog(feed.Backlog{Items: part.Pending, Oldest: part.Oldest})
	l.untimed = l.untimed || part.untimed
	l.Exact, l.Shared = l.Exact && part.Exact, l.Shared || !part.Exact && part.Shared
}
