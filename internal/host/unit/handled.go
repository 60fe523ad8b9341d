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

// The pauses between two checks for remaining changes.
const (
	firstLook = 100 * time.Millisecond
	lastLook  = 5 * time.Second
)

// AwaitHandled returns when the leases of a unit exist and have no changes left, whichever instance has handled them,
// or when ctx ends. AwaitHandled checks again and again, because other programs may still write, and reports failed
// estimates. If broken leases remain, AwaitHandled returns an error that names them as soon as all other leases have no
// changes left.
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
		case stuck.Error() == before: // the previous check may have been in the middle of a split
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
		case errors.Is(lag.Err, feed.ErrOverlap): // another lease has the range
		case lag.Err != nil && slices.ContainsFunc(hopeless, func(err error) bool { return errors.Is(lag.Err, err) }):
			errs = append(errs, lag.Err)
		case lag.Err != nil || lag.Pending > 0:
			left = true
		}
	}
	return errors.Join(errs...), left
}

// hopeless are the errors of leases that no instance works on until an operator repairs them.
var hopeless = []error{feed.ErrBadLease, feed.ErrTooOld, feed.ErrNoStart}
