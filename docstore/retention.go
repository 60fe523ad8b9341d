package docstore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
)

// Retention. If a container has a retention, an overwrite or delete leaves the old version in its log and marks that
// version. The sweeper removes a version when its successor is older than the retention, so every change in the feed
// has its previous image. The feed of all versions begins after the floor.
//
//	floor   positions in the feed of all versions must not be before this LSN
//	purged  versions superseded by those up to this LSN have been removed
//	drain   retention was turned off here: everything superseded before is removed

const (
	// The sweeper sweeps the versions of a container each time a twentieth of the retention has passed, within these
	// bounds. So a version may stay a little longer than the retention, and a short retention does not keep the
	// sweeper busy.
	minForget = time.Second // between two sweeps of a retention
	maxForget = time.Minute
)

// retention returns how long versions are kept; 0 means not at all.
func (l *layout) retention() time.Duration { return cmp.Or(l.spec.Retention, l.common) }

// adaptMarks updates floor, drain and marked after a change of the retention at an LSN; before is the old retention.
// If the retention is turned on, the feed of all versions begins after that LSN, because earlier versions are gone or
// have no marks. If the retention is turned off, everything superseded until now is marked for removal (drain).
func (l *layout) adaptMarks(before time.Duration, lsn int64) {
	now := l.retention()
	if (before == 0) != (now == 0) {
		l.floor, l.purged = lsn, lsn
		if now == 0 {
			l.drain = lsn
		}
	}
	l.marked = l.marked || now > 0
}

// Retention returns how long the container keeps all versions and deletes: by its own specification or, without a
// retention there, by [DB.SetRetention]. 0 means not at all.
func (c *Container) Retention() time.Duration { return c.layout.Load().retention() }

// Retention returns the duration given to [DB.SetRetention]; set is false if you never called that method.
func (db *DB) Retention() (d time.Duration, set bool) {
	common := db.common.Load()
	if common == nil {
		return 0, false
	}
	return *common, true
}

const retentionName = "retention" // of the record in the table of the store

// readRetention reads the retention of the store.
func (ld loader) readRetention() error {
	value, found, err := ld.db.eng.Find(metaKey(retentionName))
	if err != nil || !found {
		return err
	}
	var ms [1]int64
	if err := decodeNumbers(value, ms[:]); err != nil {
		return fmt.Errorf("%w: retention of the store: %w", ErrCorrupt, err)
	}
	ld.db.common.Store(new(time.Duration(ms[0]) * time.Millisecond))
	return nil
}

// SetRetention sets how long all versions and deletes are kept in containers without their own retention, including
// containers created later. 0 means not at all. The store remembers the setting. Containers that kept no versions
// before begin to keep them now. The service has such a retention for the account (continuous backup), and programs
// rely on this.
func (db *DB) SetRetention(ctx context.Context, d time.Duration) error {
	d = d.Truncate(time.Millisecond)
	if d < 0 {
		return fmt.Errorf("set retention: %w", refuse("retention is %v: want 0 or more", d))
	}
	err := db.committer.runAlone(ctx, func(g *group) error {
		for _, c := range db.Containers() {
			l := c.layout.Load().clone()
			before := l.retention()
			l.common = d
			l.adaptMarks(before, c.lsn)
			if err := g.storeLayout(c, l, func() { c.alarm.setAlarm(1) }); err != nil {
				return err
			}
		}
		g.set(metaKey(retentionName), encodeNumbers(d.Milliseconds()))
		g.publish = append(g.publish, func() { db.common.Store(&d) })
		return nil
	})
	if err != nil {
		return fmt.Errorf("set retention: %w", err)
	}
	return nil
}

// forgetVersions removes the versions older than the retention.
func (s *sweep) forgetVersions(ctx context.Context) error {
	l := s.c.layout.Load()
	if l.drain > 0 {
		if err := s.drainMarks(ctx, l.drain); err != nil {
			return err
		}
		l = s.c.layout.Load()
	}
	keep := l.retention()
	if keep == 0 {
		return nil
	}
	cutoff := s.c.clock.time().Add(-keep)
	floor, oldest, err := s.floorAt(ctx, l, cutoff)
	if err != nil {
		return err
	}
	if floor > l.purged {
		if err := s.advanceFloor(ctx, floor); err != nil {
			return err
		}
	}
	if oldest != 0 {
		pause := min(max(keep/20, minForget), maxForget)
		s.next.note(max(oldest+keep.Milliseconds()+1, s.c.clock.now()+pause.Milliseconds()))
	}
	return nil
}

// floorAt returns the last LSN committed before cutoff, and the time of the next commit.
func (s *sweep) floorAt(ctx context.Context, l *layout, cutoff time.Time) (floor, oldest int64, err error) {
	head := s.c.head.Load()
	floor = head
	for num := range l.logs {
		sel := everything(l.purged)
		err := s.walkShown(ctx, l, num, sel, head, func(e *entry, a addr) bool {
			if e.time < cutoff.UnixMilli() {
				return true
			}
			floor = min(floor, a.lsn-1)
			if oldest == 0 || e.time < oldest {
				oldest = e.time
			}
			return false
		})
		if err != nil {
			return 0, 0, err
		}
	}
	return floor, oldest, nil
}

// everything selects all versions after an LSN.
func everything(lsn int64) selection {
	return selection{
		rng: feed.FullRange(), mode: feed.AllVersionsAndDeletes,
		begin: begin{lsn: lsn, since: anyTime},
	}
}

// advanceFloor raises the floor and removes the versions before the floor. advanceFloor raises the floor first, so a
// reader before the floor gets an error instead of a feed with gaps. advanceFloor raises purged last, so the removal
// is repeated after a crash in between.
func (s *sweep) advanceFloor(ctx context.Context, floor int64) error {
	err := s.changeLayout(ctx, func(l *layout) { l.floor = max(l.floor, floor) })
	if err != nil {
		return err
	}
	if err := s.purgeSuperseded(ctx, s.c.layout.Load(), floor); err != nil {
		return err
	}
	return s.changeLayout(ctx, func(l *layout) { l.purged = max(l.purged, floor) })
}

// changeLayout stores a changed layout.
func (s *sweep) changeLayout(ctx context.Context, f func(*layout)) error {
	return s.c.db.committer.runAlone(ctx, func(g *group) error {
		if s.c.dropped.Load() {
			return nil
		}
		l := s.c.layout.Load().clone()
		f(l)
		return g.storeLayout(s.c, l, nil)
	})
}

// purgeSuperseded removes the versions superseded by the versions in (purged, floor], and the deletes in this
// interval. purgeSuperseded covers all logs in a single state of the engine, because the versions of a document may
// be in several logs, and a version in a log may name its predecessor in another.
func (s *sweep) purgeSuperseded(ctx context.Context, l *layout, floor int64) error {
	f, err := moment{c: s.c, l: l, head: floor}.feed(slices.Collect(maps.Keys(l.logs)), everything(l.purged))
	if err != nil {
		return err
	}
	var old []addr
	err = f.eachShown(ctx, nil, func(e *entry, a addr) (bool, error) {
		if e.prev != 0 {
			for m := range l.logs {
				old = append(old, addr{m, e.prev, e.prevIdx})
			}
		}
		if e.op.endsDocument() {
			old = append(old, a)
		}
		if len(old) < sweepChunk {
			return true, nil
		}
		err := s.removeVersions(ctx, old)
		old = nil
		return err == nil, err
	})
	if err != nil {
		return err
	}
	return s.removeVersions(ctx, old)
}

// removeVersions removes superseded versions, with their marks, and deletes.
func (s *sweep) removeVersions(ctx context.Context, old []addr) error {
	if len(old) == 0 {
		return nil
	}
	return s.c.db.committer.runAlone(ctx, func(g *group) error {
		for _, a := range old {
			g.drop(logKey(tableDead, s.c.num, a), 0)
			g.drop(logKey(tableLog, s.c.num, a), 0)
		}
		return nil
	})
}

// drainMarks removes everything superseded up to an LSN, after the retention was turned off. If the retention has
// been turned on again since, drainMarks keeps the versions superseded after that.
func (s *sweep) drainMarks(ctx context.Context, upTo int64) error {
	l := s.c.layout.Load()
	for num := range l.logs {
		old, err := s.supersededUpTo(num, upTo)
		if err == nil && len(old) > 0 && l.retention() > 0 {
			old, err = s.notSince(ctx, l, old)
		}
		if err != nil {
			return err
		}
		err = s.walkShown(ctx, l, num, everything(0), upTo, func(e *entry, a addr) bool {
			if e.op.endsDocument() {
				old = append(old, a)
			}
			return true
		})
		if err != nil {
			return err
		}
		for len(old) > 0 {
			k := min(len(old), sweepChunk)
			if err := s.removeVersions(ctx, old[:k]); err != nil {
				return err
			}
			old = old[k:]
		}
	}
	return s.changeLayout(ctx, func(l *layout) {
		l.drain = 0
		l.marked = l.retention() > 0
	})
}

// notSince filters out the versions superseded after the floor, because they are previous images of changes that the
// feed still has.
func (s *sweep) notSince(ctx context.Context, l *layout, old []addr) ([]addr, error) {
	type place struct {
		lsn int64
		idx uint16
	}
	wanted := map[place]bool{}
	for num := range l.logs {
		err := s.walkShown(ctx, l, num, everything(l.floor), farAway-1, func(e *entry, _ addr) bool {
			wanted[place{e.prev, e.prevIdx}] = true
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(old, func(a addr) bool { return wanted[place{a.lsn, a.idx}] }), nil
}

// supersededUpTo returns the superseded versions of a log, up to an LSN.
func (s *sweep) supersededUpTo(num uint32, upTo int64) (old []addr, err error) {
	from, to := logBounds(tableDead, s.c.num, num, -1, upTo)
	it, err := s.c.db.eng.Cursor(from, to)
	if err != nil {
		return nil, err
	}
	defer it.CloseInto(&err, "close cursor")
	for ok := it.First(); ok; ok = it.Next() {
		old = append(old, parseAddr(tailOf(it.Key())))
	}
	return old, it.Err()
}
