package docstore

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/millrace/changefeed"
)

// Wait implements [changefeed.Waiter]. It returns at once for a position that is not
// behind a token or from now, and when the range's partition is split or merged. For a
// range that spans several partitions it returns for any change of the container.
func (c *Container) Wait(ctx context.Context, r changefeed.Range, from changefeed.Position) error {
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
	part, spans := c.layout.Load().sole(r)
	for {
		if err := c.usable(ctx); err != nil {
			return err
		}
		ch, news := c.gate.next(), c.head.Load() > lsn
		if spans == nil {
			ch = part.gate.next()
			news = part.newest.Load() > lsn || part.retired.Load()
		}
		if news || c.dropped.Load() {
			return nil
		}
		if err := c.db.await(ctx, ch); err != nil {
			return err
		}
	}
}

// raise lifts a mark that only grows.
func raise(mark *atomic.Int64, to int64) {
	for {
		old := mark.Load()
		if old >= to || mark.CompareAndSwap(old, to) {
			return
		}
	}
}
