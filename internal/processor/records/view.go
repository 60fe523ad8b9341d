// Package records contains an instance's picture of its unit's records, and the rules for these records: who owns a
// lease and until when, which lease may be removed, and where the unit began.
package records

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
)

// View is an instance's picture of its unit's records: the last listing, with the writes made or received since. A
// stale view costs only a conflict and another listing, because every resulting write is conditional on the ETag.
type View struct {
	store  feed.LeaseStore
	source feed.Source
	gate   chan struct{} // protects a listing; a channel, because listing waits

	mu         sync.Mutex
	records    map[string]feed.Record // by their ids
	events     uint64                 // news and contradictions so far
	news       map[string]uint64      // the event at which we last wrote or received a record
	clock      time.Time              // the store's time ...
	answered   time.Time              // ... when we received that; from then on our monotonic clock counts
	listed     time.Time              // when the last listing was requested; zero is stale
	distrusted uint64                 // the event of the last contradiction
}

// NewView makes an empty view. The source says which partitions version 0 leases belong to.
func NewView(store feed.LeaseStore, source feed.Source) *View {
	return &View{
		store: store, source: source, gate: make(chan struct{}, 1),
		records: map[string]feed.Record{}, news: map[string]uint64{},
	}
}

// List reads all records, unless a listing was requested after since.
func (v *View) List(ctx context.Context, since time.Time) error {
	select {
	case v.gate <- struct{}{}:
		defer func() { <-v.gate }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if v.Listed().After(since) {
		return nil
	}
	asked, events := time.Now(), v.countEvents()
	ctx, cancel := context.WithTimeout(ctx, StoreTimeout)
	defer cancel()
	records, now, err := v.store.List(ctx)
	if errors.Is(err, feed.ErrNotFound) {
		return &missingError{err}
	}
	if err != nil {
		return err
	}
	if err := v.resolveRanges(ctx, records); err != nil {
		return err
	}
	byID := make(map[string]feed.Record, len(records))
	for _, record := range records {
		id := record.ID
		for _, taken := byID[id]; taken; _, taken = byID[id] {
			id += "#" // two documents may have the same id, under different partition keys
		}
		byID[id] = withJudgement(record)
	}
	v.replaceRecords(byID, now, asked, events)
	return nil
}

// missingError is the error of a listing without the lease container. The type is necessary because the monitored
// container, which a listing may ask for its partitions, can be missing too.
type missingError struct{ error }

// Unwrap returns the error of the store.
func (e *missingError) Unwrap() error { return e.error }

// Put applies a record that was written or received. Put reports whether the record is news: another owner, another
// state or a new record, and not just a renewal.
func (v *View) Put(record feed.Record) (news bool) {
	v.changeRecord(record.ID, func(old feed.Record, known bool) feed.Record {
		if record.Kind == feed.KindLease && record.Range.Empty() { // an old lease does not store its range
			record.Range = old.Range
		}
		news = !known || old.Owner != record.Owner || old.Epoch != record.Epoch || old.State != record.State ||
			IsMarkedPaused(old) != IsMarkedPaused(record)
		return withJudgement(record)
	})
	return news
}

// Heard applies the news of a follower, and reports whether a round should follow. A follower does not see deletes: if
// a lease covers keys of another lease, which has been split or merged, the records must be listed anew.
func (v *View) Heard(changed []feed.Record, now time.Time) (news bool) {
	for _, record := range changed {
		if !v.Put(record) {
			continue
		}
		news = true
		isLive := func(l feed.Record) bool { return l.State == feed.StateLive }
		if record.Kind == feed.KindLease && isLive(record) && slices.ContainsFunc(v.overlappingLeases(record), isLive) {
			v.Distrust()
		}
	}
	v.answeredAt(now)
	return news
}

// withJudgement adds an error to a lease in a state that this version does not know. A late lease counts as deleted.
func withJudgement(l feed.Record) feed.Record {
	if IsLate(l) {
		l.State = feed.StateRetired
	}
	if l.Kind == feed.KindLease && l.Err == nil && !IsKnownState(l.State) {
		l.Err = fmt.Errorf("%w: state of %s is %v: want %v, %v or %v", feed.ErrBadLease, l.ID, l.State, feed.StateLive,
			feed.StateSplitting, feed.StateRetired)
	}
	return l
}

// Kind returns the records of a kind, by id.
func (v *View) Kind(kind feed.Kind) []feed.Record {
	return v.Where(func(_ string, record feed.Record) bool { return record.Kind == kind })
}

// LeasesWhere returns the leases for which holds is true, including invalid leases, by id.
func (v *View) LeasesWhere(holds func(feed.Record) bool) []feed.Record {
	return v.Where(func(_ string, record feed.Record) bool { return record.Kind == feed.KindLease && holds(record) })
}

// Leases returns the valid leases, which have different ranges, and the documents among the leases that are invalid or
// cover a range a second time.
func (v *View) Leases() (good, bad []feed.Record) {
	byRange := map[feed.Range]feed.Record{}
	for _, lease := range v.Kind(feed.KindLease) {
		switch other, twice := byRange[lease.Range]; {
		// A retired lease counts as deleted.
		case lease.State == feed.StateRetired:
		case lease.Err != nil:
			bad = append(bad, lease)
		case !twice:
			byRange[lease.Range] = lease
		case v.outranks(lease, other):
			byRange[lease.Range] = lease
			bad = append(bad, asSpareOf(other, lease))
		default:
			bad = append(bad, asSpareOf(lease, other))
		}
	}
	good = slices.SortedFunc(maps.Values(byRange), func(a, b feed.Record) int {
		return strings.Compare(a.Range.Min+"-"+a.Range.Max, b.Range.Min+"-"+b.Range.Max)
	})
	return good, bad
}

// outranks decides between two leases for the same range: live goes before splitting, owned before free, version 1
// before version 0. If two old leases belong to merged partitions, they know only the range of both: then the earlier
// position wins, so that no change is skipped. Otherwise the lease with a token wins, and then the last written lease.
func (v *View) outranks(l feed.Record, other feed.Record) bool {
	switch {
	case (l.State == feed.StateLive) != (other.State == feed.StateLive):
		return l.State == feed.StateLive
	case l.Free() != other.Free():
		return other.Free()
	case l.Version == 0 && other.Version == 0:
		return v.isBefore(l.Position, other.Position)
	case l.Version != other.Version:
		return other.Version == 0
	}
	if untouched := other.Position.Token == ""; (l.Position.Token == "") != untouched {
		return untouched
	}
	return l.Updated.After(other.Updated)
}

// isBefore compares positions by the LSNs of their tokens. A position without a token, or with an unknown LSN, is
// before all others.
func (v *View) isBefore(p feed.Position, other feed.Position) bool {
	a, _ := TokenLSN(v.source, p.Token)
	b, _ := TokenLSN(v.source, other.Token)
	return a < b
}

// asSpareOf marks a lease as the spare of another.
func asSpareOf(l feed.Record, other feed.Record) feed.Record {
	l.Err = fmt.Errorf("%w: %s and %s are for the same range %s; the first is ignored: delete one",
		feed.ErrOverlap, l.ID, other.ID, l.Range)
	return l
}
