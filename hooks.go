package changefeed

import (
	"log/slog"
	"time"
)

// Hooks are told what a processor does. Unset ones do nothing, except that an unset
// Error writes to [slog.Default], so that no failure is silent. They are called from
// many goroutines and must return soon; a hook that panics ends the program.
type Hooks struct {
	// Ready: the unit's leases exist; every change committed from now on will be delivered.
	Ready func()
	// Acquired: this instance begins to work on a lease.
	Acquired func(l Lease)
	// Released: this instance has stopped working on a lease.
	Released func(l Lease, why Reason)
	// BatchDone: a batch has been handled, with or without success.
	BatchDone func(d BatchDone)
	// Round: the balancer has compared the leases with the instances.
	Round func(r Round)
	// Error: something failed that the processor goes on after.
	Error func(err *Error)
}

// BatchDone tells of one call of the handler.
type BatchDone struct {
	Batch    *Batch
	Duration time.Duration
	Err      error // nil when the batch is done
}

// Round tells of one round of the balancer.
type Round struct {
	Leases    int  // of the unit
	Instances int  // that are alive, this one included
	Owned     int  // by this instance when the round began, with those that a stuck handler keeps
	Taken     int  // free, expired or handed over to this instance
	Given     int  // to others
	Stolen    int  // from owners that do not answer
	Listed    bool // all records were listed; else the view was followed
}

// Reason is why a lease was given up.
type Reason string

// The reasons.
const (
	ReasonStopped Reason = "stopped" // the processor stops
	ReasonGiven   Reason = "given"   // handed over to another instance
	ReasonLost    Reason = "lost"    // stolen, expired or deleted
	ReasonSplit   Reason = "split"   // replaced by the leases of its children
	ReasonStuck   Reason = "stuck"   // its handler ignores its context

	// ReasonRedundant: other leases cover its range and have come as far. It was left from
	// a create that arrived late.
	ReasonRedundant Reason = "redundant"
)

// withDefaults fills the unset hooks.
func (h Hooks) withDefaults() Hooks {
	if h.Ready == nil {
		h.Ready = func() {}
	}
	if h.Acquired == nil {
		h.Acquired = func(Lease) {}
	}
	if h.Released == nil {
		h.Released = func(Lease, Reason) {}
	}
	if h.BatchDone == nil {
		h.BatchDone = func(BatchDone) {}
	}
	if h.Round == nil {
		h.Round = func(Round) {}
	}
	if h.Error == nil {
		h.Error = LogHooks(slog.Default()).Error
	}
	return h
}
