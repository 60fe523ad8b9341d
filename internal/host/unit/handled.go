package unit

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
)

// The pauses between two looks at the changes that are left.
const (
	firstLook = 100 * time.Millisecond
	lastLook  = 5 * time.Second
)

// AwaitHandled returns when the leases of a unit exist and have nothing left to handle, whoever has handled it, or when
// ctx ends. It looks again and again, because others may still write, and reports estimates that fail. If leases are left
// on which nobody can work, it returns an error that names them as soon as all others have nothing left.
func AwaitHandled(ctx context.Context, source feed.Source, leases feed.LeaseStore, report func(error)) (handled bool, err error) {
	before := ""
	for wait := firstLook; pause.For(ctx, wait) == nil; wait = min(2*wait, lastLook) {
		lags, err := changefeed.Estimate(ctx, source, leases)
		if err != nil {
			if ctx.Err() == nil {
				report(err)
			}
			continue
		}
		stuck, left := standing(lags)
		switch {
		case left || len(lags) == 0:
			before = ""
		case stuck == nil:
			return true, nil
		case stuck.Error() == before: // the look before may have been in the middle of a split
			return false, stuck
		default:
			before = stuck.Error()
		}
	}
	return false, nil
}

// standing returns why leases stand still, and reports whether others have changes left or may have.
func standing(lags []changefeed.Lag) (stuck error, left bool) {
	var errs []error
	for _, lag := range lags {
		switch {
		case errors.Is(lag.Err, feed.ErrOverlap): // another lease has its range
		case lag.Err != nil && slices.ContainsFunc(hopeless, func(err error) bool { return errors.Is(lag.Err, err) }):
			errs = append(errs, lag.Err)
		case lag.Err != nil || lag.Pending > 0:
			left = true
		}
	}
	return errors.Join(errs...), left
}

// hopeless are the errors of leases on which nobody works before somebody mends them.
var hopeless = []error{feed.ErrBadLease, feed.ErrTooOld, feed.ErrNoStart}
