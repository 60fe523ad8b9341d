package tenure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/keyspace"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/records"
)

// How leases of the parts replace a lease after a split
//
// The range of a lease is gone when it spans several physical partitions. The owner then makes a lease for each part,
// at the parent's stored position:
//
//	1  mark the parent as splitting, with its parts  (an update under its ETag: only the owner can)
//	2  create the missing children                   (their names are their ranges: a second create conflicts)
//	3  delete the parent                             (or mark it retired, without the right to delete)
//
// A crash between any two steps leaves a splitting parent. The next owner does not read, but continues from step 2, and
// creates leases only where no other lease covers the range, because an earlier child may have split meanwhile. The
// children skip no change that the parent still has to deliver, because the parent's position does not move after step
// 1.
//
// The parts are never computed anew, even if the partitions merge or split again meanwhile: an unanswered create may
// still arrive, and must then find the same lease, not leases with other edges. The children then follow the new
// partitions like any lease. A create can arrive even later, when somebody else may own the parent, or has deleted it:
// each child says until when its create has to arrive, and counts as deleted if it is late. If the store's clock was
// set back meanwhile, such a child may count as valid: see package rank.

// A lease can also be cut, though its partition has not split, because the unit should have more leases. The worker
// then ends after step 1. The next round finds a lease of this instance without a worker, and the new worker continues
// from step 2.

// writeParts marks the lease as splitting, with n parts, unless a split has begun meanwhile.
func (w *worker) writeParts(n int) feed.Reason {
	ctx, cancel := context.WithTimeout(w.in.Base, w.in.Options.Drain)
	defer cancel()
	w.dispatcher.Freeze() // the children begin at the stored position
	if err := w.keeper.storeWith(ctx, func(lease *feed.Record) {
		if lease.State == feed.StateLive {
			markSplitting(lease, lease.Range.Cut(n))
		}
	}); err != nil {
		w.held.Report(w.held.UntilLost, feed.OriginLeaseStore, fmt.Errorf("cut: %w", err))
		return feed.ReasonLost
	}
	if _, stopping := w.in.Claims.All(); stopping { // there is no next round
		return w.writeNextOwner(instance.Ending{Why: feed.ReasonSplit})
	}
	return feed.ReasonSplit
}

// markSplitting marks a lease as splitting, with its parts.
func markSplitting(lease *feed.Record, parts []feed.Range) {
	lease.State = feed.StateSplitting
	records.SetProperty(lease, notes.PartsProperty, keyspace.Join(parts))
}

// splitLease replaces the lease by leases of the parts, continuing where an earlier owner stopped.
func (w *worker) splitLease() feed.Reason {
	joining, sure := awaitJoint(w)
	if !sure {
		return feed.ReasonLost // it must expire, so that no instance makes it live again too early
	}
	seen := false // in an earlier listing, without the lease that the lease is joined into
	for failures := 1; w.held.Ending().None(); failures++ {
		done, err := w.replaceByParts()
		switch {
		case done && joining:
			return feed.ReasonJoined
		case done:
			return feed.ReasonSplit
		case !w.held.Ending().None():
			return w.giveUp(w.held.Ending())
		case err == nil && joining && !seen:
			seen = true
			pause.For(w.held.UntilStopped, w.in.Options.Poll)
			continue
		case err == nil:
			if !joining {
				w.held.Report(w.held.UntilLost, feed.OriginSource,
					fmt.Errorf("%w: one partition holds the range again: trying on", feed.ErrGone))
				// the source's list may be older than its answers to reads
				pause.For(w.held.UntilStopped, w.in.Options.Poll)
			}
			return w.writeNextOwner(instance.Ending{Why: feed.ReasonSplit, Undone: true})
		}
		w.held.Report(w.held.UntilStopped, feed.OriginLeaseStore, fmt.Errorf("split: %w", err))
		w.held.Backoff(failures, 0)
	}
	return w.giveUp(w.held.Ending())
}

// replaceByParts performs the three steps, continuing where an earlier try stopped, and makes no further child once the
// worker is stopped. If a merge after the split has put the range into a single partition again, replaceByParts does
// nothing and returns no error.
func (w *worker) replaceByParts() (done bool, err error) {
	ctx, cancel := context.WithTimeout(w.held.UntilDrained, records.StoreTimeout)
	defer cancel()
	if err := w.in.View.List(ctx, time.Now()); err != nil {
		return false, err
	}
	parent, parts, err := w.planParts(ctx)
	if err != nil || parts == nil {
		return false, err
	}
	for _, part := range keyspace.CutAt(w.uncoveredParts(parent), parts) {
		if !w.held.Ending().None() {
			return false, nil
		}
		if err := w.createChild(ctx, parent, part); err != nil {
			return false, err
		}
	}
	if err := w.in.View.List(ctx, time.Now()); err != nil {
		return false, err
	}
	// a record refused a child but does not cover the child's range
	if open := w.uncoveredParts(parent); len(open) > 0 {
		w.in.View.Distrust()
		return false, fmt.Errorf("%w: %v", feed.ErrHole, open)
	}
	err = w.deleteLease(ctx)
	return err == nil, err
}

// planParts marks the parent as splitting and records its parts there, unless an earlier try has done so. A split begun
// by an older version has no recorded parts. parts is nil if the range need not be split.
func (w *worker) planParts(ctx context.Context) (parent feed.Record, parts []feed.Range, err error) {
	stored := false
	if err := w.keeper.changeNextWrite(ctx, func(lease *feed.Record) {
		parent, stored = *lease, w.keeper.stored.State == feed.StateSplitting
	}); err != nil {
		return parent, nil, err
	}
	if parts, known := splitParts(parent); known && parent.State == feed.StateSplitting {
		if !stored { // an earlier try was not answered
			err = w.keeper.store(ctx)
		}
		return parent, parts, err
	}
	partitions, err := w.in.Source.Partitions(ctx)
	if err != nil {
		return parent, nil, err
	}
	parts = keyspace.CutAt([]feed.Range{parent.Range}, records.RangesOf(partitions))
	if slices.Contains(keyspace.CutAt(w.uncoveredParts(parent), parts), parent.Range) {
		return parent, nil, nil
	}
	w.dispatcher.Freeze() // the children begin at the parent's stored position, which must not move any more
	err = w.keeper.storeWith(ctx, func(lease *feed.Record) {
		markSplitting(lease, parts)
		parent = *lease
	})
	return parent, parts, err
}

// splitParts returns the recorded parts of a splitting lease, if the parts tile the lease.
func splitParts(l feed.Record) (parts []feed.Range, known bool) {
	return keyspace.Split(l.Range, l.Properties[notes.PartsProperty])
}

// uncoveredParts returns the parts of the parent without a covering descendant. A splitting ancestor covers them too,
// but waits for us. A lease with a lower rank than the parent is no child: a late create has left this lease, and its
// worker removes it.
func (w *worker) uncoveredParts(parent feed.Record) []feed.Range {
	leases, _ := w.in.View.Leases()
	above := w.in.View.Ranking()
	return records.Holes(parent.Range, slices.DeleteFunc(leases, func(lease feed.Record) bool {
		ranked := records.IsOurs(lease) && records.IsOurs(parent)
		switch {
		case lease.ID == parent.ID || ranked && above(parent, lease):
			return true
		case ranked && above(lease, parent):
			return false
		}
		return !parent.Range.Contains(lease.Range)
	}))
}

// createChild creates the lease for a part of the parent, with this instance as owner, and starts to work on it.
func (w *worker) createChild(ctx context.Context, parent feed.Record, part feed.Range) error {
	child := feed.Record{
		Kind: feed.KindLease, Version: 1, Token: part.String(), Range: part,
		Owner: w.in.Me.Instance, Epoch: w.in.Me.Epoch, Expiration: w.in.Options.Expiration,
		Position: parent.Position, Mode: parent.Mode, Attempts: parent.Attempts,
		Timestamp: instance.Timestamp(), Properties: parent.Properties,
	}
	records.SetProperty(&child, notes.PartsProperty, "")
	records.SetProperty(&child, notes.JoiningProperty, "")
	shareLoad(&child, parent)
	records.SetGeneration(&child, records.GenerationOf(parent)+1)
	records.BeginTerm(&child)
	until, err := w.keeper.ownedUntil(ctx)
	if err != nil {
		return err
	}
	records.SetDue(&child, until)
	if !w.in.Claims.Claim(part) {
		return nil // made before, and has a worker
	}
	started := time.Now()
	got, err := w.in.View.CreateAnew(ctx, child)
	if errors.Is(err, feed.ErrConflict) {
		w.in.Claims.Free(part)
		return nil // made before, by us or by another instance
	}
	if err == nil {
		w.in.View.Put(got)
		if records.IsLate(got) {
			err = fmt.Errorf("%w: the create took too long", feed.ErrLeaseLost)
		} else {
			err = w.in.View.List(ctx, time.Now()) // the worker must see the leases beside it
		}
	}
	if err != nil {
		w.in.Claims.Free(part)
		return fmt.Errorf("create lease %s: %w", child.Token, err)
	}
	w.in.Begin(got, started, false)
	return nil
}
