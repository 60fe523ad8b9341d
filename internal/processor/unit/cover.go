package unit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/keyspace"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/records"
)

// How the leases tile the key space
//
// After each listing the balancer searches for holes and overlaps. Holes are repaired. If leases overlap, some of them
// are redundant, left from a late create. Package rank says which of them may be removed, and why two leases are never
// removed each in favour of the other. These rules need a generation, which only leases of this processor have, and
// comparable positions. If other leases are involved, no lease is removed: the overlap is reported.

// A gap is a range that no lease has covered in the listings since a time.
type gap struct {
	of    feed.Range
	since time.Time
	told  bool // the user knows
}

// checkCover verifies that the leases tile the key space. A hole is repaired under the lock, from the unit's start,
// because the progress of the lost lease is unknown. Overlapping leases are reported, because the view does not show
// which of them is right.
func (b *balancer) checkCover(ctx context.Context) {
	for _, o := range b.lastingOverlaps(b.newOverlaps()) {
		b.reported[o.id] = true
		b.in.Raise(o.err)
	}
	if open := b.unit.holes(); len(open) > 0 {
		b.seeGaps(open)
	} else {
		b.gaps = nil
		b.tiled, _ = b.in.View.Leases()
	}
	start := b.in.View.Recorded(b.in.Options.Mode)
	var due []feed.Range
	for i, g := range b.gaps {
		switch left := b.untilRepair(g); {
		case left <= 0:
			due = append(due, g.of)
		case !isLasting(time.Since(g.since), b.in):
			b.in.View.Distrust()
		case !g.told:
			b.gaps[i].told = true
			b.in.Raise(&feed.Error{Origin: feed.OriginBalancer, Err: fmt.Errorf("%w: %v; in %v, when an earlier owner "+
				"must have stopped, new leases continue from %v", feed.ErrHole, g.of, left.Round(time.Second), start)})
		}
	}
	if len(due) > 0 {
		b.repair(ctx, due, start)
	}
}

// seeGaps notes the ranges without a lease in the last listing. What is left of an earlier gap is as old as that gap.
func (b *balancer) seeGaps(open []feed.Range) {
	var gaps []gap
	var known []feed.Range
	for _, old := range b.gaps {
		known = append(known, old.of)
		for _, left := range keyspace.CutAt(open, []feed.Range{old.of}) {
			gaps = append(gaps, gap{left, old.since, old.told})
		}
	}
	for _, r := range open {
		for _, found := range keyspace.Uncovered(r, known) {
			gaps = append(gaps, gap{of: found, since: time.Now()})
		}
	}
	b.gaps = gaps
}

// untilRepair returns how long no lease may be made for a gap. Somebody has deleted a lease, and the owner notices only
// at the next write. Until then the owner may work, or make leases of the parts.
func (b *balancer) untilRepair(g gap) time.Duration {
	return time.Until(g.since.Add(b.trustOf(g.of) + records.ClockGrain))
}

// trustOf returns how long an owner of keys of some ranges may trust its lease.
func (b *balancer) trustOf(ranges ...feed.Range) time.Duration {
	trust := b.in.Options.Expiration
	for _, lease := range b.tiled {
		if slices.ContainsFunc(ranges, lease.Range.Overlaps) {
			trust = max(trust, lease.Expiration)
		}
	}
	return trust
}

// isRepairDue reports whether leases may be made for a gap.
func (b *balancer) isRepairDue() bool {
	return slices.ContainsFunc(b.gaps, func(g gap) bool { return b.untilRepair(g) <= 0 })
}

// repair makes leases for gaps, unless somebody else has done that meanwhile.
func (b *balancer) repair(ctx context.Context, gaps []feed.Range, start feed.Start) {
	bounded, cancel := context.WithTimeout(ctx, b.in.Options.Acquire) // the round has other work
	defer cancel()
	_, err := b.unit.withLock(bounded, func(ctx context.Context, h *hold) error {
		m := maker{b.unit, b.in, h, start, b.trustOf(gaps...)}
		return m.coverHoles(ctx, keyspace.CutAt(b.unit.holes(), gaps))
	})
	b.in.Report(ctx, feed.OriginBalancer, "", err)
}

// isLasting reports whether a flaw has stood in listings for so long that it counts. A listing does not show a single
// moment: during a split, ours or another processor's, a listing may show the parent beside the children, or neither.
func isLasting(d time.Duration, in *instance.Instance) bool { return d >= in.Options.Acquire/2 }

// An overlap is two leases with keys in common.
type overlap struct {
	id  string
	err *feed.Error
}

// lastingOverlaps returns the overlaps which an earlier listing also had. New ones are checked again in the next round.
func (b *balancer) lastingOverlaps(found []overlap) (lasting []overlap) {
	var seen []string
	for _, o := range found {
		seen = append(seen, o.id)
	}
	b.overlaps.See(seen)
	for _, o := range found {
		if isLasting(b.overlaps.For(o.id), b.in) {
			lasting = append(lasting, o)
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
func (b *balancer) newOverlaps() (found []overlap) {
	add := func(of feed.Record, id string, err error) {
		if !b.reported[id] {
			found = append(found, overlap{id, &feed.Error{Origin: feed.OriginBalancer, Lease: of.Token, Err: err}})
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
	lease.Owner, lease.Epoch = "", "" // a lease that came too late names its maker, who may not delete it
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
