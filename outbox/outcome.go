package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
)

// ErrUnknown is wrapped by every [UnknownError].
var ErrUnknown = errors.New("whether the unit of work is stored is unknown")

// NotStoredError is the outcome of a [Unit.Commit] that has written nothing, neither now nor in an earlier try. The
// unit still has its objects and their events.
type NotStoredError struct {
	// Err is the reason: an ErrPrecondition, ErrConflict, ErrNotFound, ErrThrottled, ErrBadRequest or ErrForbidden of
	// package feed, [ErrTooLarge], [ErrMixedKeys] or [ErrDuplicate], or, if ctx ended before the unit was sent, the
	// cause of that end.
	Err error
}

func (e *NotStoredError) Error() string { return fmt.Sprintf("unit of work is not stored: %v", e.Err) }

// Unwrap returns Err.
func (e *NotStoredError) Unwrap() error { return e.Err }

// UnknownError is the outcome of a [Unit.Commit] if the unit may have been stored or not: for example, the store has
// not answered. [Unit.Settle] finds out.
//
// An UnknownError is an [ErrUnknown] and never one of the errors of package feed, even if the store refused a later try
// with such an error, because the refusal of that try says nothing about an earlier try.
type UnknownError struct {
	// Err is why the outcome is unknown.
	Err error
	// IsFinal says that the outcome can no longer be found out: another writer has written the objects since, and the
	// unit has no events or its events may have expired. Load the objects and look. Commit and Settle of this unit send
	// nothing more.
	IsFinal bool
}

func (e *UnknownError) Error() string {
	if e.IsFinal {
		return fmt.Sprintf("%v and cannot be found out any more: %v", ErrUnknown, e.Err)
	}
	return fmt.Sprintf("%v: %v", ErrUnknown, e.Err)
}

// Is makes errors.Is(err, ErrUnknown) true.
func (e *UnknownError) Is(target error) bool { return target == ErrUnknown }

// Unwrap returns Err, except if Err is an answer of the store.
func (e *UnknownError) Unwrap() error {
	if isAnswer(e.Err) {
		return nil
	}
	return e.Err
}

// answers are the errors with which a store refuses a batch. An ErrPrecondition is an ErrConflict.
var answers = []error{
	feed.ErrConflict, feed.ErrNotFound, feed.ErrThrottled, feed.ErrBadRequest,
	feed.ErrForbidden, feed.ErrGone,
}

func isAnswer(err error) bool {
	return slices.ContainsFunc(answers, func(answer error) bool { return errors.Is(err, answer) })
}

// The pauses between the tries of Settle double.
const (
	firstSettlePause   = 50 * time.Millisecond
	longestSettlePause = 5 * time.Second
)

// Settle finds out the unknown outcome of a Commit. Settle sends the same unit again, which stores nothing twice, until
// the store answers or ctx ends; the pauses between two tries grow from 50 ms to 5 s. Settle returns the same as
// Commit: nil if the unit is stored, a [*NotStoredError], or an [*UnknownError] after ctx has ended or if IsFinal is
// set. Settle does not write objects or events that were tracked or recorded since; Commit does.
//
// If no outcome is unknown, Settle sends nothing and returns the outcome of the last Commit.
func (u *Unit) Settle(ctx context.Context) error {
	for failures := 0; u.attempt != nil; failures++ {
		err := u.sendOnce(ctx)
		unknown, ok := errors.AsType[*UnknownError](err)
		if !ok || unknown.IsFinal {
			return err
		}
		wait := pause.Doubled(firstSettlePause, failures, longestSettlePause)
		if throttled, ok := errors.AsType[*feed.ThrottledError](unknown.Err); ok {
			wait = max(wait, throttled.After)
		}
		if pause.For(ctx, wait) != nil {
			return err
		}
	}
	return u.outcome
}
