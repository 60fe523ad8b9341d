package docstore

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// After a split or merge the new partitions read the logs of the old partitions and skip versions of other ranges,
// which makes each read as long as a read of the parent's log. Therefore the sweeper moves those versions in the
// background, under their LSNs, into the logs of their new partitions. When an old log is empty, the sweeper removes
// the log from the layout. A reader sees each version once, because all logs of a partition are walked in a single
// state of the engine, in which each version is in only one log.
//
// A reader that took the layout before a split and the state after a move would miss the moved versions. So a reader
// takes the state, then checks that the layout is still the same (see [moment.feed]), and otherwise begins again.
//
// All versions of an LSN move together. If some of them were in the old log and some in the new log, their order
// would be lost, because logs are merged by LSN alone.

const (
	// Groups are small, because writers wait for each group. A turn of the sweeper is short, because expiry and
	// retention of all containers wait for the end of the turn.
	moveChunk = 1 << 20                // bytes in a group; its last LSN may exceed them
	moveTurn  = 250 * time.Millisecond // time before the sweeper does other work
)

// moveVersions moves versions from the logs of former partitions to the logs of their present partitions, for a turn.
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

// firstKeys returns the keys of the first versions of a log, including all versions of the last LSN.
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

// moveOne moves a version together with its mark or its entry of the primary index. A dead version has only a mark, a
// living version only an entry. moveOne reads everything before any change.
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
	// The sweeper may have passed this place in the log before the version came, so the sweeper must look again.
	l.logs[to.log].swept.Store(0)
	switch {
	case dead:
		g.drop(mark, 0)
		g.set(logKey(tableDead, s.c.num, to), nil)
	case place != nil && place.addr == old:
		here := *place
		place.addr = to
		g.set(doc, place.encode())
		g.noteMove(s.c.num, doc, &here, place)
		g.countLiving(s.c, old, -1)
		g.countLiving(s.c, to, 1)
	}
	return nil
}

// forgetLog removes an empty log from the layout, so readers ignore the log.
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
