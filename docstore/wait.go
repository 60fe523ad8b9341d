package docstore

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/millrace/changefeed/feed"
)

// Wait implements [feed.Waiter]. Wait returns at once if the position is neither a token nor now, because such a
// reader has not begun to read. Wait also returns at once if the range's partition is split or merged, because the
// reader must learn of that. If the range spans several partitions, Wait returns at any change of the container.
func (c *Container) Wait(ctx context.Context, rng feed.Range, from feed.Position) error {
	head := c.head.Load()
	lsn := head
	if from.Token != "" {
		var err error
		if lsn, err = parseToken(from.Token); err != nil {
			return fmt.Errorf("wait for %q: %w", c.ID(), err)
		}
	} else if !from.Start.IsNow() {
		return context.Cause(ctx)
	}
	// The partition is chosen once: when another layout replaces this layout, the partition is retired.
	part, spans := c.layout.Load().partitionOfAll(rng)
	for {
		if err := c.checkUsable(ctx); err != nil {
			return err
		}
		// The channel is taken before the state is read, so no change is missed in between.
		ch, news := c.gate.next(), c.head.Load() > lsn
		if spans == nil {
			ch = part.gate.next()
			news = part.newest.Load() > lsn || part.retired.Load()
		}
		if news || c.dropped.Load() {
			return nil
		}
		if err := c.db.awaitEvent(ctx, ch); err != nil {
			return err
		}
	}
}

// raise raises a mark that only grows. Readers and the sweeper may call raise concurrently.
func raise(mark *atomic.Int64, to int64) {
	for {
		old := mark.Load()
		if old >= to || mark.CompareAndSwap(old, to) {
			return
		}
	}
}
