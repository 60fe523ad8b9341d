package docstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/changefeed/docstore/internal/engine"
	"github.com/millrace/changefeed/feed"
)

// A backlog is counted from tallies (see tally.go). The cell with the position is read version by version, and the
// tallies of the cells after it are added up. The sum counts all living versions. The few living versions not shown to
// a reader are counted individually and subtracted.

// Pending implements [feed.Counter]. You get the number of changes Read would return, over all partitions of the range.
// The number is exact. For latest versions of whole partitions, the number comes from tallies, in milliseconds for
// millions of changes. For part of a partition, for a partition key, and for all versions and deletes, the cost is that
// of reading the changes without copying them.
func (c *Container) Pending(ctx context.Context, rng feed.Range, from feed.Position,
	options feed.ReadOptions,
) (feed.Backlog, error) {
	for {
		total, err := c.moment().pending(ctx, rng, from, options)
		if err == nil {
			return total, c.db.awaitSafe(ctx, c)
		}
		if !errors.Is(err, errMoved) {
			return feed.Backlog{}, fmt.Errorf("count feed of %q: %w", c.ID(), err)
		}
	}
}

// pending counts in a single state of the engine. After taking this state, pending compares the layout, because a
// layout replaced meanwhile may name other logs than the state has. A partition whose newest change is not after the
// position costs nothing.
func (m moment) pending(ctx context.Context, rng feed.Range, from feed.Position,
	options feed.ReadOptions,
) (total feed.Backlog, err error) {
	if err := m.c.checkUsable(ctx); err != nil {
		return total, err
	}
	sel, err := m.l.selection(rng, options)
	if err != nil {
		return total, err
	}
	if sel.begin, err = m.l.resolvePosition(from, options, m.head); err != nil {
		return total, err
	}
	parts := m.l.overlapping(sel.rng)
	if len(parts) == 0 {
		return total, refuse("range %q holds no keys: want min below max, within -FF", rng)
	}
	k := counter{moment: m, view: m.c.db.eng.View(), now: m.c.clock.now()}
	defer func() { err = cmp.Or(err, k.view.Close()) }()
	if m.c.layout.Load() != m.l {
		return total, errMoved
	}
	k.total.Ahead = sel.lsn > m.head
	for _, p := range parts {
		part := sel
		part.rng = sel.rng.Intersect(p.rng)
		if p.newest.Load() <= sel.lsn {
			continue
		}
		for _, num := range m.l.logsOf(p) {
			if err := k.countLog(ctx, num, part); err != nil {
				return total, err
			}
		}
	}
	return k.total, nil
}

// counter counts changes in a single state of the engine.
type counter struct {
	moment
	view  engine.View
	now   int64
	total feed.Backlog
}

// countLog adds the changes of a log in (sel.lsn, head]. Oldest is the time of the first change. If the first cell has
// no change, the walk goes on at the first living version according to the tallies, and ends at the first version
// shown.
func (k *counter) countLog(ctx context.Context, num uint32, sel selection) (err error) {
	whole := k.l.tallied && sel.mode == feed.LatestVersion && sel.pk == "" && sel.rng.Contains(k.l.logs[num].rng)
	// The walk looks for the time even if the position has a token, because tallies have no times.
	sel.search = sel.search || whole && sel.since != anyTime
	f, err := k.openLog(num, sel, k.head)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, f.err(), f.close()) }()
	t := f.tracks[0]
	if !t.it.ok {
		return nil
	}
	edge := k.head
	if whole {
		edge = min(edge, k.c.tallies.cells.end(t.start+1))
	}
	f.stop = func(lsn int64) bool { return lsn > edge }
	found := false
	err = f.walkLogs(ctx, &k.l.spec, func(e *entry, _ addr) (bool, error) {
		k.addFound(1, e.time)
		found = true
		return true, nil
	})
	if err != nil || edge == k.head {
		return err
	}
	rest, first, err := k.countRest(ctx, num, sel, edge)
	if err != nil || rest == 0 {
		return err
	}
	k.total.Items += rest
	if found {
		return nil
	}
	f.stop = nil
	t.jumpAfter(first)
	return f.walkLogs(ctx, &k.l.spec, func(e *entry, _ addr) (bool, error) {
		k.addFound(0, e.time)
		return false, nil
	})
}

// addFound adds a number of changes; at is the time of the oldest.
func (k *counter) addFound(items, at int64) {
	k.total.Items += items
	if at := time.UnixMilli(at).UTC(); k.total.Oldest.IsZero() || at.Before(k.total.Oldest) {
		k.total.Oldest = at
	}
}

// openLog opens the feed of a log in (sel.lsn, upTo].
func (k *counter) openLog(num uint32, sel selection, upTo int64) (*logWalk, error) {
	f := &logWalk{sel: sel, now: k.now}
	if err := f.openLog(moment{c: k.c, l: k.l, head: upTo}, num, k.view.Cursor); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

// countRest counts the changes of a log after the end of a cell, by the tallies. countRest also returns an LSN before
// the first of these changes. Two kinds of living versions are no changes: versions after the head, and expired
// versions waiting for the sweeper.
func (k *counter) countRest(ctx context.Context, num uint32, sel selection, after int64) (items, first int64,
	err error,
) {
	if items, first, err = k.addCells(num, after); err != nil || items == 0 {
		return 0, 0, err
	}
	sel.begin = begin{lsn: k.head, since: anyTime}
	late, err := k.scanVersions(ctx, num, sel, k.c.tallies.cells.end(k.head), func(*entry) bool { return true })
	if err != nil {
		return 0, 0, err
	}
	sel.begin.lsn = after
	expired, err := k.countExpired(ctx, num, sel)
	return items - late - expired, first, err
}

// addCells adds up the cells after the cell ending at after, up to the cell of the head.
func (k *counter) addCells(num uint32, after int64) (items, first int64, err error) {
	size := k.c.tallies.cells
	from, _ := size.row(after + 1)
	to, _ := size.row(k.head)
	it, err := k.view.Cursor(tallyKey(k.c.num, tallyAt{num, from}), tallyKey(k.c.num, tallyAt{num, to + 1}))
	if err != nil {
		return 0, 0, err
	}
	defer it.CloseInto(&err, "close cursor")
	last := size.end(k.head)
	for ok := it.First(); ok; ok = it.Next() {
		at, err := splitTally(tailOf(it.Key()))
		if err != nil {
			return 0, 0, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		var cells row
		value, err := it.Value()
		if err == nil {
			err = decodeRow(value, &cells)
		}
		if err != nil {
			return 0, 0, err
		}
		for i, living := range cells {
			end := size.ends(at.row, i)
			if living == 0 || end <= after || end > last {
				continue
			}
			if items == 0 {
				first = end - int64(size)
			}
			items += living
		}
	}
	return items, first, it.Err()
}

// scanVersions counts the versions of a log in (sel.lsn, upTo], expired versions included, until each returns false.
func (k *counter) scanVersions(ctx context.Context, num uint32, sel selection, upTo int64,
	each func(*entry) bool,
) (items int64, err error) {
	f, err := k.openLog(num, sel, upTo)
	if err != nil {
		return 0, err
	}
	err = f.eachShown(ctx, nil, func(e *entry, _ addr) (bool, error) {
		if !each(e) {
			return false, nil
		}
		items++
		return true, nil
	})
	return items, err
}

// countExpired counts the versions of a log in (sel.lsn, head] which have expired, but are not yet deleted by the
// sweeper. They are few. Versions with a ttl of their own are counted by the index, and versions with the default ttl
// at the beginning of the log.
func (k *counter) countExpired(ctx context.Context, num uint32, sel selection) (items int64, err error) {
	spec := &k.l.spec
	if spec.DefaultTTL == nil {
		return 0, nil
	}
	if items, err = k.expiredByIndex(num, sel.lsn); err != nil || *spec.DefaultTTL < 0 {
		return items, err
	}
	// Commit times grow with LSNs, so the first version not expired by the default ends the scan.
	_, err = k.scanVersions(ctx, num, sel, k.head, func(e *entry) bool {
		if spec.expiry(e.time, 0) > k.now {
			return false
		}
		if e.ttl == 0 {
			items++
		}
		return true
	})
	return items, err
}

// expiredByIndex counts the expired, undeleted documents of a log after an LSN, by the index of expiries.
func (k *counter) expiredByIndex(num uint32, after int64) (items int64, err error) {
	it, err := k.view.Cursor(tableKey(tableTTL, k.c.num, 0), ttlKey(k.c.num, k.now+1, "", "", ""))
	if err != nil {
		return 0, err
	}
	defer it.CloseInto(&err, "close cursor")
	for ok := it.First(); ok; ok = it.Next() {
		_, doc, err := splitTTL(tailOf(it.Key()))
		if err != nil {
			return 0, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		value, found, err := k.view.Get(append(tableKey(tableDoc, k.c.num, len(doc)), doc...))
		if err != nil {
			return 0, err
		}
		if !found {
			return 0, fmt.Errorf("%w: index of expiries has %q, which is no item", ErrCorrupt, doc)
		}
		s, err := decodeSlot(value)
		if err != nil {
			return 0, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		// The index does not distinguish logs, so the scan also meets documents of other logs.
		if s.log == num && s.lsn > after && s.lsn <= k.head {
			items++
		}
	}
	return items, it.Err()
}
