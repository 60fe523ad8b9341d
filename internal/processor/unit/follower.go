package unit

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/records"
)

// follower updates the view from the lease container's own feed, if the store is a [feed.Follower].
type follower struct {
	in   *instance.Instance
	live atomic.Bool // the feed updates the view, so rounds need not list
}

// run follows until ctx ends.
func (f *follower) run(ctx context.Context) {
	store, ok := f.in.Store.LeaseStore.(feed.Follower)
	if !ok {
		return
	}
	rng := f.in.Random("follow")
	cursor, failures := "", 0
	for ctx.Err() == nil {
		asked := time.Now()
		changed, next, now, err := store.Follow(ctx, cursor)
		if err != nil {
			f.live.Store(false)
			f.in.Report(ctx, feed.OriginLeaseStore, "", err)
			if errors.Is(err, feed.ErrNotFound) {
				f.in.Wake() // the listing shows whether the container is gone
			}
			failures++
			cursor = "" // the store may have refused the cursor itself
			pause.For(ctx, f.in.Backoff(rng, failures))
			continue
		}
		if cursor == "" {
			f.in.View.Distrust() // only a listing shows the changes before the cursor
			f.in.Wake()
		}
		cursor, failures = next, 0
		f.live.Store(true)
		if f.in.View.Heard(changed, now) {
			f.in.Wake()
		}
		f.verifyOwners(changed)
		// A store may answer at once each time, so this pause limits the pace.
		pause.For(ctx, f.in.Options.Acquire/roundsPerEvent-time.Since(asked))
	}
}

// verifyOwners makes keepers write leases that seem to have another owner, because only a conditional write proves the
// owner.
func (f *follower) verifyOwners(changed []feed.Record) {
	for _, record := range changed {
		if held, _ := f.in.Claims.Held(record.Range); held != nil && record.Kind == feed.KindLease &&
			records.OwnerOf(record) != f.in.Me {
			held.Verify()
		}
	}
}
