package cosmos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
)

// Wait implements [feed.Waiter]. If the server can hold a read until there is a change, as changefeed's own server
// does, each lease waits with a request that the server holds, up to 30 seconds, and the processor does not poll. Azure
// cannot hold reads: there Wait returns an [errors.ErrUnsupported], and a processor polls.
//
// A wait returns no changes, so the next Read reads them again. A wait asks for a single item: each wait with changes
// costs an extra small page, and a quiet range costs a request every 30 seconds instead of a request per poll.
func (c *Container) Wait(ctx context.Context, r feed.Range, from feed.Position) error {
	known, _ := c.client.regions.currentAccount()
	if known.hold <= 0 {
		return fmt.Errorf("wait for changes of %q: %w: the account holds no reads", c.id, errors.ErrUnsupported)
	}
	if from.Token == "" && !from.Start.IsNow() {
		return nil // there may be changes already
	}
	from.Start = feed.Start{}
	o := feed.ReadOptions{MaxItems: 1}
	if known.versions || c.retention > 0 { // deletes count too
		o.Mode = feed.AllVersionsAndDeletes
	}
	for n := 1; ; n++ {
		hold, begun := until(ctx, known.hold), time.Now()
		// The rest of the context is too short for another held read, and reads that are not held would be a busy loop
		// until the end.
		if n > 1 && hold < holdMargin {
			<-ctx.Done()
			return fmt.Errorf("wait for changes of %q: %w", c.id, context.Cause(ctx))
		}
		page, err := c.readPage(ctx, r, from, o, hold)
		switch {
		case errors.Is(err, feed.ErrGone) || errors.Is(err, feed.ErrTooOld):
			return nil // the reader finds out
		case err != nil:
			return fmt.Errorf("wait for changes of %q: %w", c.id, err)
		case len(page.Changes) > 0:
			return nil
		}
		from = page.Next
		if err := pauseUnheld(ctx, begun, hold, n); err != nil {
			return fmt.Errorf("wait for changes of %q: %w", c.id, err)
		}
	}
}

// pauseUnheld waits a little after the n-th read in a row without changes, unless the server held that read: a proxy in
// between may answer at once, each time.
func pauseUnheld(ctx context.Context, begun time.Time, hold time.Duration, n int) error {
	if time.Since(begun) >= hold/2 {
		return nil
	}
	return pause.For(ctx, backoff(n))
}

// until returns how long the server should hold a read, at most as long as the server can. The answer must arrive a
// little before the context ends, because an interrupted request also closes its connection.
func until(ctx context.Context, most time.Duration) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return most
	}
	return max(0, min(most, time.Until(end)-holdMargin))
}

// holdMargin is how long before the end of a context the answer must arrive.
const holdMargin = 500 * time.Millisecond
