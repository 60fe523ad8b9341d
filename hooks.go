package changefeed

import (
	"errors"
	"log/slog"
	"maps"
	"sync"
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

	// ReasonRedundant: other leases cover its range and have come as far.
	ReasonRedundant Reason = "redundant"
)

// LogHooks are hooks that write to a logger: errors as errors, leases that come and go
// as info, batches as debug. An error that comes again within a minute, for whichever
// lease, is counted and not written: an outage that every lease reports is one line a
// minute.
func LogHooks(log *slog.Logger) Hooks {
	var told echoes
	return Hooks{
		Ready:    func() { log.Info("change feed processor ready") },
		Acquired: func(l Lease) { log.Info("lease acquired", "lease", l.Token, "position", l.Position.String()) },
		Released: func(l Lease, why Reason) { log.Info("lease released", "lease", l.Token, "reason", string(why)) },
		BatchDone: func(d BatchDone) {
			log.Debug("batch done", "lease", d.Batch.LeaseToken, "changes", len(d.Batch.Changes),
				"attempt", d.Batch.Attempt, "duration", d.Duration, "err", d.Err)
		},
		Round: func(r Round) {
			log.Debug("round", "leases", r.Leases, "instances", r.Instances, "owned", r.Owned,
				"taken", r.Taken, "given", r.Given, "stolen", r.Stolen)
		},
		Error: func(err *Error) {
			repeated, again := told.note(string(err.Origin)+" "+err.Err.Error(), time.Now())
			if again {
				return
			}
			attrs := []any{"origin", string(err.Origin), "lease", err.Lease, "err", err.Err}
			if repeated > 0 {
				attrs = append(attrs, "repeated", repeated)
			}
			if panicked, ok := errors.AsType[*PanicError](err); ok {
				attrs = append(attrs, "stack", string(panicked.Stack))
			}
			log.Error("change feed processor", attrs...)
		},
	}
}

const (
	echoPeriod = time.Minute
	maxEchoes  = 1000 // different errors that are remembered
)

// echoes are the errors of the last minute.
type echoes struct {
	mu   sync.Mutex
	last map[string]*echo
}

type echo struct {
	at    time.Time // when it was written
	times int       // that it came again
}

// note tells whether an error has been written already, and otherwise how often it came
// again after it was.
func (e *echoes) note(text string, now time.Time) (repeated int, again bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if old := e.last[text]; old != nil {
		if now.Sub(old.at) < echoPeriod {
			old.times++
			return 0, true
		}
		repeated = old.times
	}
	if len(e.last) >= maxEchoes {
		maps.DeleteFunc(e.last, func(_ string, old *echo) bool { return now.Sub(old.at) >= echoPeriod })
	}
	if e.last == nil || len(e.last) >= maxEchoes {
		e.last = map[string]*echo{}
	}
	e.last[text] = &echo{at: now}
	return repeated, false
}

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
