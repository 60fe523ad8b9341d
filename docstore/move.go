package docstore

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// After a split or merge the new partitions read the logs of the old ones and pass over
// versions of other ranges, which makes each read as long as the parent's log. Therefore
// the sweeper moves those versions in the background, under their LSNs, into the logs of
// their partitions, until the old logs are empty and forgotten. A reader sees each version
// once, wherever the version is at the moment, because all logs of a partition are walked
// in one state of the engine.
//
// A reader that took the layout before a split and the state after a move would miss the
// versions that were moved. So a reader checks, with the state in hand, that the layout is
// still the same (see [moment.feed]), and begins again if not.
//
// All versions of one LSN move together: were some of them in the old log and some in the
// new one, their order would be lost, because logs are merged by LSN alone.

const (
	// A group is short, because writers wait for it, and so is a turn of the sweeper,
	// because expiry and retention of all containers wait for it.
	moveChunk = 1 << 20                // bytes in one group; its last LSN may exceed them
	moveTurn  = 250 * time.Millisecond // before the sweeper looks after other things
)

// moveVersions brings versions from the logs of former partitions to where they belong, for a
// turn.
func (s *sweep) moveVersions(ctx context.Context) error {
	begin := time.Now()
	for {
		l := s.c.layout.Load()
		if len(l.former) == 0 {
			return nil
		}
		num := l.former[0]
		if time.Since(begin) > moveTurn {
			s.next.note(1)
			return nil
		}
		some, err := s.moveSome(ctx, num)
		if err == nil && !some {
			err = s.forgetLog(ctx, num)
		}
		if err != nil {
			return err
		}
	}
}

// moveSome moves the first versions of a log and reports whether there were any.
func (s *sweep) moveSome(ctx context.Context, num uint32) (some bool, err error) {
	keys, err := s.firstKeys(num)
	if err != nil || len(keys) == 0 {
		return false, err
	}
	return true, s.c.db.committer.runAlone(ctx, func(g *group) error {
		if s.c.dropped.Load() {
			return nil
		}
		l := s.c.layout.Load()
		for _, key := range keys {
			if err := s.moveOne(g, l, key); err != nil {
				return err
			}
		}
		return nil
	})
}

// firstKeys returns the keys of the first versions of a log, with all of the last LSN.
func (s *sweep) firstKeys(num uint32) (keys [][]byte, err error) {
	from, to := logBounds(tableLog, s.c.num, num, -1, farAway-1)
	it, err := s.c.db.eng.Cursor(from, to)
	if err != nil {
		return nil, err
	}
	defer it.CloseInto(&err, "close cursor")
	size, last := 0, int64(-1)
	for ok := it.First(); ok; ok = it.Next() {
		lsn := parseAddr(tailOf(it.Key())).lsn
		if size >= moveChunk && lsn != last {
			break
		}
		value, err := it.Value()
		if err != nil {
			return nil, err
		}
		size, last = size+len(value), lsn
		keys = append(keys, slices.Clone(it.Key()))
	}
	return keys, it.Err()
}

// moveOne moves a version with its mark or its entry of the primary index: a version
// that is dead has only the former, a living one only the latter. All is read before anything is
// changed.
func (s *sweep) moveOne(g *group, l *layout, key []byte) error {
	value, found, err := g.get(key)
	if err != nil || !found {
		return err
	}
	e, err := decodeEntry(value)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	old := parseAddr(tailOf(key))
	to := old
	to.log = l.at(string(e.epk)).num
	mark := logKey(tableDead, s.c.num, old)
	_, dead, err := g.get(mark)
	if err != nil {
		return err
	}
	doc := docKey(s.c.num, string(e.epk), string(e.pk), string(e.id))
	place, err := g.slot(doc)
	if err != nil {
		return err
	}
	g.drop(key, len(value))
	g.set(logKey(tableLog, s.c.num, to), value)
	// The sweeper passed over this log before the version came, and must look again.
	l.logs[to.log].swept.Store(0)
	switch {
	case dead:
		g.drop(mark, 0)
		g.set(logKey(tableDead, s.c.num, to), nil)
	case place != nil && place.addr == old:
		place.addr = to
		g.set(doc, place.encode())
		g.countLiving(s.c, old, -1)
		g.countLiving(s.c, to, 1)
	}
	return nil
}

// forgetLog takes an empty log out of the layout, which ends its cost for readers.
func (s *sweep) forgetLog(ctx context.Context, num uint32) error {
	return s.c.db.committer.runAlone(ctx, func(g *group) error {
		if s.c.dropped.Load() {
			return nil
		}
		l := s.c.layout.Load().clone()
		delete(l.logs, num)
		l.findIdleLogs()
		g.drop(lowKey(s.c.num, num), 0)
		return g.storeLayout(s.c, l, nil)
	})
}
