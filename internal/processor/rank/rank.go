// Package rank orders the leases of a unit, so that if leases have keys in common, one of them can be removed.
//
// A create whose answer was lost may arrive minutes later, when the lease of the second try has been split and removed.
// The range then has leases twice. The late lease is redundant: for each key of this lease there is another lease that
// has progressed at least as far. All changes before a position are done, so no change is lost without the late lease.
// No change arrives out of order, because the late lease's own worker removes the lease, between two batches.
//
// A lease that an operator has reset, and each lease of its parts, ranks above leases without that reset, wherever they
// are: the operator has said what the range begins with again. Leases that one call has reset compare by position.
//
// Two leases must never be removed each in favour of the other. So leases are ranked: by their last reset, then by
// position, then by generation (a child's generation is one higher than its parent's), then leases that ever had an
// owner before others, then by range. A lease is removed only in favour of leases with a higher rank. The rank of a
// lease never falls, and the replacements rank higher still: the children of a split by their generation, the covering
// leases by this rule. So each key keeps a lease with a higher rank, even if other changes are concurrent, if the
// picture behind the decision is old, or if the delete arrives late. The delete is conditional on the ETag, because the
// lease itself may have changed.
package rank

import (
	"cmp"
	"time"
)

// Lease contains the parts of a lease that decide its rank.
type Lease struct {
	Min, Max   string // range of the lease
	Position   Position
	Reset      int64 // orders the resets of leases; 0 is never
	Generation int   // how many splits led to the lease
	Taken      bool  // the lease has, or had, an owner
}

// Position is the progress of a lease.
type Position struct {
	Token   string
	LSN     int64     // LSN of the token, if Counted
	Counted bool      // the source knows the LSN of the token
	Since   time.Time // changes before this time are skipped; zero is none
	Unknown bool      // there is no token, and the start is unknown
}

// Above reports whether a lease ranks higher than another. The result is false if the two cannot be compared.
func Above(a, b Lease) bool {
	if a.Reset != b.Reset {
		return a.Reset > b.Reset
	}
	further, comparable := compare(a.Position, b.Position)
	return comparable && cmp.Or(
		further,
		cmp.Compare(a.Generation, b.Generation),
		order(a.Taken, b.Taken),
		cmp.Compare(b.Min, a.Min),
		cmp.Compare(a.Max, b.Max),
	) > 0
}

// order puts true after false.
func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// compare orders positions, if the LSN of each is known, or if nothing was read from either yet. ok is false if the
// reads begin at different times, because their changes differ.
func compare(a, b Position) (further int, ok bool) {
	if a == b {
		return 0, true
	}
	switch {
	case a.Counted && b.Counted:
		return cmp.Compare(a.LSN, b.LSN), a.Since.Equal(b.Since)
	case a.Counted && b.Token == "" && !b.Unknown:
		return 1, true
	case b.Counted && a.Token == "" && !a.Unknown:
		return -1, true
	}
	return 0, false
}
