package unit

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/internal/pause"
)

// The pauses between two looks at the changes that are left.
const (
	firstLook = 100 * time.Millisecond
	lastLook  = 5 * time.Second
)

// AwaitHandled returns when the leases of a unit exist and have nothing left to handle, whoever has handled it, or when
// ctx ends. It looks again and again, because others may still write, and reports estimates that fail.
func AwaitHandled(ctx context.Context, source changefeed.Source, leases changefeed.LeaseStore, report func(error)) bool {
	for wait := firstLook; pause.For(ctx, wait) == nil; wait = min(2*wait, lastLook) {
		lags, err := changefeed.Estimate(ctx, source, leases)
		switch {
		case err != nil && ctx.Err() == nil:
			report(err)
		case err == nil && nothingLeft(lags):
			return true
		}
	}
	return false
}

// nothingLeft reports whether each lease has handled all changes, as far as its lag is known.
func nothingLeft(lags []changefeed.Lag) bool {
	return len(lags) > 0 && !slices.ContainsFunc(lags, func(lag changefeed.Lag) bool { return lag.Err != nil || lag.Pending > 0 })
}
