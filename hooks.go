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

// Hooks are called with the events of a processor. Unset hooks do nothing, except that Error, Parked, Outage and Begun
// write warnings and errors to [slog.Default] as [LogHooks] do. So no change fails, leaves the feed or is skipped in
// silence. The processor calls hooks from many goroutines, so they must return soon; a hook that panics ends the
// program. [JoinHooks] joins several.
//
// The context of a hook has the values of the context that you passed to [Processor.Run], such as a trace. The context
// does not end, so that a hook can still report events during a stop.
type Hooks struct {
	// Ready: the unit's leases exist; every change committed from now on will be delivered.
	Ready func(ctx context.Context)
	// Begun: the unit is new, and this instance has made its leases. It comes before Ready.
	Begun func(ctx context.Context, u feed.NewUnit)
	// Acquired: this instance begins to work on a lease.
	Acquired func(ctx context.Context, l feed.Lease)
	// Released: this instance has stopped working on a lease.
	Released func(ctx context.Context, l feed.Lease, why feed.Reason)
	// BatchDone: the handler has returned, with or without success.
	BatchDone func(ctx context.Context, d feed.BatchDone)
	// ReadDone: the read of a page has succeeded or failed.
	ReadDone func(ctx context.Context, d feed.ReadDone)
	// WaitDone: a wait for changes of the source is over.
	WaitDone func(ctx context.Context, d feed.WaitDone)
	// StoreDone: the write of a held lease has succeeded or failed.
	StoreDone func(ctx context.Context, d feed.StoreDone)
	// Round: the balancer has compared the leases with the instances.
	Round func(ctx context.Context, r feed.Round)
	// Parked: a change is now among the dead letters.
	Parked func(ctx context.Context, l feed.DeadLetter)
	// Outage: an outage was detected, or is over.
	Outage func(ctx context.Context, o feed.Outage)
	// Key: a partition key was set aside, has caught up, is held, or was released.
	Key func(ctx context.Context, k feed.KeyEvent)
	// Redriven: the handler has received a letter again, at the request of an operator or after an outage.
	Redriven func(ctx context.Context, r feed.Redriven)
	// Error: something failed, and the processor goes on.
	Error func(ctx context.Context, err *feed.Error)
}

// JoinHooks joins several hooks: for each event it calls every set hook, in their order. JoinHooks(LogHooks(log), own)
// logs events and calls your own hooks.
func JoinHooks(hooks ...Hooks) Hooks {
	var joined Hooks
	for _, h := range hooks {
		joined = joined.and(h)
	}
	return joined
}

// and returns hooks that call those of h, then those of next. If a hook with a default is unset in both, it stays
// unset.
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

// bindTo returns the hooks for the parts of the processor: each receives ctx.
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

// passesOver reports whether a new unit skips changes, or may skip some.
func passesOver(u feed.NewUnit) bool { return u.Passed == nil || *u.Passed > 0 }

// LogHooks are hooks that write to a logger. Failures and the beginning of an outage have the level error. Parked
// changes, the end of an outage and a new unit that skips changes have the level warning. Any other new unit, acquired
// and released leases, redriven letters, and keys when they are set aside, held or free again have the level info.
// Batches have the level debug.
//
// If many leases report errors of the same kind, LogHooks write one line a minute, so that an outage does not fill the
// log. The next line counts the omitted errors as repeated. Errors of the handler are of the same kind if they differ
// only in words with digits. Errors of the source, the lease store and the balancer are of the same kind if they are
// the same error of package feed, or, for other errors, if they have the same cause. Errors that an operator must
// repair are written for each lease: [feed.ErrHole], [feed.ErrOverlap], [feed.ErrBadLease], [feed.ErrHandlerStuck],
// [feed.ErrLeasesGone], [feed.ErrSourceGone]. In any minute LogHooks write at most 20 lines of errors; the next line
// counts the errors beyond that as unwritten. Parked changes are limited in the same way: each is a line, but merely
// held changes share one line a minute for each partition key.
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
			if errors.Is(err.Err, feed.ErrOutage) { // Outage has already written this error
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

// logBegun writes where a new unit begins: as a warning if the unit skips changes or may skip some.
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
		if l.Disposition != feed.DispositionHeld { // an operator looks at each of these
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

// logKeys writes which keys are set aside, held, or free again.
func logKeys(log *slog.Logger) func(context.Context, feed.KeyEvent) {
	var folded fold.Fold
	return func(ctx context.Context, k feed.KeyEvent) {
		if left, ok := folded.Admit(string(k.Became), string(k.Key), time.Now()); ok {
			log.InfoContext(ctx, "partition key "+string(k.Became), append([]any{"key", string(k.Key), "lease", k.Lease}, left.Attrs("keys")...)...)
		}
	}
}

// logRedriven writes the results of redriven letters.
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

// lasting are errors that an operator must repair, for each lease.
var lasting = []error{feed.ErrHole, feed.ErrOverlap, feed.ErrBadLease, feed.ErrHandlerStuck, feed.ErrLeasesGone, feed.ErrSourceGone}

// answers are errors which a store repeats for all leases and all requests.
var answers = []error{
	feed.ErrThrottled, feed.ErrForbidden, feed.ErrNotFound, feed.ErrTooOld, feed.ErrGone, feed.ErrPrecondition, feed.ErrConflict, feed.ErrBadRequest,
	feed.ErrModeChanged, feed.ErrStartIgnored,
}

// kindOf returns the kind of an error: errors of the same kind share one line a minute. The texts of errors alone
// cannot tell the kind, because each answer of an account contains its own id, and the names of the failed requests
// differ.
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

// positionOf describes the position of an acquired lease. A lease of another processor may have no position; then the
// lease begins where the unit began, not now.
func positionOf(lease feed.Lease) string {
	if lease.Position == (feed.Position{}) {
		return "none yet"
	}
	return lease.Position.String()
}
