package changefeed

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/fold"
	"github.com/millrace/changefeed/internal/processor/instance"
)

// Hooks are called with the events of a processor. Unset hooks do nothing, except that Error,
// Parked, Outage and Begun write warnings and errors to [slog.Default] as [LogHooks] do, so that
// nothing fails, leaves the feed or is passed over in silence. They are called from many goroutines and must return soon; a hook that
// panics ends the program. [JoinHooks] joins several.
//
// The context of a hook has the values of the context that was passed to [Processor.Run], such as a
// trace, and does not end, so that a hook can still report what happens during a stop.
type Hooks struct {
	// Ready: the unit's leases exist; every change committed from now on will be delivered.
	Ready func(ctx context.Context)
	// Begun: the unit is new, and this instance has made its leases. It comes before Ready.
	Begun func(ctx context.Context, u feed.NewUnit)
	// Acquired: this instance begins to work on a lease.
	Acquired func(ctx context.Context, l feed.Lease)
	// Released: this instance has stopped working on a lease.
	Released func(ctx context.Context, l feed.Lease, why feed.Reason)
	// BatchDone: the handler has come back, with or without success.
	BatchDone func(ctx context.Context, d feed.BatchDone)
	// ReadDone: a page was read, or not.
	ReadDone func(ctx context.Context, d feed.ReadDone)
	// WaitDone: the source had been waited for.
	WaitDone func(ctx context.Context, d feed.WaitDone)
	// StoreDone: a held lease was written, or not.
	StoreDone func(ctx context.Context, d feed.StoreDone)
	// Round: the balancer has compared the leases with the instances.
	Round func(ctx context.Context, r feed.Round)
	// Parked: a change is among the dead letters.
	Parked func(ctx context.Context, l feed.DeadLetter)
	// Outage: an outage was detected, or is over.
	Outage func(ctx context.Context, o feed.Outage)
	// Key: a partition key was set aside, has caught up, is held, or was released.
	Key func(ctx context.Context, k feed.KeyEvent)
	// Redriven: a letter went to the handler again, at the request of an operator or after an
	// outage.
	Redriven func(ctx context.Context, r feed.Redriven)
	// Error: something failed, and the processor goes on.
	Error func(ctx context.Context, err *feed.Error)
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
		Ready: func(ctx context.Context) {
			for _, hook := range []func(context.Context){h.Ready, next.Ready} {
				if hook != nil {
					hook(ctx)
				}
			}
		},
		Begun:    both(h.Begun, next.Begun),
		Acquired: both(h.Acquired, next.Acquired),
		Released: func(ctx context.Context, lease feed.Lease, why feed.Reason) {
			for _, hook := range []func(context.Context, feed.Lease, feed.Reason){h.Released, next.Released} {
				if hook != nil {
					hook(ctx, lease, why)
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
func both[E any](first, second func(context.Context, E)) func(context.Context, E) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(ctx context.Context, event E) {
		first(ctx, event)
		second(ctx, event)
	}
}

// bindTo returns the hooks as the parts of the processor call them: each receives ctx.
func (h Hooks) bindTo(ctx context.Context) instance.Hooks {
	return instance.Hooks{
		Ready:     func() { h.Ready(ctx) },
		Begun:     bound(ctx, h.Begun),
		Acquired:  bound(ctx, h.Acquired),
		Released:  func(lease feed.Lease, why feed.Reason) { h.Released(ctx, lease, why) },
		BatchDone: bound(ctx, h.BatchDone),
		ReadDone:  bound(ctx, h.ReadDone),
		WaitDone:  bound(ctx, h.WaitDone),
		StoreDone: bound(ctx, h.StoreDone),
		Round:     bound(ctx, h.Round),
		Parked:    bound(ctx, h.Parked),
		Outage:    bound(ctx, h.Outage),
		Key:       bound(ctx, h.Key),
		Redriven:  bound(ctx, h.Redriven),
		Error:     bound(ctx, h.Error),
	}
}

// bound returns a hook that receives ctx with each event.
func bound[E any](ctx context.Context, hook func(context.Context, E)) func(E) {
	return func(event E) { hook(ctx, event) }
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
		h.Begun = func(ctx context.Context, u feed.NewUnit) {
			if passesOver(u) {
				logged.Begun(ctx, u)
			}
		}
	}
	return h.and(Hooks{
		Acquired:  func(context.Context, feed.Lease) {},
		BatchDone: func(context.Context, feed.BatchDone) {},
		ReadDone:  func(context.Context, feed.ReadDone) {},
		WaitDone:  func(context.Context, feed.WaitDone) {},
		StoreDone: func(context.Context, feed.StoreDone) {},
		Round:     func(context.Context, feed.Round) {},
		Key:       func(context.Context, feed.KeyEvent) {},
		Redriven:  func(context.Context, feed.Redriven) {},
	})
}

// passesOver reports whether a new unit leaves changes behind, or may.
func passesOver(u feed.NewUnit) bool { return u.Passed == nil || *u.Passed > 0 }

// LogHooks are hooks that write to a logger: errors as errors, parked changes as warnings, a new unit
// that passes over changes as a warning and any other as info, the
// beginning of an outage as an error and its end as a warning, leases that come and go as info, so are keys that are set
// aside, held or free again, and letters that are handed over again, and batches as debug.
//
// Errors of the same kind are one line a minute, for however many leases, so that an outage
// does not fill the log; the next line counts the errors left out as repeated. Errors of
// the handler are of the same kind if they differ only in words that have digits in them.
// Errors of the source, the lease store and the balancer are if they are the same error
// of package feed or, being none, have the same cause; but errors that somebody must
// mend are written for each lease: [feed.ErrHole], [feed.ErrOverlap], [feed.ErrBadLease],
// [feed.ErrHandlerStuck], [feed.ErrLeasesGone], [feed.ErrSourceGone]. In any minute there are at most 20 lines of errors; the next line
// counts the errors for which there was no room as unwritten. Parked changes are counted in the
// same way: each is a line, but those that are only held are one a minute for each partition key.
func LogHooks(log *slog.Logger) Hooks {
	var folded fold.Fold
	return Hooks{
		Ready: func(ctx context.Context) { log.InfoContext(ctx, "change feed processor ready") },
		Begun: logBegun(log),
		Acquired: func(ctx context.Context, lease feed.Lease) {
			log.InfoContext(ctx, "lease acquired", "lease", lease.Token, "position", positionOf(lease))
		},
		Released: func(ctx context.Context, lease feed.Lease, why feed.Reason) {
			log.InfoContext(ctx, "lease released", "lease", lease.Token, "reason", string(why))
		},
		BatchDone: func(ctx context.Context, d feed.BatchDone) {
			log.DebugContext(ctx, "batch done", "lease", d.Batch.LeaseToken, "changes", len(d.Batch.Changes),
				"attempt", d.Batch.Attempt, "duration", d.Duration, "err", d.Err)
		},
		Round: func(ctx context.Context, r feed.Round) {
			log.DebugContext(ctx, "round", "leases", r.Leases, "instances", r.Instances, "owned", r.Owned,
				"taken", r.Taken, "given", r.Given, "stolen", r.Stolen)
		},
		Parked: logParked(log),
		Outage: func(ctx context.Context, o feed.Outage) {
			if o.Ended.IsZero() {
				log.ErrorContext(ctx, "outage: several changes fail and hardly any succeeds, so none is parked for it", "changes", o.Changes, "since", o.Since)
				return
			}
			log.WarnContext(ctx, "outage is over", "since", o.Since, "duration", o.Ended.Sub(o.Since))
		},
		Key:      logKeys(log),
		Redriven: logRedriven(log),
		Error: func(ctx context.Context, err *feed.Error) {
			if errors.Is(err.Err, feed.ErrOutage) { // Outage has written it
				return
			}
			left, ok := folded.Admit(kindOf(err), err.Lease, time.Now())
			if !ok {
				return
			}
			attrs := append([]any{"origin", string(err.Origin), "lease", err.Lease, "err", fold.Bounded(err.Err)}, left.Attrs("leases")...)
			if panicked, ok := errors.AsType[*feed.PanicError](err); ok {
				attrs = append(attrs, "stack", string(panicked.Stack))
			}
			log.ErrorContext(ctx, "change feed processor", attrs...)
		},
	}
}

// logBegun writes where a new unit begins: a warning if it passes over changes, or may.
func logBegun(log *slog.Logger) func(context.Context, feed.NewUnit) {
	return func(ctx context.Context, u feed.NewUnit) {
		switch {
		case u.Mode == feed.AllVersionsAndDeletes:
			log.InfoContext(ctx, "the unit is new and begins now: all versions and deletes cannot begin earlier", "start", u.Start.String(), "leases", u.Leases)
		case u.Passed == nil:
			log.WarnContext(ctx, "the unit is new and passes over the changes before its start, whose number is not known; to handle them, delete its leases and start it from the beginning",
				"start", u.Start.String(), "leases", u.Leases, "passed", nil)
		case *u.Passed > 0:
			log.WarnContext(ctx, "the unit is new and passes over the changes before its start; to handle them, delete its leases and start it from the beginning",
				"start", u.Start.String(), "leases", u.Leases, "passed", *u.Passed)
		default:
			log.InfoContext(ctx, "the unit is new", "start", u.Start.String(), "leases", u.Leases, "passed", 0)
		}
	}
}

// logParked writes which changes are parked.
func logParked(log *slog.Logger) func(context.Context, feed.DeadLetter) {
	var folded fold.Fold
	return func(ctx context.Context, l feed.DeadLetter) {
		kind := string(l.Change.PartitionKey)
		if l.Disposition != feed.DispositionHeld { // each is for somebody to look at
			kind += " " + l.ID
		}
		if left, ok := folded.Admit(kind, l.ID, time.Now()); ok {
			log.WarnContext(ctx, "change parked", append([]any{
				"letter", l.ID, "key", string(l.Change.PartitionKey), "item", l.Change.ID, "lsn", l.Change.LSN,
				"lease", l.Lease, "disposition", string(l.Disposition), "attempts", l.Attempts, "cause", l.Cause,
			}, left.Attrs("letters")...)...)
		}
	}
}

// logKeys writes which keys are treated apart.
func logKeys(log *slog.Logger) func(context.Context, feed.KeyEvent) {
	var folded fold.Fold
	return func(ctx context.Context, k feed.KeyEvent) {
		if left, ok := folded.Admit(string(k.Became), string(k.Key), time.Now()); ok {
			log.InfoContext(ctx, "partition key "+string(k.Became), append([]any{"key", string(k.Key), "lease", k.Lease}, left.Attrs("keys")...)...)
		}
	}
}

// logRedriven writes how letters came out that were handed over again.
func logRedriven(log *slog.Logger) func(context.Context, feed.Redriven) {
	var folded fold.Fold
	return func(ctx context.Context, r feed.Redriven) {
		text := "letter handled again"
		if r.Err != nil {
			text = "letter failed again"
		}
		if left, ok := folded.Admit(text, r.Letter.ID, time.Now()); ok {
			log.InfoContext(ctx, text, append([]any{
				"letter", r.Letter.ID, "key", string(r.Letter.Change.PartitionKey), "lease", r.Letter.Lease, "recall", r.Recall, "err", r.Err,
			}, left.Attrs("letters")...)...)
		}
	}
}

// lasting are errors that somebody must mend, each for itself.
var lasting = []error{feed.ErrHole, feed.ErrOverlap, feed.ErrBadLease, feed.ErrHandlerStuck, feed.ErrLeasesGone, feed.ErrSourceGone}

// answers are errors that a store repeats for all leases, whatever it is asked.
var answers = []error{
	feed.ErrThrottled, feed.ErrForbidden, feed.ErrNotFound, feed.ErrTooOld, feed.ErrGone, feed.ErrPrecondition, feed.ErrConflict, feed.ErrBadRequest,
	feed.ErrModeChanged, feed.ErrStartIgnored,
}

// kindOf is the same for errors that are written once a minute. It does not hang on the
// texts of errors alone, because each answer of an account has an id of its own, and the
// names of the failed requests differ.
func kindOf(err *feed.Error) string {
	origin := string(err.Origin) + ": "
	if is(err, lasting) != nil {
		return origin + err.Lease + ": " + err.Err.Error()
	}
	if err.Origin == feed.OriginHandler {
		if failed, ok := errors.AsType[*feed.BatchError](err.Err); ok {
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
