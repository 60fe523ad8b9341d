package cosmos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
)

// Source returns the container in the form that a processor should have. If the server
// can hold a read until there is a change, as changefeed's own server does, the result
// is also a [feed.Waiter], and leases are pushed: each waits with one request
// that the server holds, up to 30 seconds. Azure cannot do so; there the result is the
// container itself, which the processor polls.
//
// Such a server also counts, so the result is a [feed.Counter] and lags are
// exact.
//
// A wait returns no changes, so the next Read reads them again. A wait asks for one
// item only: an activity costs a small page more, and a quiet range costs a request
// every 30 seconds instead of one for each poll.
func (c *Container) Source() feed.Source {
	known, _ := c.client.regions.current()
	if known.hold <= 0 {
		return c
	}
	p := pushed{Container: c, hold: known.hold, versions: known.versions || c.retention > 0}
	if known.counts {
		return counted{p}
	}
	return p
}

// pushed is a container whose server holds reads.
type pushed struct {
	*Container
	hold     time.Duration
	versions bool // there are deletes to wait for
}

// Wait implements [feed.Waiter].
func (p pushed) Wait(ctx context.Context, r feed.Range, from feed.Position) error {
	if from.Token == "" && !from.Start.IsNow() {
		return nil // there may be changes already
	}
	from.Start = feed.Start{}
	o := feed.ReadOptions{MaxItems: 1}
	if p.versions { // deletes count too
		o.Mode = feed.AllVersionsAndDeletes
	}
	for n := 1; ; n++ {
		hold, begun := p.until(ctx), time.Now()
		// What is left of the context is too short for another read that is held, and
		// reads that are not would make a busy loop of the end.
		if n > 1 && hold < holdMargin {
			<-ctx.Done()
			return fmt.Errorf("wait for changes of %q: %w", p.id, context.Cause(ctx))
		}
		page, err := p.read(ctx, r, from, o, hold)
		switch {
		case errors.Is(err, feed.ErrGone) || errors.Is(err, feed.ErrTooOld):
			return nil // for the reader to find out
		case err != nil:
			return fmt.Errorf("wait for changes of %q: %w", p.id, err)
		case len(page.Changes) > 0:
			return nil
		}
		from = page.Next
		if err := pauseUnheld(ctx, begun, hold, n); err != nil {
			return fmt.Errorf("wait for changes of %q: %w", p.id, err)
		}
	}
}

// pauseUnheld waits a little after the n-th read in a row that found nothing, unless
// the server held that read: a proxy on the way may answer at once, each time.
func pauseUnheld(ctx context.Context, begun time.Time, hold time.Duration, n int) error {
	if time.Since(begun) >= hold/2 {
		return nil
	}
	return pause.For(ctx, backoff(n))
}

// until returns how long the server is to hold a read. The answer must come a little
// before the context ends, because a request that is cut off takes its connection
// along.
func (p pushed) until(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return p.hold
	}
	return max(0, min(p.hold, time.Until(end)-holdMargin))
}

// holdMargin is how long before the end of a context the answer is to come.
const holdMargin = 500 * time.Millisecond
