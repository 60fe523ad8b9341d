package changefeed

import (
	"errors"
	"log/slog"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/fold"
)

// Hooks are called with the events of a processor. Unset hooks do nothing, except that Error,
// Parked, Outage and Begun write warnings and errors to [slog.Default] as [LogHooks] do, so that
// nothing fails, leaves the feed or is passed over in silence. They are called from many goroutines and must return soon; a hook that
// panics ends the program. [JoinHooks] joins several.
type Hooks struct {
	// Ready: the unit's leases exist; every change committed from now on will be delivered.
	Ready func()
	// Begun: the unit is new, and this instance has made its leases. It comes before Ready.
	Begun func(u NewUnit)
	// Acquired: this instance begins to work on a lease.
	Acquired func(l feed.Lease)
	// Released: this instance has stopped working on a lease.
	Released func(l feed.Lease, why feed.Reason)
	// BatchDone: the handler has come back, with or without success.
	BatchDone func(d BatchDone)
	// ReadDone: a page was read, or not.
	ReadDone func(d ReadDone)
	// WaitDone: the source had been waited for.
	WaitDone func(d WaitDone)
	// StoreDone: a held lease was written, or not.
	StoreDone func(d StoreDone)
	// Round: the balancer has compared the leases with the instances.
	Round func(r Round)
	// Parked: a change is among the dead letters.
	Parked func(l feed.DeadLetter)
	// Outage: an outage was detected, or is over.
	Outage func(o Outage)
	// Key: a partition key was set aside, has caught up, is held, or was released.
	Key func(k KeyEvent)
	// Redriven: a letter went to the handler again, at the request of an operator or after an
	// outage.
	Redriven func(r Redriven)
	// Error: something failed, and the processor goes on.
	Error func(err *Error)
}

// BatchDone is one call of the handler.
type BatchDone struct {
	Batch    *feed.Batch
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

// WaitDone is one wait for something new to read, of a source that is a [feed.Waiter]. It is not charged.
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
	Unowned   int  // that nobody may have, because all instances have as many as [Options.MaxLeases]
	Listed    bool // all records were listed; else the view was followed
}

// Outage is a time in which at least three changes fail, and fewer partition keys succeed: nothing is
// parked for that, unless it has failed for [Options.MaxAge], and the handler is called only now and
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
	Key    feed.PartitionKey
	Became KeyState
}

// KeyState is how the changes of a partition key are treated.
type KeyState string

// The states of a partition key that differ from the common one, and their ends.
const (
	KeySetAside KeyState = "set aside" // its later changes are read again by key; see [Options.MaxSetAside]
	KeyCaughtUp KeyState = "caught up" // it was set aside, and its changes come from the feed again
	KeyHeld     KeyState = "held"      // its changes are parked; see [Options.HoldKeys]
	KeyReleased KeyState = "released"  // it was held, and its changes go to the handler again
)

// Redriven is a letter that has gone to the handler again.
type Redriven struct {
	Letter feed.DeadLetter
	Recall bool  // nobody has asked: it was parked just before an outage was detected
	Err    error // why the handler has failed again; nil when it is done, and the letter removed
}

// JoinHooks makes hooks of several: each event goes to all that want it, in their order. So
// JoinHooks(LogHooks(log), own) logs beside hooks of your own.
func JoinHooks(hooks ...Hooks) Hooks {
	var joined Hooks
	for _, h := range hooks {
		joined = joined.and(h)
	}
	return joined
}

// and returns hooks that call those of h, then those of next. A hook that has a default stays unset
// when neither has it.
func (h Hooks) and(next Hooks) Hooks {
	return Hooks{
		Ready: func() {
			for _, hook := range []func(){h.Ready, next.Ready} {
				if hook != nil {
					hook()
				}
			}
		},
		Begun:    both(h.Begun, next.Begun),
		Acquired: both(h.Acquired, next.Acquired),
		Released: func(lease feed.Lease, why feed.Reason) {
			for _, hook := range []func(feed.Lease, feed.Reason){h.Released, next.Released} {
				if hook != nil {
					hook(lease, why)
				}
			}
		},
		BatchDone: both(h.BatchDone, next.BatchDone),
		ReadDone:  both(h.ReadDone, next.ReadDone),
		WaitDone:  both(h.WaitDone, next.WaitDone),
		StoreDone: both(h.StoreDone, next.StoreDone),
		Round:     both(h.Round, next.Round),
		Parked:    both(h.Parked, next.Parked),
		Outage:    both(h.Outage, next.Outage),
		Key:       both(h.Key, next.Key),
		Redriven:  both(h.Redriven, next.Redriven),
		Error:     both(h.Error, next.Error),
	}
}

// both returns a hook that calls two, either of which may be unset.
func both[E any](first, second func(E)) func(E) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(event E) {
		first(event)
		second(event)
	}
}

// withDefaults sets the unset hooks.
func (h Hooks) withDefaults() Hooks {
	logged := LogHooks(slog.Default())
	if h.Error == nil {
		h.Error = logged.Error
	}
	if h.Parked == nil {
		h.Parked = logged.Parked
	}
	if h.Outage == nil {
		h.Outage = logged.Outage
	}
	if h.Begun == nil {
		h.Begun = func(u NewUnit) {
			if u.passesOver() {
				logged.Begun(u)
			}
		}
	}
	return h.and(Hooks{
		Acquired:  func(feed.Lease) {},
		BatchDone: func(BatchDone) {},
		ReadDone:  func(ReadDone) {},
		WaitDone:  func(WaitDone) {},
		StoreDone: func(StoreDone) {},
		Round:     func(Round) {},
		Key:       func(KeyEvent) {},
		Redriven:  func(Redriven) {},
	})
}

// LogHooks are hooks that write to a logger: errors as errors, parked changes as warnings, a new unit
// that passes over changes as a warning and any other as info, the
// beginning of an outage as an error and its end as a warning, leases that come and go as info, so are keys that are set
// aside, held or free again, and letters that are handed over again, and batches as debug.
//
// Errors of the same kind are one line a minute, for however many leases, so that an outage
// does not fill the log; the next line counts the errors left out as repeated. Errors of
// the handler are of the same kind if they differ only in words that have digits in them.
// Errors of the source, the lease store and the balancer are if they are the same sentinel
// of this package or, being none, have the same cause; but errors that somebody must
// mend are written for each lease: [ErrHole], [ErrOverlap], [feed.ErrBadLease],
// [ErrHandlerStuck], [ErrLeasesGone], [ErrSourceGone]. In any minute there are at most 20 lines of errors; the next line
// counts the errors for which there was no room as unwritten. Parked changes are counted in the
// same way: each is a line, but those that are only held are one a minute for each partition key.
func LogHooks(log *slog.Logger) Hooks {
	var folded fold.Fold
	return Hooks{
		Ready: func() { log.Info("change feed processor ready") },
		Begun: logBegun(log),
		Acquired: func(lease feed.Lease) {
			log.Info("lease acquired", "lease", lease.Token, "position", positionOf(lease))
		},
		Released: func(lease feed.Lease, why feed.Reason) {
			log.Info("lease released", "lease", lease.Token, "reason", string(why))
		},
		BatchDone: func(d BatchDone) {
			log.Debug("batch done", "lease", d.Batch.LeaseToken, "changes", len(d.Batch.Changes),
				"attempt", d.Batch.Attempt, "duration", d.Duration, "err", d.Err)
		},
		Round: func(r Round) {
			log.Debug("round", "leases", r.Leases, "instances", r.Instances, "owned", r.Owned,
				"taken", r.Taken, "given", r.Given, "stolen", r.Stolen)
		},
		Parked: logParked(log),
		Outage: func(o Outage) {
			if o.Ended.IsZero() {
				log.Error("outage: several changes fail and hardly any succeeds, so none is parked for it", "changes", o.Changes, "since", o.Since)
				return
			}
			log.Warn("outage is over", "since", o.Since, "duration", o.Ended.Sub(o.Since))
		},
		Key:      logKeys(log),
		Redriven: logRedriven(log),
		Error: func(err *Error) {
			if errors.Is(err.Err, ErrOutage) { // Outage has written it
				return
			}
			left, ok := folded.Admit(kindOf(err), err.Lease, time.Now())
			if !ok {
				return
			}
			attrs := append([]any{"origin", string(err.Origin), "lease", err.Lease, "err", fold.Bounded(err.Err)}, left.Attrs("leases")...)
			if panicked, ok := errors.AsType[*PanicError](err); ok {
				attrs = append(attrs, "stack", string(panicked.Stack))
			}
			log.Error("change feed processor", attrs...)
		},
	}
}

// logBegun writes where a new unit begins: a warning if it passes over changes, or may.
func logBegun(log *slog.Logger) func(NewUnit) {
	return func(u NewUnit) {
		switch {
		case u.Passed == nil:
			log.Warn("the unit is new and passes over the changes before its start, whose number is not known; to handle them, delete its leases and start it from the beginning",
				"start", u.Start.String(), "leases", u.Leases, "passed", nil)
		case *u.Passed > 0:
			log.Warn("the unit is new and passes over the changes before its start; to handle them, delete its leases and start it from the beginning",
				"start", u.Start.String(), "leases", u.Leases, "passed", *u.Passed)
		default:
			log.Info("the unit is new", "start", u.Start.String(), "leases", u.Leases, "passed", 0)
		}
	}
}

// logParked writes which changes are parked.
func logParked(log *slog.Logger) func(feed.DeadLetter) {
	var folded fold.Fold
	return func(l feed.DeadLetter) {
		kind := string(l.Change.PartitionKey)
		if l.Disposition != feed.DispositionHeld { // each is for somebody to look at
			kind += " " + l.ID
		}
		if left, ok := folded.Admit(kind, l.ID, time.Now()); ok {
			log.Warn("change parked", append([]any{
				"letter", l.ID, "key", string(l.Change.PartitionKey), "item", l.Change.ID, "lsn", l.Change.LSN,
				"lease", l.Lease, "disposition", string(l.Disposition), "attempts", l.Attempts, "cause", l.Cause,
			}, left.Attrs("letters")...)...)
		}
	}
}

// logKeys writes which keys are treated apart.
func logKeys(log *slog.Logger) func(KeyEvent) {
	var folded fold.Fold
	return func(k KeyEvent) {
		if left, ok := folded.Admit(string(k.Became), string(k.Key), time.Now()); ok {
			log.Info("partition key "+string(k.Became), append([]any{"key", string(k.Key), "lease", k.Lease}, left.Attrs("keys")...)...)
		}
	}
}

// logRedriven writes how letters came out that were handed over again.
func logRedriven(log *slog.Logger) func(Redriven) {
	var folded fold.Fold
	return func(r Redriven) {
		text := "letter handled again"
		if r.Err != nil {
			text = "letter failed again"
		}
		if left, ok := folded.Admit(text, r.Letter.ID, time.Now()); ok {
			log.Info(text, append([]any{
				"letter", r.Letter.ID, "key", string(r.Letter.Change.PartitionKey), "lease", r.Letter.Lease, "recall", r.Recall, "err", r.Err,
			}, left.Attrs("letters")...)...)
		}
	}
}

// lasting are errors that somebody must mend, each for itself.
var lasting = []error{ErrHole, ErrOverlap, feed.ErrBadLease, ErrHandlerStuck, ErrLeasesGone, ErrSourceGone}

// answers are errors that a store repeats for all leases, whatever it is asked.
var answers = []error{
	feed.ErrThrottled, feed.ErrForbidden, feed.ErrNotFound, feed.ErrTooOld, feed.ErrGone, feed.ErrPrecondition, feed.ErrConflict, feed.ErrBadRequest,
	ErrModeChanged, ErrStartIgnored,
}

// kindOf is the same for errors that are written once a minute. It does not hang on the
// texts of errors alone, because each answer of an account has an id of its own, and the
// names of the failed requests differ.
func kindOf(err *Error) string {
	origin := string(err.Origin) + ": "
	if is(err, lasting) != nil {
		return origin + err.Lease + ": " + err.Err.Error()
	}
	if err.Origin == OriginHandler {
		if failed, ok := errors.AsType[*BatchError](err.Err); ok {
			return origin + fold.Words(failed.Err.Error())
		}
		return origin + fold.Words(err.Err.Error())
	}
	if known := is(err, answers); known != nil {
		return origin + known.Error()
	}
	return origin + fold.Words(fold.Root(err).Error())
}

// is returns the first sentinel that an error wraps, nil if there is none.
func is(err error, sentinels []error) error {
	for _, s := range sentinels {
		if errors.Is(err, s) {
			return s
		}
	}
	return nil
}

// positionOf is where an acquired lease is. A lease of another processor may not say, and then
// begins where the unit does, not now.
func positionOf(lease feed.Lease) string {
	if lease.Position == (feed.Position{}) {
		return "none yet"
	}
	return lease.Position.String()
}
