package docstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/changefeed"
)

// Pending implements [changefeed.Counter]: it counts the changes that Read would
// return, over all partitions of the range, by the same walk, so the number is exact.
// The cost is that of reading them without copying.
func (c *Container) Pending(ctx context.Context, r changefeed.Range, from changefeed.Position, o changefeed.ReadOptions) (changefeed.Backlog, error) {
	for {
		total, err := c.pending(ctx, r, from, o)
		if err == nil {
			return total, c.db.settle(ctx)
		}
		if !errors.Is(err, errMoved) {
			return changefeed.Backlog{}, fmt.Errorf("count feed of %q: %w", c.ID(), err)
		}
	}
}

func (c *Container) pending(ctx context.Context, r changefeed.Range, from changefeed.Position, o changefeed.ReadOptions) (total changefeed.Backlog, err error) {
	if err := c.usable(ctx); err != nil {
		return total, err
	}
	head := c.head.Load()
	l := c.layout.Load()
	sel, err := l.selection(r, o)
	if err != nil {
		return total, err
	}
	if sel.begin, err = l.begin(from, o, head); err != nil {
		return total, err
	}
	total.Ahead = sel.lsn > head
	parts := l.overlapping(sel.rng)
	if len(parts) == 0 {
		return total, refuse("range %q holds no keys: want min below max, within -FF", r)
	}
	for _, p := range parts {
		part := sel
		part.rng = sel.rng.Intersect(p.rng)
		if err := c.count(ctx, l, p, part, head, &total); err != nil {
			return total, err
		}
	}
	return total, nil
}

// count adds the changes of one partition in (sel.lsn, head].
func (c *Container) count(ctx context.Context, l *layout, part *partition, sel selection, head int64, total *changefeed.Backlog) error {
	if part.newest.Load() <= sel.lsn {
		return nil
	}
	f, err := c.openFeed(l, l.reading(part), sel, head)
	if err != nil {
		return err
	}
	return f.each(ctx, &l.spec, func(e *entry, _ addr) (bool, error) {
		total.Items++
		if at := time.UnixMilli(e.time).UTC(); total.Oldest.IsZero() || at.Before(total.Oldest) {
			total.Oldest = at
		}
		return true, nil
	})
}
