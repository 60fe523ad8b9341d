package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/inquiry"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/records"
	"github.com/millrace/changefeed/internal/sentence"
)

// ErrNotServed means that the instances of the unit have not obeyed before the end of the context. The text says which
// lease is left, and why, as far as that is known.
var ErrNotServed = inquiry.ErrNotServed

// ErrUnknownAction is an [ErrNotServed] whose reason is that the owner of a lease is of an older version, which does
// not know the action. The owner has not changed the request.
var ErrUnknownAction = inquiry.ErrUnknownAction

// Options describe who steers a unit, and how.
type Options struct {
	By     string // who: a person or a program; in the records of the requests, and in the history
	Reason string // why: in the records of the requests, and in the history
	DryRun bool   // change nothing, and return the planned steps

	// Estimator measures the lags in [Unit.List], and so knows the pace from the second call on. Nil is an estimator of
	// the Unit. A program that opens a unit anew for each listing gives the same estimator each time.
	Estimator *changefeed.Estimator
}

// Unit is a deployment unit: the leases of a processor name for a monitored container.
type Unit struct {
	source  feed.Source
	leases  feed.LeaseStore
	options Options

	estimator *changefeed.Estimator
}

// Open returns the unit of a lease store and a monitored container. Open reads nothing. For a [Unit.List] without lags
// the source may be nil.
func Open(source feed.Source, leases feed.LeaseStore, o Options) *Unit {
	return &Unit{source: source, leases: leases, options: o, estimator: cmp.Or(o.Estimator, new(changefeed.Estimator))}
}

// Selection says which leases are meant: all, or those of a range.
type Selection struct{ of feed.Range }

// All selects all leases of the unit, and those that are made later.
func All() Selection { return Selection{feed.FullRange()} }

// Of selects the leases of a range. The range must begin and end where leases do: a lease is never cut.
func Of(r feed.Range) Selection { return Selection{r} }

// Action is an action on a lease.
type Action string

// The actions.
const (
	ActionPause  Action = "pause"
	ActionResume Action = "resume"
	ActionReset  Action = "reset"
	// ActionSkip is the action of a skip in the history, which has no steps.
	ActionSkip Action = "skip"
	// ActionRestore is the action of a restore in the history, with resets as the steps.
	ActionRestore Action = "restore"
	// ActionCleanUp is the action of a clean-up in the history, which has no steps.
	ActionCleanUp Action = "cleanup"

	// ActionRetry, ActionRelease and ActionDrop are actions on dead letters through package deadletters, in the
	// history: see [Unit.Record].
	ActionRetry   Action = "retry"
	ActionRelease Action = "release"
	ActionDrop    Action = "drop"
)

// Step is a finished action on a lease or, after a dry run, a planned action.
type Step struct {
	Action Action
	Lease  feed.Lease    // as it was before
	To     feed.Position // of a reset: the new position

	// Key is the only key whose changes come again; empty for all other steps.
	Key feed.PartitionKey

	// Earlier is the request that had paused the lease before a pause, with who and why, which stay; nil if none had.
	Earlier *Request

	Done bool // false after a dry run, and for leases that an error has left
}

// list reads the records of the unit.
func (u *Unit) list(ctx context.Context) (*records.View, error) {
	v := records.NewView(u.leases, u.source)
	if err := v.List(ctx, time.Now()); err != nil {
		return nil, fmt.Errorf("read leases: %w", err)
	}
	return v, nil
}

// needSource returns an error if the unit was opened without the container that it reads.
func needSource(u *Unit) error {
	if u.source == nil {
		return fmt.Errorf("%w: %w", feed.ErrBadRequest, errNoSource)
	}
	return nil
}

// listChosen lists the leases, and chooses those of a selection.
func listChosen(ctx context.Context, u *Unit, s Selection) (v *records.View, chosen []feed.Record, err error) {
	if v, err = u.list(ctx); err != nil {
		return nil, nil, err
	}
	chosen, err = u.choose(v, s)
	return v, chosen, err
}

// choose returns the leases of a selection, by their ranges. The error names leases that cannot be steered.
func (u *Unit) choose(v *records.View, s Selection) (chosen []feed.Record, err error) {
	leases, bad := v.Leases()
	if len(leases) == 0 {
		return nil, fmt.Errorf("%w: the unit has no leases", feed.ErrNotFound)
	}
	for _, lease := range slices.Concat(leases, bad) {
		switch {
		case !s.of.Overlaps(lease.Range):
		case lease.Err != nil:
			return nil, fmt.Errorf("lease %s: %w", lease.ID, lease.Err)
		case !s.of.Contains(lease.Range):
			return nil, fmt.Errorf("%w: range %s cuts lease %s: want a range that ends where leases do, such as %[3]s",
				feed.ErrBadRequest, s.of, lease.Range)
		case records.IsForeign(lease) && !isExpired(lease, v.Now()):
			return nil, fmt.Errorf("%w: lease %s belongs to %q, another kind of processor: stop that one first",
				feed.ErrForeignOwner, lease.Token, lease.Owner)
		default:
			chosen = append(chosen, lease)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("%w: the unit has no lease in range %s", feed.ErrNotFound, s.of)
	}
	slices.SortFunc(chosen, func(a, b feed.Record) int { return strings.Compare(a.Range.Min, b.Range.Min) })
	return chosen, nil
}

// defaultExpiration is that of the processor's options, for leases that do not say.
const defaultExpiration = time.Minute

// isExpired reports whether the owner of a lease has been silent for too long.
func isExpired(lease feed.Record, now time.Time) bool {
	return records.IsExpired(lease, now, cmp.Or(lease.Expiration, defaultExpiration))
}

// isAtWork reports whether a lease has an owner who may be at work.
func isAtWork(lease feed.Record, now time.Time) bool { return !lease.Free() && !isExpired(lease, now) }

// workOn says who may work on a lease; empty if nobody does. A new owner who has not begun may leave a lease to nobody
// while the owner before may still work.
func workOn(lease feed.Record, now time.Time) string {
	switch {
	case isAtWork(lease, now):
		return fmt.Sprintf("lease %s belongs to %s, who last wrote it %v ago", lease.Token, lease.Owner,
			sentence.Exact(now.Sub(lease.Updated).Round(time.Second)))
	case lease.Fence.After(now):
		return fmt.Sprintf("an earlier owner of lease %s may work for %v", lease.Token,
			sentence.Exact(lease.Fence.Sub(now).Round(time.Second)))
	}
	return ""
}

// stamp sets the fields of a record that each writer sets.
func stamp(r *feed.Record) { r.Timestamp = instance.Timestamp() }

// changeLease writes a lease that nobody works on, and reports whether that has succeeded. An instance may have taken
// or written the lease meanwhile.
func (u *Unit) changeLease(ctx context.Context, lease feed.Record, edit func(*feed.Record)) (changed bool, err error) {
	lease.Owner, lease.Epoch = "", ""
	edit(&lease)
	stamp(&lease)
	_, err = u.leases.Update(ctx, lease)
	if errors.Is(err, feed.ErrConflict) || errors.Is(err, feed.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("write lease %s: %w", lease.Token, err)
	}
	return true, nil
}

// newControl returns a request about a range.
func (u *Unit) newControl(action string, of feed.Range) notes.Control {
	return notes.Control{Action: action, Min: of.Min, Max: of.Max, By: u.options.By, Why: u.options.Reason}
}

// The waits until the leases are listed again.
const (
	firstWait = 50 * time.Millisecond
	lastWait  = 2 * time.Second
)

// until calls f again and again until f is done, fails, or ctx ends. left names the unfinished work.
func until(ctx context.Context, f func() (done bool, left string, err error)) error {
	left := "the lease store has not answered in time"
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		done, still, err := f()
		left = cmp.Or(still, left)
		switch {
		case errors.Is(err, ErrUnknownAction): // says more than the end of ctx
			return err
		case ctx.Err() != nil && !done:
			return &unserved{left, context.Cause(ctx)}
		case done || err != nil:
			return err
		}
		if pause.For(ctx, wait) != nil {
			return &unserved{left, context.Cause(ctx)}
		}
	}
}

// unserved is an [ErrNotServed] that also wraps the cause of a context.
type unserved struct {
	left  string
	cause error
}

// Error implements error.
func (e *unserved) Error() string { return fmt.Sprintf("%v: %s (%v)", ErrNotServed, e.left, e.cause) }

// Unwrap returns [ErrNotServed] and the cause.
func (e *unserved) Unwrap() []error { return []error{ErrNotServed, e.cause} }
