package feed

import (
	"time"
)

// BatchDone describes a call of the handler.
type BatchDone struct {
	Batch    *Batch
	Duration time.Duration
	Err      error // nil if the batch is done
}

// ReadDone describes a read of a lease's range.
type ReadDone struct {
	Lease    string // token of the lease
	Changes  int
	Charge   float64 // in request units, 0 if unknown
	Duration time.Duration
	Err      error
}

// WaitDone describes a wait for new changes, if the source is a [Waiter]. A wait has no charge.
type WaitDone struct {
	Lease    string // token of the lease
	Duration time.Duration
	Err      error
}

// StoreDone describes a write of a held lease.
type StoreDone struct {
	Lease    string  // token of the lease
	Renewal  bool    // true for a timed renewal, false for a checkpoint
	Charge   float64 // in request units, 0 if unknown, as after an error
	Duration time.Duration
	Err      error
}

// Round describes a round of the balancer.
type Round struct {
	Leases    int  // of the unit
	Instances int  // live instances, including this one
	Owned     int  // by this instance when the round began, including leases that a stuck handler keeps
	Taken     int  // by this instance, because they were free, expired or handed over
	Given     int  // to other instances
	Stolen    int  // from owners that do not answer
	Unowned   int  // leases that no instance may own, because all instances have as many as Options.MaxLeases
	Listed    bool // true if all records were listed, false if changes were followed
}

// Outage is a time in which at least three changes fail, and fewer partition keys succeed. During an outage a change is
// parked only if it has failed for FailurePolicy.MaxAge, and the handler is called only now and then to see whether it
// has recovered. Each instance recognizes outages for itself, over all its leases. An outage ends when such a call
// succeeds; then all failed changes begin anew.
type Outage struct {
	Since   time.Time // when the outage was detected
	Ended   time.Time // zero while the outage lasts
	Changes int       // changes that had used up their attempts when the outage was detected
}

// KeyEvent says that the changes of a partition key are treated differently from now on.
type KeyEvent struct {
	Lease  string // token of the lease
	Key    PartitionKey
	Became KeyState
}

// KeyState is how the changes of a partition key are treated.
type KeyState string

// The states of a partition key that differ from the usual state, and their ends.
const (
	KeySetAside KeyState = "set aside" // later changes of the key are read again by key; see FailurePolicy.MaxSetAside
	KeyCaughtUp KeyState = "caught up" // the key was set aside, and its changes arrive from the feed again
	KeyHeld     KeyState = "held"      // changes of the key are parked; see FailurePolicy.HoldKeys
	KeyReleased KeyState = "released"  // the key was held, and its changes go to the handler again
)

// Redriven describes a letter that the handler has received again.
type Redriven struct {
	Letter DeadLetter
	Recall bool  // no operator has requested this: the change was parked just before an outage was detected
	Err    error // why the handler has failed again; nil if the letter is done and removed
}

// NewUnit describes a deployment unit whose leases were just made.
type NewUnit struct {
	Start  Start // where the unit begins
	Mode   Mode  // mode of the changes
	Leases int
	// Passed is the number of present changes before Start, which the unit skips. Passed is nil if the number is
	// unknown: the source is no [Counter], the mode is all versions and deletes, or the count took longer than 10 s.
	Passed *int64
}
