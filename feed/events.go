package feed

import (
	"time"
)

// BatchDone is one call of the handler.
type BatchDone struct {
	Batch    *Batch
	Duration time.Duration
	Err      error // nil when the batch is done
}

// ReadDone is one read of a lease's range.
type ReadDone struct {
	Lease    string // its token
	Changes  int
	Charge   float64 // in request units, 0 when the source does not say
	Duration time.Duration
	Err      error
}

// WaitDone is one wait for something new to read, of a source that is a [Waiter]. It is not charged.
type WaitDone struct {
	Lease    string // its token
	Duration time.Duration
	Err      error
}

// StoreDone is one write of a held lease.
type StoreDone struct {
	Lease    string  // its token
	Renewal  bool    // it was due by time; else there was something to store
	Charge   float64 // in request units, 0 when the store does not say, as after an error
	Duration time.Duration
	Err      error
}

// Round is one round of the balancer.
type Round struct {
	Leases    int  // of the unit
	Instances int  // that are alive, including this one
	Owned     int  // by this instance when the round began, with those that a stuck handler keeps
	Taken     int  // free, expired or handed over to this instance
	Given     int  // to others
	Stolen    int  // from owners that do not answer
	Unowned   int  // that nobody may have, because all instances have as many as Options.MaxLeases
	Listed    bool // all records were listed; else the view was followed
}

// Outage is a time in which at least three changes fail, and fewer partition keys succeed: nothing is
// parked for that, unless it has failed for FailurePolicy.MaxAge, and the handler is called only now and
// then to see whether it has recovered. Each instance recognizes outages for itself, over all its
// leases. An outage ends when such a call succeeds; then all that has failed begins anew.
type Outage struct {
	Since   time.Time // when it was detected
	Ended   time.Time // zero while it lasts
	Changes int       // that had failed, as often as they may, when it was detected
}

// KeyEvent says that the changes of a partition key are treated differently from now on.
type KeyEvent struct {
	Lease  string // its token
	Key    PartitionKey
	Became KeyState
}

// KeyState is how the changes of a partition key are treated.
type KeyState string

// The states of a partition key that differ from the common one, and their ends.
const (
	KeySetAside KeyState = "set aside" // its later changes are read again by key; see FailurePolicy.MaxSetAside
	KeyCaughtUp KeyState = "caught up" // it was set aside, and its changes come from the feed again
	KeyHeld     KeyState = "held"      // its changes are parked; see FailurePolicy.HoldKeys
	KeyReleased KeyState = "released"  // it was held, and its changes go to the handler again
)

// Redriven is a letter that has gone to the handler again.
type Redriven struct {
	Letter DeadLetter
	Recall bool  // nobody has asked: it was parked just before an outage was detected
	Err    error // why the handler has failed again; nil when it is done, and the letter removed
}

// NewUnit is a deployment unit whose leases were just made.
type NewUnit struct {
	Start  Start // where it begins
	Mode   Mode  // of its changes
	Leases int
	// Passed is how many changes are there and come before Start, so that the unit does not get
	// them; nil if that is not known: the source is no [Counter], the mode is all versions and
	// deletes, or the count took longer than 10 s.
	Passed *int64
}
