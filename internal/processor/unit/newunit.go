package unit

import (
	"context"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/instance"
)

// announceNewUnit reports where the unit begins that this instance has made.
func (u *Unit) announceNewUnit(ctx context.Context, unit *feed.NewUnit) {
	leases, _ := u.in.View.Leases()
	unit.Leases, unit.Passed = len(leases), u.passedOver(ctx, unit.Start, leases)
	u.began.Store(unit)
	instance.CallHook(u.in, u.in.Hooks.Begun, *unit)
}

// countTime bounds the count of skipped changes, because the new unit waits for the result.
const countTime = 10 * time.Second

// passedOver counts the changes before the positions of a new unit's leases; nil if the number is unknown.
func (u *Unit) passedOver(ctx context.Context, start feed.Start, leases []feed.Record) *int64 {
	if start.IsBeginning() {
		return new(int64)
	}
	counter, ok := u.in.Source.(feed.Counter)
	if !ok || u.in.Options.Mode != feed.LatestVersion {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	all, err := counter.Pending(ctx, feed.FullRange(), feed.Position{Start: feed.FromBeginning()}, feed.ReadOptions{})
	for _, lease := range leases {
		if err == nil {
			var after feed.Backlog
			after, err = counter.Pending(ctx, lease.Range, lease.Position, feed.ReadOptions{})
			all.Items -= after.Items
		}
	}
	if err != nil {
		return nil
	}
	return new(max(0, all.Items))
}
