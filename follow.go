package changefeed

import (
	"context"
	"sync/atomic"
	"time"
)

// follower keeps the view up to date from the lease container's own feed, if the store can.
type follower struct {
	r    *run
	live atomic.Bool // the feed keeps the view up to date, so rounds need not list
}

// run follows until ctx ends.
func (f *follower) run(ctx context.Context) {
	store, ok := f.r.store.(Follower)
	if !ok {
		return
	}
	rng := f.r.random("follow")
	cursor, failures := "", 0
	for ctx.Err() == nil {
		asked := time.Now()
		changed, next, now, err := store.Follow(ctx, cursor)
		if err != nil {
			f.live.Store(false)
			f.r.report(ctx, OriginLeaseStore, "", err)
			failures++
			cursor = "" // the cursor itself may be refused
			pause(ctx, f.r.backoff(rng, failures))
			continue
		}
		if cursor == "" {
			f.r.view.distrust() // only a listing has the changes before the cursor
			f.r.wake()
		}
		cursor, failures = next, 0
		f.live.Store(true)
		if f.r.view.heard(changed, now) {
			f.r.wake()
		}
		f.verify(changed)
		// A store may answer at once each time, so the pace is bounded here.
		pause(ctx, f.r.opts.Acquire/roundsPerEvent-time.Since(asked))
	}
}

// verify makes keepers write the leases that seem to have another owner: only a conditional write proves it.
func (f *follower) verify(changed []Record) {
	for _, record := range changed {
		if w, _ := f.r.claims.worker(record.Range); w != nil && record.Kind == KindLease && record.owner() != f.r.me {
			w.keeper.verify()
		}
	}
}
