package changefeed

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/fold"
	"github.com/millrace/changefeed/internal/hooklog"
)

// Hooks are called with the events of a processor; see [feed.Hooks] for each of them.
type Hooks = feed.Hooks

// JoinHooks joins several hooks: each event calls every set hook, in their order. JoinHooks(LogHooks(log), own) logs
// events and calls your own hooks.
func JoinHooks(hooks ...Hooks) Hooks {
	var joined Hooks
	for _, h := range hooks {
		joined = joined.And(h)
	}
	return joined
}

// withDefaultHooks sets the hooks that must not be silent.
func withDefaultHooks(h Hooks) Hooks {
	logged := LogHooks(slog.Default())
	setUnset(&h.Error, logged.Error)
	setUnset(&h.Parked, logged.Parked)
	setUnset(&h.Outage, logged.Outage)
	setUnset(&h.Slow, logged.Slow)
	setUnset(&h.Differing, logged.Differing)
	setUnset(&h.Paused, logged.Paused)
	setUnset(&h.Skipped, logged.Skipped)
	if h.Begun == nil {
		h.Begun = func(ctx context.Context, u feed.NewUnit) {
			if u.Passed == nil || *u.Passed > 0 { // the unit skips changes, or may skip some
				logged.Begun(ctx, u)
			}
		}
	}
	return h
}

func setUnset[E any](hook *func(context.Context, E), to func(context.Context, E)) {
	if *hook == nil {
		*hook = to
	}
}

// LogHooks are hooks writing to a logger. Failures and the beginning of an outage have the level error. Parked changes,
// the end of an outage, a new unit which skips changes, slow batches, leases taken from an instance without a sign of
// life, pauses, skips, and instances which begin to differ or no longer do have the level warning. Any other new unit,
// acquired and released leases, redriven letters, and keys when they are set aside, held or free again have the level
// info. Batches have the level debug.
//
// If many leases report errors of the same kind, LogHooks write a line a minute, so an outage does not fill the log.
// The next line counts the omitted errors as repeated. Errors of the handler are of the same kind if they differ only
// in words with digits. Errors of the source, the lease store and the balancer are of the same kind if they are the
// same error of package feed, or, for other errors, if they have the same cause. Errors an operator must repair are
// written for each lease: [feed.ErrHole], [feed.ErrOverlap], [feed.ErrBadLease], [feed.ErrHandlerStuck],
// [feed.ErrLeasesGone], [feed.ErrSourceGone]. In any minute LogHooks write at most 20 lines of errors; the next line
// counts the other errors as unwritten. Parked changes are limited in the same way: each is a line, but merely held
// changes share a line a minute for each partition key.
func LogHooks(log *slog.Logger) Hooks {
	var folded fold.Fold
	return Hooks{
		Ready: func(ctx context.Context) { log.InfoContext(ctx, "change feed processor ready") },
		Begun: hooklog.Begun(log),
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
		Slow: hooklog.Slow(log),
		TakenOver: func(ctx context.Context, t feed.TakeOver) {
			log.WarnContext(ctx, "took over leases of an instance that shows no life", "of", t.Instance, "leases",
				len(t.Leases), "silent", t.Silent.Round(time.Second).String(), "tokens", fold.Names(t.Leases))
		},
		Round: func(ctx context.Context, r feed.Round) {
			log.DebugContext(ctx, "round", "leases", r.Leases, "instances", r.Instances, "owned", r.Owned,
				"taken", r.Taken, "given", r.Given, "stolen", r.Stolen)
		},
		Parked: hooklog.Parked(log),
		Outage: func(ctx context.Context, o feed.Outage) {
			if o.Ended.IsZero() {
				log.ErrorContext(ctx, "outage: several changes fail and hardly any succeeds, so none is parked for it",
					"changes", o.Changes, "since", o.Since)
			} else {
				log.WarnContext(ctx, "outage is over", "since", o.Since, "duration", o.Ended.Sub(o.Since))
			}
		},
		Differing: hooklog.Differing(log),
		Paused:    hooklog.Paused(log),
		Skipped:   hooklog.Skipped(log),
		Key:       hooklog.Keys(log),
		Redriven:  hooklog.Redriven(log),
		Error: func(ctx context.Context, err *feed.Error) {
			if errors.Is(err.Err, feed.ErrOutage) { // Outage has already written this error
				return
			}
			left, ok := folded.Admit(kindOf(err), err.Lease, time.Now())
			if !ok {
				return
			}
			attrs := append([]any{"origin", string(err.Origin), "lease", err.Lease, "err", fold.Bounded(err.Err)},
				left.Attrs("leases")...)
			if panicked, ok := errors.AsType[*feed.PanicError](err); ok {
				attrs = append(attrs, "stack", string(panicked.Stack))
			}
			log.ErrorContext(ctx, string(err.Origin)+" failed", attrs...)
		},
	}
}

// lasting are errors an operator must repair, for each lease.
var lasting = []error{
	feed.ErrHole, feed.ErrOverlap, feed.ErrBadLease, feed.ErrHandlerStuck, feed.ErrLeasesGone,
	feed.ErrSourceGone,
}

// answers are errors which a store repeats for all leases and all requests.
var answers = []error{
	feed.ErrThrottled, feed.ErrForbidden, feed.ErrNotFound, feed.ErrTooOld, feed.ErrGone, feed.ErrPrecondition,
	feed.ErrConflict, feed.ErrBadRequest,
	feed.ErrModeChanged, feed.ErrStartIgnored,
}

// kindOf returns the kind of an error: errors of the same kind share a line a minute. The texts of errors alone
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

// is returns the first sentinel wrapped by an error, nil if there is none.
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
