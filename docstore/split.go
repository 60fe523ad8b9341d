package docstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/millrace/changefeed/docstore/internal/engine"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/epk"
)

// A split or merge changes only the layout, so the size of the partition does not matter. The new partitions read the
// logs of the old partitions, filtered by their range, and write to logs of their own. All LSNs of a container come
// from the same counter, so every position keeps its meaning: the children of a split begin where the parent was.

// watch counts the documents below the cut that are added and removed while the split counts the rest.
type watch struct {
	cut string
	low int64
	// abandoned says that the split has failed. On a full disk the committer could not remove the watch.
	abandoned atomic.Bool
}

// Split cuts a partition into two halves with about the same number of keys. Readers and writers go on. After the
// split, a read of a range across both halves returns [feed.ErrGone].
func (c *Container) Split(ctx context.Context, id string) ([]feed.Partition, error) {
	l := c.layout.Load()
	part, err := l.find(id)
	if err != nil {
		return nil, fmt.Errorf("split: %w", err)
	}
	cut, ok := epk.Mid(l.kind, part.rng.Min, part.rng.Max)
	if !ok {
		return nil, fmt.Errorf("split partition %s: %w", id, refuse("range %s holds a single key", part.rng))
	}
	return c.SplitAt(ctx, id, cut)
}

// SplitAt cuts a partition in two at an effective partition key. The left half ends before cut, which must be within
// the partition's range. A second split of the same partition during the first is refused with [feed.ErrConflict].
func (c *Container) SplitAt(ctx context.Context, id, cut string) ([]feed.Partition, error) {
	made, err := cutPartition(ctx, c, id, cut)
	if err != nil {
		return nil, fmt.Errorf("split partition %s of %q: %w", id, c.ID(), err)
	}
	return made, nil
}

// cutPartition counts the documents below the cut in a snapshot, outside the committer, because a count of millions
// would delay all writers. The watch is set together with the snapshot and counts the writes after the snapshot.
func cutPartition(ctx context.Context, c *Container, id, cut string) ([]feed.Partition, error) {
	var part *partition
	var w *watch
	var v engine.View
	// These steps run even if the caller's context ends. Otherwise the view would stay open, and the partition would
	// stay marked as being split.
	err := c.db.committer.runAlone(context.WithoutCancel(ctx), func(*group) (err error) {
		if part, err = c.layout.Load().find(id); err != nil {
			return err
		}
		if cut <= part.rng.Min || cut >= part.rng.Max {
			return refuse("cut %q is not within range %s", cut, part.rng)
		}
		if part.isSplitting() {
			return fmt.Errorf("another split is at work: %w", feed.ErrConflict)
		}
		w = &watch{cut: cut}
		part.watch = w
		v = c.db.eng.View()
		return nil
	})
	if err != nil {
		return nil, err
	}
	low, err := index{c}.count(ctx, v, part.rng.Min, cut)
	if err != nil {
		w.abandoned.Store(true)
		return nil, err
	}
	var made []*partition
	err = c.db.committer.runAlone(context.WithoutCancel(ctx), func(g *group) error {
		made, err = g.cutPartition(c, part, low)
		return err
	})
	if err != nil {
		w.abandoned.Store(true)
	}
	return describe(made), err
}

// isSplitting reports whether a split of the partition is at work.
func (p *partition) isSplitting() bool { return p.watch != nil && !p.watch.abandoned.Load() }

// count counts the documents with keys in [lo, hi) and closes the view.
func (x index) count(ctx context.Context, v engine.View, lo, hi string) (n int64, err error) {
	defer func() { err = errors.Join(err, v.Close()) }()
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	it, err := v.Cursor(append(tableKey(tableDoc, x.c.num, len(lo)), lo...),
		append(tableKey(tableDoc, x.c.num, len(hi)), hi...))
	if err != nil {
		return 0, err
	}
	defer it.CloseInto(&err, "close cursor")
	for ok := it.First(); ok; ok = it.Next() {
		if n++; n%4096 == 0 && ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
	}
	return n, it.Err()
}

// cutPartition replaces a partition by two partitions. cutPartition runs in the committer.
func (g *group) cutPartition(c *Container, part *partition, low int64) ([]*partition, error) {
	w := part.watch
	part.watch = nil
	low += w.low
	l := c.layout.Load().clone()
	// The count ran outside the committer. Meanwhile a merge, another split or the deletion of the container may have
	// come first.
	at := slices.Index(l.parts, part)
	if at < 0 || c.dropped.Load() {
		return nil, feed.ErrNotFound
	}
	l.parts = slices.Delete(l.parts, at, at+1)
	parents := append(slices.Clone(part.parents), part.id())
	made := []*partition{
		l.addPartition(feed.Range{Min: part.rng.Min, Max: w.cut}, parents),
		l.addPartition(feed.Range{Min: w.cut, Max: part.rng.Max}, parents),
	}
	made[0].docs.Store(low)
	made[1].docs.Store(part.docs.Load() - low)
	return made, g.replacePartitions(c, l, made, part)
}

// Merge joins two partitions whose ranges touch. Errors: [feed.ErrNotFound], and [feed.ErrConflict] if either is
// being split.
func (c *Container) Merge(ctx context.Context, first, second string) (feed.Partition, error) {
	var made *partition
	err := c.db.committer.runAlone(ctx, func(g *group) (err error) {
		made, err = g.joinPartitions(c, first, second)
		return err
	})
	if err != nil {
		return feed.Partition{}, fmt.Errorf("merge partitions %s and %s of %q: %w", first, second, c.ID(), err)
	}
	return describe([]*partition{made})[0], nil
}

// joinPartitions replaces two partitions by a single partition. joinPartitions runs in the committer.
func (g *group) joinPartitions(c *Container, first, second string) (*partition, error) {
	l := c.layout.Load().clone()
	a, err := l.find(first)
	if err != nil {
		return nil, err
	}
	b, err := l.find(second)
	if err != nil {
		return nil, err
	}
	if a.rng.Min > b.rng.Min {
		a, b = b, a
	}
	switch {
	case c.dropped.Load():
		return nil, feed.ErrNotFound
	case a.rng.Max != b.rng.Min:
		return nil, refuse("ranges %s and %s do not touch", a.rng, b.rng)
	case a.isSplitting() || b.isSplitting():
		return nil, fmt.Errorf("a split is at work: %w", feed.ErrConflict)
	}
	l.parts = slices.DeleteFunc(l.parts, func(part *partition) bool { return part == a || part == b })
	parents := union(union(a.parents, b.parents), []string{a.id(), b.id()})
	made := l.addPartition(feed.Range{Min: a.rng.Min, Max: b.rng.Max}, parents)
	made.docs.Store(a.docs.Load() + b.docs.Load())
	return made, g.replacePartitions(c, l, []*partition{made}, a, b)
}

// replacePartitions stores a layout in which new partitions replace old partitions. The new partitions inherit the
// newest LSN, because a reader of a new partition waits at its gate for newer changes.
func (g *group) replacePartitions(c *Container, l *layout, made []*partition, gone ...*partition) error {
	for _, part := range made {
		for _, old := range gone {
			part.newest.Store(max(part.newest.Load(), old.newest.Load()))
		}
		g.set(countKey(c.num, part.num), encodeNumbers(part.docs.Load(), part.newest.Load()))
	}
	for _, old := range gone {
		g.drop(countKey(c.num, old.num), 0)
	}
	l.findIdleLogs()
	return g.storeLayout(c, l, func() {
		for _, old := range gone {
			old.retired.Store(true)
			old.gate.open()
		}
		c.alarm.setAlarm(1)
	})
}

// describe returns the partition in the form for callers. The result shares no memory with the layout.
func (p *partition) describe() feed.Partition {
	return feed.Partition{ID: p.id(), Range: p.rng, Parents: slices.Clone(p.parents)}
}

func describe(parts []*partition) []feed.Partition {
	var list []feed.Partition
	for _, part := range parts {
		list = append(list, part.describe())
	}
	return list
}

// union returns a, followed by the elements of b that are not in a.
func union[T comparable](a, b []T) []T {
	all := slices.Clone(a)
	for _, v := range b {
		if !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	return all
}
