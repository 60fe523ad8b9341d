package changefeed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/internal/service"
)

// When a lease may be removed because others cover its range
//
// A create whose answer was lost may arrive minutes later, when the lease that it made at
// the second try has been split and removed. Its range then has leases twice. The late lease
// is redundant: for each of its keys there is another lease that has come at least as
// far. A position means that all before it is done, so nothing is lost without the lease;
// and nothing comes out of order, because its own worker removes it, between two batches.
//
// Two leases must never be removed each in favour of the other. So leases are ranked: by
// position, then by generation (a child's is one higher than its parent's), then those that
// were ever taken before those that were not, then by range.
// A lease goes only in favour of leases that rank higher. A lease never sinks in rank, and
// whatever replaces it ranks higher still: the children of a split by their generation,
// the leases that make it redundant by this rule. So each of its keys keeps a lease of
// higher rank, whatever happens at once with the removal, however old the view behind the
// decision, and however late the delete arrives. The delete is conditional on the ETag,
// because the lease itself may have moved on.
//
// All this is known only of leases that this processor has made, which have a generation,
// and of positions that can be compared. Where others are involved nothing is removed: the
// overlap is reported.

// generationProperty counts the splits that led to a lease of ours.
const generationProperty = "changefeed.generation"

// generation is 0 for a lease of which it is not known.
func (l Record) generation() int {
	n, _ := strconv.Atoi(l.Properties[generationProperty])
	return max(n, 0)
}

func (l *Record) setGeneration(n int) { l.setProperty(generationProperty, strconv.Itoa(n)) }

// isOurs reports whether this processor has made the lease and no other kind holds it.
func (l Record) isOurs() bool {
	_, made := l.Properties[generationProperty]
	return made && l.Kind == KindLease && l.Version == 1 && l.Err == nil && l.State.isKnown() && (l.Free() || l.Epoch != "")
}

// covers reports whether a lease is redundant: it is live, and leases of higher rank cover
// its range.
func (v *view) covers(lease Record) bool {
	if lease.State != StateLive || !lease.isOurs() {
		return false
	}
	others := v.overlapping(lease)
	if len(others) == 0 || slices.ContainsFunc(others, func(other Record) bool { return !other.isOurs() }) {
		return false
	}
	above := v.ranking()
	others = slices.DeleteFunc(others, func(other Record) bool { return !above(other, lease) })
	return len(others) > 0 && len(holes(lease.Range, others)) == 0
}

// overlapping are the other leases that share keys with a lease, by the beginning of their ranges.
func (v *view) overlapping(lease Record) (others []Record) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id, other := range v.byID {
		if id != lease.ID && other.Kind == KindLease && other.State != StateRetired && other.Range.Overlaps(lease.Range) {
			others = append(others, other)
		}
	}
	slices.SortFunc(others, func(a, b Record) int { return strings.Compare(a.Range.Min, b.Range.Min) })
	return others
}

// ranking compares leases of this unit: see [Record.above]. A lease that was made for a hole
// begins at the time at which the unit began. Nobody is owed older changes, so it has come as
// far as a lease without a start at the same token.
func (v *view) ranking() (above func(lease, other Record) bool) {
	origin, known := v.origin()
	if !known {
		return Record.above
	}
	return func(lease, other Record) bool {
		for _, at := range []*Position{&lease.Position, &other.Position} {
			if at.Token != "" && at.Start.Time().Equal(origin.Time()) {
				at.Start = Start{}
			}
		}
		return lease.above(other)
	}
}

// above reports whether a lease ranks higher than another. It is false when the two cannot be compared.
func (l Record) above(other Record) bool {
	further, comparable := l.Position.compare(other.Position)
	return comparable && cmp.Or(
		further,
		cmp.Compare(l.generation(), other.generation()),
		cmp.Compare(min(l.Expiration, 1), min(other.Expiration, 1)),
		cmp.Compare(other.Range.Min, l.Range.Min),
		cmp.Compare(l.Range.Max, other.Range.Max),
	) > 0
}

// compare orders positions, if both are LSNs in quotes, as the service's are, or nothing
// was read from either yet. It is not ok for reads from different times, whose changes differ.
func (p Position) compare(other Position) (order int, ok bool) {
	if p == other {
		return 0, true
	}
	a, read := service.LSN(p.Token)
	b, otherRead := service.LSN(other.Token)
	switch {
	case read && otherRead:
		return cmp.Compare(a, b), p.Start.Time().Equal(other.Start.Time())
	case read && other.Token == "" && !other.Start.IsNow():
		return 1, true
	case otherRead && p.Token == "" && !p.Start.IsNow():
		return -1, true
	}
	return 0, false
}

// dueProperty of a lease that was made under the lock says until when its create had to arrive,
// by the store's clock, and when it was sent, by its maker's: a processor of another kind that has
// had the lease keeps the property, but not the [Record.Timestamp].
const dueProperty = "changefeed.due"

func (l *Record) setDue(due time.Time) {
	l.setProperty(dueProperty, due.UTC().Format(time.RFC3339Nano)+" "+l.Timestamp.Format(time.RFC3339Nano))
}

// isLate reports whether the lease was created after its maker's lock: somebody else may have
// covered its range since, with leases that are cut in another way. Nobody may take it, unless
// the next holder of the lock adopts it.
func (l Record) isLate() bool {
	text, sent, _ := strings.Cut(l.Properties[dueProperty], " ")
	due, err := time.Parse(time.RFC3339Nano, text)
	return err == nil && l.untouched() && sent == l.Timestamp.UTC().Format(time.RFC3339Nano) && l.Updated.After(due)
}

// dropLate removes the leases whose creates were late, once others have their ranges. The view
// has them as retired.
func (r *run) dropLate(ctx context.Context) {
	leases, _ := r.view.leases()
	for _, lease := range r.view.kind(KindLease) {
		if lease.isLate() && len(holes(lease.Range, leases)) == 0 {
			r.report(ctx, OriginLeaseStore, lease.Token, r.discard(ctx, lease))
		}
	}
}

// untouched reports whether a lease is ours and nobody has ever taken it.
func (l Record) untouched() bool { return l.isOurs() && l.Free() && l.Expiration == 0 }

// dropRedundant has our workers give up the leases that others cover.
func (b *balancer) dropRedundant() {
	leases, _ := b.view.leases()
	reach := ""
	overlap := false
	for _, lease := range leases { // ordered by Range.Min
		overlap = overlap || lease.Range.Min < reach
		reach = max(reach, lease.Range.Max)
	}
	for _, lease := range leases {
		if w, _ := b.claims.worker(lease.Range); overlap && w != nil && lease.owner() == b.me && b.view.covers(lease) {
			w.stop(ending{why: ReasonRedundant})
		}
	}
}

// untangle removes leases that overlap others, before the unit has begun. They are left
// from an attempt to make the leases when the partitions were others, or a create of that
// attempt has arrived late. Nobody has worked on them yet.
func (r *run) untangle(ctx context.Context) error {
	leases, _ := r.view.leases()
	reach := ""
	for _, lease := range leases { // ordered by Range.Min
		if lease.Range.Min >= reach || !lease.untouched() {
			reach = max(reach, lease.Range.Max)
			continue
		}
		if err := r.discard(ctx, lease); err != nil {
			return err
		}
	}
	return nil
}

// discard removes a lease that nobody has taken. The ETag refuses it if somebody has meanwhile.
func (r *run) discard(ctx context.Context, lease Record) error {
	err := r.erase(ctx, lease)
	switch {
	case err == nil || errors.Is(err, ErrNotFound):
		r.view.drop(lease.ID)
	case errors.Is(err, ErrConflict):
		r.view.distrust() // it has moved on
	default:
		return fmt.Errorf("remove lease %s, which nobody has taken: %w", lease.Token, err)
	}
	return nil
}

// erase deletes a record or, without the right to delete, retires it.
func (r *run) erase(ctx context.Context, record Record) error {
	err := r.store.Delete(ctx, record)
	if errors.Is(err, ErrForbidden) {
		record.State, record.Timestamp = StateRetired, timestamp()
		_, err = r.store.Update(ctx, record)
	}
	return err
}

// yield removes a lease that others cover. A lease that has moved on meanwhile, or cannot be
// removed now, is freed instead, and whoever takes it decides again.
func (w *worker) yield() Reason {
	ctx, cancel := context.WithTimeout(w.untilDrained, storeTimeout)
	defer cancel()
	var mine Record
	err := w.keeper.note(ctx, func(lease *Record) { mine = *lease })
	if err == nil && w.r.view.covers(mine) {
		if err = w.remove(ctx); err == nil {
			return ReasonRedundant
		}
	}
	if w.untilLost.Err() != nil {
		return ReasonLost
	}
	w.report(w.untilLost, OriginLeaseStore, err)
	pause(w.untilStopped, w.r.opts.Poll)
	return w.release(ending{why: ReasonRedundant})
}
