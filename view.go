package changefeed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/mirror"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/service"
)

// view is an instance's picture of its unit's records: the last listing, with the writes
// made and heard of since. A stale view costs a conflict and another listing, no more,
// because every write that is based on it is conditional on the ETag.
type view struct {
	*mirror.Mirror[feed.Record]
	store  feed.LeaseStore
	source feed.Source
	gate   chan struct{} // held by whoever lists; a channel, because listing waits
}

func newView(store feed.LeaseStore, source feed.Source) *view {
	return &view{mirror.New(func(l feed.Record) time.Time { return l.Updated }), store, source, make(chan struct{}, 1)}
}

// list reads all records, unless a listing that was asked for after since is there already.
func (v *view) list(ctx context.Context, since time.Time) error {
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
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
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
	v.Replace(byID, now, asked)
	return nil
}

// missingError is a listing that did not find the lease container. The monitored container, which a listing may ask for its
// partitions, can be missing too.
type missingError struct{ error }

// Unwrap gives the error of the store.
func (e *missingError) Unwrap() error { return e.error }

// vanished returns why the records of the unit are gone, if the listing that came out as listed shows that. The marker is
// that of the unit as it was joined.
func (v *view) vanished(marker feed.Record, listed error) error {
	if missing, ok := errors.AsType[*missingError](listed); ok {
		return fmt.Errorf("%w: the lease container is missing: %w", feed.ErrLeasesGone, missing.error)
	}
	if listed != nil || marker.ID == "" {
		return nil
	}
	info, there := v.marker()
	switch {
	case there && beginsAnew(info, marker):
		return fmt.Errorf("%w: the unit was begun anew at %s", feed.ErrLeasesGone, info.Timestamp.Format(time.RFC3339))
	case !there && len(v.kind(feed.KindLease)) == 0:
		return fmt.Errorf("%w: the lease container has neither leases nor the marker of the unit, as when it was deleted and made anew", feed.ErrLeasesGone)
	}
	return nil
}

// beginsAnew reports whether a unit with a later marker has new leases too. If somebody deletes the marker alone, the next
// one is made for the leases that are there. A marker that is older has arrived late, from an instance that is dead.
func beginsAnew(later, marker feed.Record) bool {
	if !later.Timestamp.After(marker.Timestamp) || later.Properties[notes.RepairedProperty] != "" {
		return false
	}
	found, err := time.Parse(time.RFC3339Nano, notes.TimeOf(later.Properties[notes.FoundProperty]))
	return err != nil || found.After(marker.Updated)
}

// resolve finds the ranges of old version 0 leases, which know only the id of their
// partition; after a split, that of its descendants.
func (v *view) resolve(ctx context.Context, records []feed.Record) error {
	var partitions []feed.Partition
	for i := range records {
		record := &records[i]
		if record.Kind != feed.KindLease || record.Err != nil || !record.Range.Empty() {
			continue
		}
		if partitions == nil {
			var err error
			if partitions, err = v.source.Partitions(ctx); err != nil {
				return err
			}
		}
		if record.Range = lineage(record.Token, partitions); record.Range.Empty() {
			record.Err = fmt.Errorf("%w: %s has no FeedRange, and no partition %q is known: delete it", feed.ErrBadLease, record.ID, record.Token)
		}
	}
	return nil
}

// lineage is the range of a partition, or of all that came from it.
func lineage(id string, partitions []feed.Partition) (r feed.Range) {
	for _, partition := range partitions {
		if partition.ID == id {
			return partition.Range
		}
		if !slices.Contains(partition.Parents, id) {
			continue
		}
		if r.Empty() {
			r = partition.Range
		}
		r = feed.Range{Min: min(r.Min, partition.Range.Min), Max: max(r.Max, partition.Range.Max)}
	}
	return r
}

// storeTimeout bounds one request to a lease store.
const storeTimeout = 65 * time.Second

// patientStore is a lease store whose writes end, also those that are never answered. An end of
// the time is an error like any other that leaves the outcome unknown.
type patientStore struct{ feed.LeaseStore }

// Create implements [feed.LeaseStore].
func (s patientStore) Create(ctx context.Context, l feed.Record) (feed.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return s.LeaseStore.Create(ctx, l)
}

// Update implements [feed.LeaseStore].
func (s patientStore) Update(ctx context.Context, l feed.Record) (feed.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return s.LeaseStore.Update(ctx, l)
}

// Delete implements [feed.LeaseStore].
func (s patientStore) Delete(ctx context.Context, l feed.Record) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return s.LeaseStore.Delete(ctx, l)
}

// put applies a record that was written or heard of. It reports whether that is news:
// another owner, another state or a new record, and not just a renewal.
func (v *view) put(record feed.Record) (news bool) {
	v.Put(record.ID, func(old feed.Record, known bool) feed.Record {
		if record.Kind == feed.KindLease && record.Range.Empty() { // an old lease does not store its range
			record.Range = old.Range
		}
		news = !known || old.Owner != record.Owner || old.Epoch != record.Epoch || old.State != record.State
		return withJudgement(record)
	})
	return news
}

// heard applies the news of a follower, and reports whether a round should follow.
func (v *view) heard(changed []feed.Record, now time.Time) (news bool) {
	for _, record := range changed {
		news = v.put(record) || news
	}
	v.Answered(now)
	return news
}

// withJudgement adds the error of a lease in a state that this version does not know. A lease that came
// too late counts as one that is gone.
func withJudgement(l feed.Record) feed.Record {
	if isLate(l) {
		l.State = feed.StateRetired
	}
	if l.Kind == feed.KindLease && l.Err == nil && !isKnownState(l.State) {
		l.Err = fmt.Errorf("%w: state of %s is %v: want %v, %v or %v", feed.ErrBadLease, l.ID, l.State, feed.StateLive, feed.StateSplitting, feed.StateRetired)
	}
	return l
}

// kind lists the records of one kind, by id.
func (v *view) kind(kind feed.Kind) []feed.Record {
	return v.Where(func(_ string, record feed.Record) bool { return record.Kind == kind })
}

// leasesWhere lists the leases for which a condition holds, also of those that are broken, by id.
func (v *view) leasesWhere(holds func(feed.Record) bool) []feed.Record {
	return v.Where(func(_ string, record feed.Record) bool { return record.Kind == feed.KindLease && holds(record) })
}

// leases lists the leases to be worked on, which have different ranges, and the documents
// among them that are broken or cover a range for the second time.
func (v *view) leases() (good, bad []feed.Record) {
	byRange := map[feed.Range]feed.Record{}
	for _, lease := range v.kind(feed.KindLease) {
		switch other, twice := byRange[lease.Range]; {
		// It stands for one that was deleted.
		case lease.State == feed.StateRetired:
		case lease.Err != nil:
			bad = append(bad, lease)
		case !twice:
			byRange[lease.Range] = lease
		case outranks(lease, other):
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
func outranks(l feed.Record, other feed.Record) bool {
	switch {
	case (l.State == feed.StateLive) != (other.State == feed.StateLive):
		return l.State == feed.StateLive
	case l.Free() != other.Free():
		return other.Free()
	case l.Version == 0 && other.Version == 0:
		return isBefore(l.Position, other.Position)
	case l.Version != other.Version:
		return other.Version == 0
	}
	if untouched := other.Position.Token == ""; (l.Position.Token == "") != untouched {
		return untouched
	}
	return l.Updated.After(other.Updated)
}

// isBefore compares tokens that are LSNs in quotes, as the service's are; no token is
// before all.
func isBefore(p feed.Position, other feed.Position) bool {
	a, _ := service.LSN(p.Token)
	b, _ := service.LSN(other.Token)
	return a < b
}

// asSpareOf marks a lease as the spare of another.
func asSpareOf(l feed.Record, other feed.Record) feed.Record {
	l.Err = fmt.Errorf("%w: %s and %s are for the same range %s; the first is ignored: delete one",
		feed.ErrOverlap, l.ID, other.ID, l.Range)
	return l
}

// follower keeps the view up to date from the lease container's own feed, if the store can.
type follower struct {
	r    *run
	live atomic.Bool // the feed keeps the view up to date, so rounds need not list
}

// run follows until ctx ends.
func (f *follower) run(ctx context.Context) {
	store, ok := f.r.store.LeaseStore.(feed.Follower)
	if !ok {
		return
	}
	rng := f.r.random("follow")
	cursor, failures := "", 0
	for ctx.Err() == nil {
		asked := time.Now()
		changed, next, now, err := store.Follow(ctx, cursor)
		if err != nil {
			f.live.Store(false)
			f.r.report(ctx, feed.OriginLeaseStore, "", err)
			if errors.Is(err, feed.ErrNotFound) {
				f.r.wake() // to list, which shows whether the container is gone
			}
			failures++
			cursor = "" // the cursor itself may be refused
			pause.For(ctx, f.r.backoff(rng, failures))
			continue
		}
		if cursor == "" {
			f.r.view.Distrust() // only a listing has the changes before the cursor
			f.r.wake()
		}
		cursor, failures = next, 0
		f.live.Store(true)
		if f.r.view.heard(changed, now) {
			f.r.wake()
		}
		f.verify(changed)
		// A store may answer at once each time, so the pace is bounded here.
		pause.For(ctx, f.r.opts.Acquire/roundsPerEvent-time.Since(asked))
	}
}

// verify makes keepers write the leases that seem to have another owner: only a conditional write proves it.
func (f *follower) verify(changed []feed.Record) {
	for _, record := range changed {
		if w, _ := f.r.claims.worker(record.Range); w != nil && record.Kind == feed.KindLease && ownerOf(record) != f.r.me {
			w.keeper.verify()
		}
	}
}
