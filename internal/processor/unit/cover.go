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
// After each listing the balancer searches for holes and overlaps. Holes are repaired. If leases overlap, some of them
// are redundant, left from a late create. Package rank says which of them may be removed, and why two leases are never
// removed each in favour of the other. These rules need a generation, which only leases of this processor have, and
// comparable positions. If other leases are involved, no lease is removed: the overlap is reported.

// A flaw is a place at which the leases do not tile the key space.
type flaw struct {
	id    string
	holes []feed.Range // ranges without a lease
	err   *feed.Error  // the report of overlapping leases
}

// checkCover verifies that the leases tile the key space. A hole is repaired under the lock, from the unit's start,
// because the progress of the lost lease is unknown. Overlapping leases are reported, because the view does not show
// which of them is right.
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
		b.in.Raise(&feed.Error{Origin: feed.OriginBalancer, Err: fmt.Errorf("%w: %v; creating leases from %v",
			feed.ErrHole, f.holes, start)})
		bounded, cancel := context.WithTimeout(ctx, b.in.Options.Acquire) // the round has other work
		_, err := b.unit.withLock(bounded, func(ctx context.Context, h *hold) error {
			return maker{b.unit, b.in, h, start, b.holesOpenAt(f.holes)}.coverHoles(ctx)
		})
		cancel()
		b.in.Report(ctx, feed.OriginBalancer, "", err)
	}
}

// holesOpenAt returns when, by the store's clock, work on new leases for holes may begin. Somebody has deleted a lease,
// and the owner notices only at the next write.
func (b *balancer) holesOpenAt(open []feed.Range) time.Time {
	trust := b.in.Options.Expiration
	for _, lease := range b.tiled {
		if slices.ContainsFunc(open, lease.Range.Overlaps) {
			trust = max(trust, lease.Expiration)
		}
	}
	return b.in.View.Now().Add(trust + records.ClockGrain)
}

// lastingFlaws returns the flaws which an earlier listing also had. A listing does not show a single moment: during a
// split, ours or another processor's, a listing may show the parent beside the children, or neither. So a new flaw is
// checked again in the next round.
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

// holes returns the ranges without a lease. A lease of another kind of processor counts here, and so does a damaged
// lease with a known range: a processor that reads there, or a person who repairs the document, must not find a second
// lease.
func (u *Unit) holes() []feed.Range {
	all, bad := u.in.View.Leases()
	return records.Holes(feed.FullRange(), slices.Concat(all, bad))
}

// newOverlaps returns the overlapping leases without a report so far.
func (b *balancer) newOverlaps() (found []flaw) {
	add := func(of feed.Record, id string, err error) {
		if !b.reported[id] {
			found = append(found, flaw{id: id, err: &feed.Error{
				Origin: feed.OriginBalancer, Lease: of.Token,
				Err: err,
			}})
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
		if left.State == feed.StateSplitting || right.State == feed.StateSplitting ||
			!left.Range.Overlaps(right.Range) {
			continue
		}
		// otherwise the worker, or the next owner, removes the lease
		if !b.in.View.IsRedundant(left) && !b.in.View.IsRedundant(right) {
			add(left, left.ID+" "+right.ID, fmt.Errorf("%w: %s and %s: keys in both are delivered twice",
				feed.ErrOverlap, left.ID, right.ID))
		}
	}
	return found
}

// dropLate removes leases whose creates were late, once other leases cover their ranges. The view shows them as
// retired.
func (u *Unit) dropLate(ctx context.Context) {
	leases, _ := u.in.View.Leases()
	for _, lease := range u.in.View.Kind(feed.KindLease) {
		if records.IsLate(lease) && len(records.Holes(lease.Range, leases)) == 0 {
			u.in.Report(ctx, feed.OriginLeaseStore, lease.Token, u.discardUntaken(ctx, lease))
		}
	}
}

// dropRedundant makes our workers give up redundant leases.
func (b *balancer) dropRedundant() {
	leases, _ := b.in.View.Leases()
	reach := ""
	overlap := false
	for _, lease := range leases { // ordered by Range.Min
		overlap = overlap || lease.Range.Min < reach
		reach = max(reach, lease.Range.Max)
	}
	for _, lease := range leases {
		if held, _ := b.in.Claims.Held(lease.Range); overlap && held != nil && records.OwnerOf(lease) == b.in.Me &&
			b.in.View.IsRedundant(lease) {
			held.Stop(instance.Ending{Why: feed.ReasonRedundant})
		}
	}
}

// removeOverlapping removes leases that overlap others, before the unit has begun. They are left from an attempt to
// make the leases with other partitions, or from a late create of such an attempt. No instance has worked on them yet.
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

// discardUntaken removes a lease without any earlier owner. If an instance has taken the lease meanwhile, the ETag
// refuses the delete.
func (u *Unit) discardUntaken(ctx context.Context, lease feed.Record) error {
	err := u.eraseRecord(ctx, lease)
	switch {
	case err == nil || errors.Is(err, feed.ErrNotFound):
		u.in.View.Drop(lease.ID)
	case errors.Is(err, feed.ErrConflict):
		u.in.View.Distrust() // the lease was written since
	default:
		return fmt.Errorf("remove lease %s, which nobody has taken: %w", lease.Token, err)
	}
	return nil
}

// eraseRecord deletes a record, or retires the record without the right to delete.
func (u *Unit) eraseRecord(ctx context.Context, record feed.Record) error {
	err := u.in.Store.Delete(ctx, record)
	if errors.Is(err, feed.ErrForbidden) {
		record.State, record.Timestamp = feed.StateRetired, instance.Timestamp()
		_, err = u.in.Store.Update(ctx, record)
	}
	return err
}
