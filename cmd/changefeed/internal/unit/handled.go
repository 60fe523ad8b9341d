package unit

import (
	"context"
	"errors"
	"fmt"
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

// replicaLag is how long a position may lie ahead of the feed because a replica lags behind.
const replicaLag = 5 * time.Second

// AwaitHandled returns when the leases of a unit exist and have no changes left, whichever instance has handled them,
// or when ctx ends. AwaitHandled checks again and again, because other programs may still write, and reports failed
// estimates. If broken leases remain, AwaitHandled returns an error that names them as soon as all other leases have no
// changes left. A position that stays ahead of the feed for some seconds counts as broken.
func AwaitHandled(ctx context.Context, source feed.Source, leases feed.LeaseStore, report func(error)) (handled bool,
	err error,
) {
	before, since := "", time.Time{} // why leases stood still at the previous check, and since when
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
		case stuck.Error() != before: // the check may be in the middle of a split
			before, since = stuck.Error(), time.Now()
		case !errors.Is(stuck, feed.ErrAhead) || time.Since(since) >= replicaLag:
			return false, stuck
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
		case errors.Is(lag.Err, feed.ErrAhead):
			errs = append(errs, aheadError(lag.Lease.Token, lag.Err))
		case lag.Err != nil && slices.ContainsFunc(hopeless, func(err error) bool { return errors.Is(lag.Err, err) }):
			errs = append(errs, lag.Err)
		case lag.Err != nil || lag.Pending > 0:
			left = true
		}
	}
	return errors.Join(errs...), left
}

// aheadError is the advice about a lease whose position is ahead of the feed.
func aheadError(token string, err error) error {
	return fmt.Errorf("lease %s: %w: was the container restored from a backup, or are these leases of another one? "+
		"Changes up to the position will not be handled until you reset the unit to where it is to go on: changefeed "+
		"leases reset --to START", token, err)
}

// hopeless are the errors of leases that no instance works on until an operator repairs them.
var hopeless = []error{feed.ErrBadLease, feed.ErrTooOld, feed.ErrNoStart}
