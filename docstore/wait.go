package docstore

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed"
)

// Wait implements [changefeed.Waiter]. It returns at once for a position that is not
// behind a token or from now, and for a range that spans several partitions.
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
	for {
		if err := c.usable(ctx); err != nil {
			return err
		}
		part, err := c.layout.Load().sole(r)
		if err != nil {
			return nil //nolint:nilerr // the read will tell
		}
		ch := part.gate.next()
		if part.newest.Load() > lsn || part.retired.Load() || c.dropped.Load() {
			return nil
		}
		if err := c.db.await(ctx, ch); err != nil {
			return err
		}
	}
}

// Pending implements [changefeed.Counter]: it counts what Read would return, over all
// partitions of the range.
func (c *Container) Pending(ctx context.Context, r changefeed.Range, from changefeed.Position, o changefeed.ReadOptions) (changefeed.Backlog, error) {
	var total changefeed.Backlog
	if err := c.usable(ctx); err != nil {
		return total, err
	}
	head := c.head.Load()
	l := c.layout.Load()
	parts := l.overlapping(r)
	if len(parts) == 0 || r.Empty() {
		return total, refuse("range %q holds no keys: want min below max, within -FF", r)
	}
	at, err := l.begin(from, o, head)
	if err != nil {
		return total, fmt.Errorf("count feed of %q: %w", c.ID(), err)
	}
	sel := selection{rng: r, mode: o.Mode, begin: at}
	if o.Key != "" {
		if sel.rng, sel.pk, err = l.keyRange(string(o.Key)); err != nil {
			return total, err
		}
		sel.rng = sel.rng.Intersect(r)
	}
	for _, p := range parts {
		part := sel
		if part.rng = sel.rng.Intersect(p.rng); part.rng.Empty() {
			continue
		}
		if err := c.count(ctx, l, p, part, head, &total); err != nil {
			return total, fmt.Errorf("count feed of %q: %w", c.ID(), err)
		}
	}
	return total, c.db.settle(ctx)
}

// count adds the changes of one partition in (sel.lsn, head].
func (c *Container) count(ctx context.Context, l *layout, part *partition, sel selection, head int64, total *changefeed.Backlog) (err error) {
	if sel.lsn >= head || part.newest.Load() <= sel.lsn {
		return nil
	}
	f, err := c.openFeed(l, part, sel, head)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := f.close(); err == nil {
			err = cerr
		}
	}()
	now := time.Now().UnixMilli()
	for steps := 0; ; steps++ {
		if steps%1024 == 1023 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		t := f.lowest()
		if t == nil {
			return f.err()
		}
		v, shown, err := t.look(&sel)
		if err != nil {
			return err
		}
		if shown {
			e, err := decodeEntry(v)
			if err != nil {
				return fmt.Errorf("%w: LSN %d: %w", ErrCorrupt, t.lsn, err)
			}
			if sel.shows(&e, &l.spec, now) {
				total.Items++
				if at := time.UnixMilli(e.time).UTC(); total.Oldest.IsZero() || at.Before(total.Oldest) {
					total.Oldest = at
				}
			}
		}
		t.step()
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
