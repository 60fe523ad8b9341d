package changefeed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// When a lease may be removed because others cover its range
//
// A create whose answer was lost may arrive minutes later, when the lease that it made at
// the second try has been split and removed. Its range then has leases twice. The late one
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
// higher rank, whatever happens at once with the removal, however old the view that it
// was decided on, and however late the delete arrives. That the lease itself has not
// moved on is what the ETag is for.
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
func (v *view) covers(l Record) bool {
	if l.State != StateLive || !l.isOurs() {
		return false
	}
	others := v.overlapping(l)
	if len(others) == 0 || slices.ContainsFunc(others, func(o Record) bool { return !o.isOurs() }) {
		return false
	}
	above := v.ranking()
	others = slices.DeleteFunc(others, func(o Record) bool { return !above(o, l) })
	return len(others) > 0 && len(holes(l.Range, others)) == 0
}

// overlapping are the other leases that share keys with one, by the beginning of their ranges.
func (v *view) overlapping(l Record) (others []Record) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id, o := range v.byID {
		if id != l.ID && o.Kind == KindLease && o.State != StateRetired && o.Range.Overlaps(l.Range) {
			others = append(others, o)
		}
	}
	slices.SortFunc(others, func(a, b Record) int { return strings.Compare(a.Range.Min, b.Range.Min) })
	return others
}

// ranking says of leases of this unit which ranks higher: see [Record.above]. A lease that was
// made for a hole begins at the time at which the unit began. Nobody is owed what is older,
// so it has come as far as a lease without a start at the same token.
func (v *view) ranking() (above func(l, o Record) bool) {
	origin, known := v.origin()
	if !known {
		return Record.above
	}
	return func(l, o Record) bool {
		for _, at := range []*Position{&l.Position, &o.Position} {
			if at.Token != "" && at.Start.Time().Equal(origin.Time()) {
				at.Start = Start{}
			}
		}
		return l.above(o)
	}
}

// above reports whether a lease ranks higher than another one. It is false when the two cannot be compared.
func (l Record) above(o Record) bool {
	further, comparable := l.Position.compare(o.Position)
	return comparable && cmp.Or(
		further,
		cmp.Compare(l.generation(), o.generation()),
		cmp.Compare(min(l.Expiration, 1), min(o.Expiration, 1)),
		cmp.Compare(o.Range.Min, l.Range.Min),
		cmp.Compare(l.Range.Max, o.Range.Max),
	) > 0
}

// compare orders positions, if both are LSNs in quotes, as the service's are, or nothing
// was read yet from one of them. Readers from different times show different changes.
func (p Position) compare(o Position) (order int, ok bool) {
	if p == o {
		return 0, true
	}
	a, read := p.lsn()
	b, otherRead := o.lsn()
	switch {
	case read && otherRead:
		return cmp.Compare(a, b), p.Start.Time().Equal(o.Start.Time())
	case read && o.Token == "" && !o.Start.IsNow():
		return 1, true
	case otherRead && p.Token == "" && !p.Start.IsNow():
		return -1, true
	}
	return 0, false
}

// lsn is the number of a token that is one.
func (p Position) lsn() (n uint64, ok bool) {
	n, err := strconv.ParseUint(strings.Trim(p.Token, `"`), 10, 64)
	return n, err == nil
}

// untouched reports whether a lease is ours and nobody has ever taken it.
func (l Record) untouched() bool { return l.isOurs() && l.Free() && l.Expiration == 0 }

// dropRedundant has our workers give up the leases that others cover.
func (b *balancer) dropRedundant() {
	leases, _ := b.view.leases()
	reach := ""
	overlap := false
	for _, l := range leases { // ordered by Range.Min
		overlap = overlap || l.Range.Min < reach
		reach = max(reach, l.Range.Max)
	}
	for _, l := range leases {
		if w, _ := b.claims.worker(l.Range); overlap && w != nil && l.owner() == b.me && b.view.covers(l) {
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
	for _, l := range leases { // ordered by Range.Min
		if l.Range.Min >= reach || !l.untouched() {
			reach = max(reach, l.Range.Max)
			continue
		}
		if err := r.discard(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// discard removes a lease that nobody has taken. If somebody has meanwhile, its ETag is another.
func (r *run) discard(ctx context.Context, l Record) error {
	err := r.store.Delete(ctx, l)
	if errors.Is(err, ErrForbidden) {
		l.State, l.Timestamp = StateRetired, timestamp()
		_, err = r.store.Update(ctx, l)
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("remove lease %s, which overlaps another: %w", l.Token, err)
	}
	r.view.drop(l.ID)
	return nil
}

// yield removes a lease that others cover. If it has moved on since that was seen, or if
// it cannot be removed now, it is freed, and whoever takes it looks again.
func (w *worker) yield() Reason {
	ctx, cancel := context.WithTimeout(w.untilDrained, storeTimeout)
	defer cancel()
	var mine Record
	err := w.keeper.note(ctx, func(l *Record) { mine = *l })
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
