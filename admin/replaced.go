package admin

import (
	"fmt"
	"slices"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/records"
)

// Actions that must wait until the replacement of leases is finished, and who finishes it.

// hasInstances reports whether an instance of the unit runs, or may run as the owner of a lease.
func hasInstances(v *records.View) bool {
	now := v.Now()
	return slices.ContainsFunc(v.Kind(feed.KindHost), func(r feed.Record) bool {
		return describeInstance(r, now).Presence == Running
	}) || slices.ContainsFunc(v.Kind(feed.KindLease), func(l feed.Record) bool {
		return l.State != feed.StateRetired && isAtWork(l, now)
	})
}

// replacedError returns the error of an action on a lease that is being split, cut or joined.
func replacedError(v *records.View, lease feed.Record) error {
	next := "no instance runs, which would finish that: start one, and try again"
	if hasInstances(v) {
		next = "try again in a moment"
	}
	return fmt.Errorf("%w: lease %s is being %s: %s", feed.ErrConflict, lease.Token, records.Replaced(lease), next)
}

// checkTiling returns an error if leases, in the order of their ranges, have a hole or an overlap.
func checkTiling(v *records.View, leases []feed.Record) error {
	var last feed.Record
	for _, lease := range leases {
		if lease.Range.Min < last.Range.Max {
			return overlapError(v, last, lease)
		}
		if last.Range.Max < lease.Range.Min {
			break
		}
		last = lease
	}
	if holes := records.Holes(feed.FullRange(), leases); len(holes) > 0 {
		return holeError(v, holes)
	}
	return nil
}

// overlapError returns an error for two leases that hold the same keys.
func overlapError(v *records.View, a, b feed.Record) error {
	what := "partitions were split or merged"
	for _, lease := range []feed.Record{a, b} {
		if lease.State == feed.StateSplitting {
			what = fmt.Sprintf("lease %s is being %s", lease.Token, records.Replaced(lease))
		}
	}
	next := "no instance runs: start one, which removes the lease that is not needed, and try again"
	if hasInstances(v) {
		next = "the instances remove the lease that is not needed in their next rounds: try again then"
	}
	return fmt.Errorf("%w: leases %s and %s hold the same keys, because %s: %s", feed.ErrOverlap, a.Token, b.Token, what,
		next)
}

// holeError returns an error for ranges without a lease.
func holeError(v *records.View, holes []feed.Range) error {
	next := "start an instance, which makes leases there, and try again"
	if hasInstances(v) {
		next = "the instances make leases there within minutes: try again then"
	}
	return fmt.Errorf("%w: no lease of the unit holds %v: %s", feed.ErrHole, holes, next)
}
