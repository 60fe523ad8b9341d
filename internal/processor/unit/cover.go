package unit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/records"
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
	flaws := b.newOverlaps()
	if open := b.unit.holes(); len(open) > 0 {
		flaws = append(flaws, flaw{id: fmt.Sprint(open), holes: open})
	} else {
		b.tiled, _ = b.in.View.Leases()
	}
	for _, f := range b.lastingFlaws(flaws) {
		if f.err != nil {
			b.reported[f.id] = true
			b.in.Raise(f.err)
			continue
		}
		start := b.in.View.Recorded(b.in.Options.Mode)
		b.in.Raise(&feed.Error{Origin: feed.OriginBalancer, Err: fmt.Errorf("%w: %v; creating leases from %v", feed.ErrHole, f.holes, start)})
		bounded, cancel := context.WithTimeout(ctx, b.in.Options.Acquire) // the round has other work
		_, err := b.unit.withLock(bounded, func(ctx context.Context, h *hold) error {
			return maker{b.unit, b.in, h, start, b.holesOpenAt(f.holes)}.coverHoles(ctx)
		})
		cancel()
		b.in.Report(ctx, feed.OriginBalancer, "", err)
	}
}

// holesOpenAt is when, by the store's clock, work on leases made for holes may begin. Somebody
// has deleted a lease, and its owner hears of that only at its next write.
func (b *balancer) holesOpenAt(open []feed.Range) time.Time {
	trust := b.in.Options.Expiration
	for _, lease := range b.tiled {
		if slices.ContainsFunc(open, lease.Range.Overlaps) {
			trust = max(trust, lease.Expiration)
		}
	}
	return b.in.View.Now().Add(trust + records.ClockGrain)
}

// lastingFlaws are the flaws that an earlier listing had too. A listing is not of one moment:
// during a split, ours or another processor's, it shows the parent beside its children, or
// neither. So a new flaw is checked again in the next round.
func (b *balancer) lastingFlaws(found []flaw) (lasting []flaw) {
	var seen []string
	for _, f := range found {
		seen = append(seen, f.id)
	}
	b.flaws.See(seen)
	for _, f := range found {
		if b.flaws.For(f.id) >= b.in.Options.Acquire/2 {
			lasting = append(lasting, f)
		} else {
			b.in.View.Distrust()
		}
	}
	return lasting
}

// holes are the ranges without a lease. A lease of another kind of processor, and a damaged
// lease that has its range, count here: whoever reads there, or repairs the document, must
// not find a second lease.
func (u *Unit) holes() []feed.Range {
	all, bad := u.in.View.Leases()
	return records.Holes(feed.FullRange(), slices.Concat(all, bad))
}

// newOverlaps are the leases whose ranges overlap and that were not reported yet.
func (b *balancer) newOverlaps() (found []flaw) {
	add := func(of feed.Record, id string, err error) {
		if !b.reported[id] {
			found = append(found, flaw{id: id, err: &feed.Error{Origin: feed.OriginBalancer, Lease: of.Token, Err: err}})
		}
	}
	good, bad := b.in.View.Leases()
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
		if !b.in.View.IsRedundant(left) && !b.in.View.IsRedundant(right) { // else its worker, or whoever takes it, removes it
			add(left, left.ID+" "+right.ID, fmt.Errorf("%w: %s and %s: keys in both are delivered twice", feed.ErrOverlap, left.ID, right.ID))
		}
	}
	return found
}

// dropLate removes the leases whose creates were late, once others have their ranges. The view
// has them as retired.
func (u *Unit) dropLate(ctx context.Context) {
	leases, _ := u.in.View.Leases()
	for _, lease := range u.in.View.Kind(feed.KindLease) {
		if records.IsLate(lease) && len(records.Holes(lease.Range, leases)) == 0 {
			u.in.Report(ctx, feed.OriginLeaseStore, lease.Token, u.discardUntaken(ctx, lease))
		}
	}
}

// dropRedundant has our workers give up the leases that others cover.
func (b *balancer) dropRedundant() {
	leases, _ := b.in.View.Leases()
	reach := ""
	overlap := false
	for _, lease := range leases { // ordered by Range.Min
		overlap = overlap || lease.Range.Min < reach
		reach = max(reach, lease.Range.Max)
	}
	for _, lease := range leases {
		if held, _ := b.in.Claims.Held(lease.Range); overlap && held != nil && records.OwnerOf(lease) == b.in.Me && b.in.View.IsRedundant(lease) {
			held.Stop(instance.Ending{Why: feed.ReasonRedundant})
		}
	}
}

// removeOverlapping removes leases that overlap others, before the unit has begun. They are left
// from an attempt to make the leases when the partitions were others, or a create of that
// attempt has arrived late. Nobody has worked on them yet.
func (u *Unit) removeOverlapping(ctx context.Context) error {
	leases, _ := u.in.View.Leases()
	reach := ""
	for _, lease := range leases { // ordered by Range.Min
		if lease.Range.Min >= reach || !records.IsUntouched(lease) {
			reach = max(reach, lease.Range.Max)
			continue
		}
		if err := u.discardUntaken(ctx, lease); err != nil {
			return err
		}
	}
	return nil
}

// discardUntaken removes a lease that nobody has taken. The ETag refuses it if somebody has meanwhile.
func (u *Unit) discardUntaken(ctx context.Context, lease feed.Record) error {
	err := u.eraseRecord(ctx, lease)
	switch {
	case err == nil || errors.Is(err, feed.ErrNotFound):
		u.in.View.Drop(lease.ID)
	case errors.Is(err, feed.ErrConflict):
		u.in.View.Distrust() // it has moved on
	default:
		return fmt.Errorf("remove lease %s, which nobody has taken: %w", lease.Token, err)
	}
	return nil
}

// eraseRecord deletes a record or, without the right to delete, retires it.
func (u *Unit) eraseRecord(ctx context.Context, record feed.Record) error {
	err := u.in.Store.Delete(ctx, record)
	if errors.Is(err, feed.ErrForbidden) {
		record.State, record.Timestamp = feed.StateRetired, instance.Timestamp()
		_, err = u.in.Store.Update(ctx, record)
	}
	return err
}
