// Package records is the picture that an instance has of the records of its unit, and the rules by which it reads them: whose a
// lease is and until when, which lease may go, and where the unit began.
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

// View is an instance's picture of its unit's records: the last listing, with the writes
// made and heard of since. A stale view costs a conflict and another listing, no more,
// because every write that is based on it is conditional on the ETag.
type View struct {
	store  feed.LeaseStore
	source feed.Source
	gate   chan struct{} // held by whoever lists; a channel, because listing waits

	mu         sync.Mutex
	records    map[string]feed.Record // by their ids
	news       map[string]time.Time   // when a record was last written by us, or heard of
	clock      time.Time              // the store's time ...
	answered   time.Time              // ... when we got that; from then on our monotonic clock counts
	listed     time.Time              // when the last listing was asked for; zero is stale
	distrusted time.Time              // last
}

// NewView makes a view that shows nothing yet. The source says which partitions version 0 leases are for.
func NewView(store feed.LeaseStore, source feed.Source) *View {
	return &View{
		store: store, source: source, gate: make(chan struct{}, 1),
		records: map[string]feed.Record{}, news: map[string]time.Time{},
	}
}

// List reads all records, unless a listing that was asked for after since is there already.
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
	asked := time.Now()
	ctx, cancel := context.WithTimeout(ctx, StoreTimeout)
	defer cancel()
	records, now, err := v.store.List(ctx)
	if errors.Is(err, feed.ErrNotFound) {
		return &missingError{err}
	}
	if err != nil {
		return err
	}
	if err := v.resolve(ctx, records); err != nil {
		return err
	}
	byID := make(map[string]feed.Record, len(records))
	for _, record := range records {
		id := record.ID
		for _, taken := byID[id]; taken; _, taken = byID[id] {
			id += "#" // two documents may share an id, under different partition keys
		}
		byID[id] = withJudgement(record)
	}
	v.replace(byID, now, asked)
	return nil
}

// missingError is a listing that did not find the lease container. The monitored container, which a listing may ask for its
// partitions, can be missing too.
type missingError struct{ error }

// Unwrap gives the error of the store.
func (e *missingError) Unwrap() error { return e.error }

// Put applies a record that was written or heard of. It reports whether that is news:
// another owner, another state or a new record, and not just a renewal.
func (v *View) Put(record feed.Record) (news bool) {
	v.change(record.ID, func(old feed.Record, known bool) feed.Record {
		if record.Kind == feed.KindLease && record.Range.Empty() { // an old lease does not store its range
			record.Range = old.Range
		}
		news = !known || old.Owner != record.Owner || old.Epoch != record.Epoch || old.State != record.State
		return withJudgement(record)
	})
	return news
}

// Heard applies the news of a follower, and reports whether a round should follow. A follower hears of no deletes: so a lease
// for keys of another one, which has been split or merged, says that the picture must be listed anew.
func (v *View) Heard(changed []feed.Record, now time.Time) (news bool) {
	for _, record := range changed {
		if !v.Put(record) {
			continue
		}
		news = true
		isLive := func(l feed.Record) bool { return l.State == feed.StateLive }
		if record.Kind == feed.KindLease && isLive(record) && slices.ContainsFunc(v.overlapping(record), isLive) {
			v.Distrust()
		}
	}
	v.answeredAt(now)
	return news
}

// withJudgement adds the error of a lease in a state that this version does not know. A lease that came
// too late counts as one that is gone.
func withJudgement(l feed.Record) feed.Record {
	if IsLate(l) {
		l.State = feed.StateRetired
	}
	if l.Kind == feed.KindLease && l.Err == nil && !IsKnownState(l.State) {
		l.Err = fmt.Errorf("%w: state of %s is %v: want %v, %v or %v", feed.ErrBadLease, l.ID, l.State, feed.StateLive, feed.StateSplitting, feed.StateRetired)
	}
	return l
}

// Kind lists the records of one kind, by id.
func (v *View) Kind(kind feed.Kind) []feed.Record {
	return v.Where(func(_ string, record feed.Record) bool { return record.Kind == kind })
}

// LeasesWhere lists the leases for which a condition holds, also of those that are broken, by id.
func (v *View) LeasesWhere(holds func(feed.Record) bool) []feed.Record {
	return v.Where(func(_ string, record feed.Record) bool { return record.Kind == feed.KindLease && holds(record) })
}

// Leases lists the leases to be worked on, which have different ranges, and the documents
// among them that are broken or cover a range for the second time.
func (v *View) Leases() (good, bad []feed.Record) {
	byRange := map[feed.Range]feed.Record{}
	for _, lease := range v.Kind(feed.KindLease) {
		switch other, twice := byRange[lease.Range]; {
		// It stands for one that was deleted.
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

// outranks decides between two leases for the same range: live goes before splitting, owned
// before free. Two old leases whose partitions were merged know only the range of both:
// there the earlier position wins, so that nothing is skipped. Else the lease that was
// worked on wins: it has a token, and was written last.
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

// isBefore compares positions by the LSNs of their tokens. No token is before all, and so is one whose LSN is not known.
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
