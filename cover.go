package changefeed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/rank"
)

// How the leases tile the key space
//
// After each listing the balancer looks for holes and overlaps. Holes are repaired. Of leases
// that overlap some are redundant, left from a create that arrived late: package rank says
// which of them may go, and why two are never removed each in favour of the other. All that
// is known only of leases that this processor has made, which have a generation, and of
// positions that can be compared. Where others are involved nothing is removed: the overlap
// is reported.

// A flaw is a place where the leases do not tile the key space.
type flaw struct {
	id    string
	holes []feed.Range // that have no lease
	err   *feed.Error  // of leases that overlap
}

// checkCover verifies that the leases tile the key space. A hole is repaired under the
// lock, from where the unit began, because how far the lost lease had come is unknown.
// Leases that overlap are reported: nothing here shows which of them is right.
func (b *balancer) checkCover(ctx context.Context) {
	flaws := b.overlaps()
	if open := b.holes(); len(open) > 0 {
		flaws = append(flaws, flaw{id: fmt.Sprint(open), holes: open})
	} else {
		b.tiled, _ = b.view.leases()
	}
	for _, f := range b.lasting(flaws) {
		if f.err != nil {
			b.reported[f.id] = true
			b.raise(f.err)
			continue
		}
		start := b.recorded()
		b.raise(&feed.Error{Origin: feed.OriginBalancer, Err: fmt.Errorf("%w: %v; creating leases from %v", feed.ErrHole, f.holes, start)})
		bounded, cancel := context.WithTimeout(ctx, b.opts.Acquire) // the round has other work
		_, err := b.locked(bounded, func(ctx context.Context, h *hold) error {
			return maker{b.run, h, start, b.vacancy(f.holes)}.cover(ctx)
		})
		cancel()
		b.report(ctx, feed.OriginBalancer, "", err)
	}
}

// vacancy is when, by the store's clock, work on leases made for holes may begin. Somebody
// has deleted a lease, and its owner hears of that only at its next write.
func (b *balancer) vacancy(open []feed.Range) time.Time {
	trust := b.opts.Expiration
	for _, lease := range b.tiled {
		if slices.ContainsFunc(open, lease.Range.Overlaps) {
			trust = max(trust, lease.Expiration)
		}
	}
	return b.view.Now().Add(trust + clockGrain)
}

// lasting are the flaws that an earlier listing had too. A listing is not of one moment:
// during a split, ours or another processor's, it shows the parent beside its children, or
// neither. So a new flaw is checked again in the next round.
func (b *balancer) lasting(found []flaw) (lasting []flaw) {
	var seen []string
	for _, f := range found {
		seen = append(seen, f.id)
	}
	b.flaws.See(seen)
	for _, f := range found {
		if b.flaws.For(f.id) >= b.opts.Acquire/2 {
			lasting = append(lasting, f)
		} else {
			b.view.Distrust()
		}
	}
	return lasting
}

// holes are the ranges without a lease. A lease of another kind of processor, and a damaged
// lease that has its range, count here: whoever reads there, or repairs the document, must
// not find a second lease.
func (r *run) holes() []feed.Range {
	all, bad := r.view.leases()
	return holes(feed.FullRange(), slices.Concat(all, bad))
}

// overlaps are the leases whose ranges overlap and that were not reported yet.
func (b *balancer) overlaps() (found []flaw) {
	add := func(of feed.Record, id string, err error) {
		if !b.reported[id] {
			found = append(found, flaw{id: id, err: &feed.Error{Origin: feed.OriginBalancer, Lease: of.Token, Err: err}})
		}
	}
	good, bad := b.view.leases()
	for _, lease := range bad {
		if errors.Is(lease.Err, feed.ErrOverlap) {
			add(lease, lease.ID, lease.Err)
		}
	}
	for i := 1; i < len(good); i++ {
		left, right := good[i-1], good[i]
		if left.State == feed.StateSplitting || right.State == feed.StateSplitting || !left.Range.Overlaps(right.Range) {
			continue
		}
		if !b.view.covers(left) && !b.view.covers(right) { // else its worker, or whoever takes it, removes it
			add(left, left.ID+" "+right.ID, fmt.Errorf("%w: %s and %s: keys in both are delivered twice", feed.ErrOverlap, left.ID, right.ID))
		}
	}
	return found
}

// generationOf is how many splits led to a lease of ours; 0 for one of which it is not known.
func generationOf(l feed.Record) int {
	return int(notes.Number(l.Properties, notes.GenerationProperty))
}

func setGeneration(l *feed.Record, n int) {
	setProperty(l, notes.GenerationProperty, notes.PlainNumber(int64(n)))
}

// isOurs reports whether this processor has made the lease and no other kind holds it.
func isOurs(l feed.Record) bool {
	_, made := l.Properties[notes.GenerationProperty]
	return made && l.Kind == feed.KindLease && l.Version == 1 && l.Err == nil && isKnownState(l.State) && (l.Free() || l.Epoch != "")
}

// covers reports whether a lease is redundant: it is live, and leases of higher rank cover
// its range.
func (v *view) covers(lease feed.Record) bool {
	if lease.State != feed.StateLive || !isOurs(lease) {
		return false
	}
	others := v.overlapping(lease)
	if len(others) == 0 || slices.ContainsFunc(others, func(other feed.Record) bool { return !isOurs(other) }) {
		return false
	}
	above := v.ranking()
	others = slices.DeleteFunc(others, func(other feed.Record) bool { return !above(other, lease) })
	return len(others) > 0 && len(holes(lease.Range, others)) == 0
}

// overlapping are the other leases that share keys with a lease.
func (v *view) overlapping(lease feed.Record) (others []feed.Record) {
	return v.Where(func(id string, other feed.Record) bool {
		return id != lease.ID && other.Kind == feed.KindLease && other.State != feed.StateRetired && other.Range.Overlaps(lease.Range)
	})
}

// ranking compares leases of this unit: see [rank.Above]. A lease that was made for a hole
// begins at the time at which the unit began. Nobody is owed older changes, so it has come as
// far as a lease without a start at the same token.
func (v *view) ranking() (above func(lease, other feed.Record) bool) {
	origin, known := v.origin()
	ranked := func(l feed.Record) rank.Lease {
		at := rank.Position{Token: l.Position.Token, Since: l.Position.Start.Time(), Unknown: l.Position.Token == "" && l.Position.Start.IsNow()}
		if known && at.Token != "" && at.Since.Equal(origin.Time()) {
			at.Since = time.Time{}
		}
		return rank.Lease{Min: l.Range.Min, Max: l.Range.Max, Position: at, Generation: generationOf(l), Taken: l.Expiration > 0}
	}
	return func(lease, other feed.Record) bool { return rank.Above(ranked(lease), ranked(other)) }
}

// isLate reports whether the lease was created after its maker's lock: somebody else may have
// covered its range since, with leases that are cut in another way. Nobody may take it, unless
// the next holder of the lock adopts it.
func isLate(l feed.Record) bool {
	due, ok := notes.ReadDue(l.Properties[notes.DueProperty])
	return ok && isUntouched(l) && due.Sent.Equal(l.Timestamp) && l.Updated.After(due.By)
}

// dropLate removes the leases whose creates were late, once others have their ranges. The view
// has them as retired.
func (r *run) dropLate(ctx context.Context) {
	leases, _ := r.view.leases()
	for _, lease := range r.view.kind(feed.KindLease) {
		if isLate(lease) && len(holes(lease.Range, leases)) == 0 {
			r.report(ctx, feed.OriginLeaseStore, lease.Token, r.discard(ctx, lease))
		}
	}
}

// isUntouched reports whether a lease is ours and nobody has ever taken it.
func isUntouched(l feed.Record) bool { return isOurs(l) && l.Free() && l.Expiration == 0 }

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
		if w, _ := b.claims.worker(lease.Range); overlap && w != nil && ownerOf(lease) == b.me && b.view.covers(lease) {
			w.stop(ending{why: feed.ReasonRedundant})
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
		if lease.Range.Min >= reach || !isUntouched(lease) {
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
func (r *run) discard(ctx context.Context, lease feed.Record) error {
	err := r.erase(ctx, lease)
	switch {
	case err == nil || errors.Is(err, feed.ErrNotFound):
		r.view.Drop(lease.ID)
	case errors.Is(err, feed.ErrConflict):
		r.view.Distrust() // it has moved on
	default:
		return fmt.Errorf("remove lease %s, which nobody has taken: %w", lease.Token, err)
	}
	return nil
}

// erase deletes a record or, without the right to delete, retires it.
func (r *run) erase(ctx context.Context, record feed.Record) error {
	err := r.store.Delete(ctx, record)
	if errors.Is(err, feed.ErrForbidden) {
		record.State, record.Timestamp = feed.StateRetired, timestamp()
		_, err = r.store.Update(ctx, record)
	}
	return err
}

// yield removes a lease that others cover. A lease that has moved on meanwhile, or cannot be
// removed now, is freed instead, and whoever takes it decides again.
func (w *worker) yield() feed.Reason {
	ctx, cancel := context.WithTimeout(w.untilDrained, storeTimeout)
	defer cancel()
	var mine feed.Record
	err := w.keeper.note(ctx, func(lease *feed.Record) { mine = *lease })
	if err == nil && w.r.view.covers(mine) {
		if err = w.remove(ctx); err == nil {
			return feed.ReasonRedundant
		}
	}
	if w.untilLost.Err() != nil {
		return feed.ReasonLost
	}
	w.report(w.untilLost, feed.OriginLeaseStore, err)
	pause.For(w.untilStopped, w.r.opts.Poll)
	return w.release(ending{why: feed.ReasonRedundant})
}
