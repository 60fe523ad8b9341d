// Package rank orders the leases of a unit, so that of those that share keys one can be removed.
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
// higher rank, whatever happens at once with the removal, however old the picture behind the
// decision, and however late the delete arrives. The delete is conditional on the ETag,
// because the lease itself may have moved on.
package rank

import (
	"cmp"
	"time"
)

// Lease is the part of a lease that its rank depends on.
type Lease struct {
	Min, Max   string // its range
	Position   Position
	Generation int  // how many splits led to it
	Taken      bool // it has, or had, an owner
}

// Position is how far a lease has come.
type Position struct {
	Token   string
	LSN     int64     // that the token is after, if it is counted
	Counted bool      // the source can tell the LSN of the token
	Since   time.Time // changes before it are left out; zero is none
	Unknown bool      // there is no token, and nothing says where the lease begins
}

// Above reports whether a lease ranks higher than another. It is false when the two cannot be compared.
func Above(a, b Lease) bool {
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

// compare orders positions, if the LSN of each is known, or nothing was read from either yet. It is not ok for reads since different times, whose changes differ.
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
