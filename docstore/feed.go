package docstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/millrace/changefeed/docstore/internal/engine"
	"github.com/millrace/changefeed/feed"
)

// logWalk walks the logs that a partition reads, merged by LSN. An LSN is in only a single log, even while versions
// are being moved (see move.go), so no two logs have the same LSN.
type logWalk struct {
	sel     selection
	now     int64        // time of the container, which decides which documents have expired
	view    *engine.View // set if several cursors must read the same state
	tracks  []*track
	stop    func(lsn int64) bool // called before each version; true ends the walk
	stopped bool
	entry   entry // the present version
}

// errMoved means that the layout changed while the feed was opened; see move.go.
var errMoved = errors.New("layout has changed")

// placed is a cursor, and whether the cursor is at a key.
type placed struct {
	*engine.Cursor
	ok bool
}

// track is the walk through a log.
type track struct {
	c     *Container
	num   uint32
	log   *changelog
	it    placed
	dead  placed // marks of superseded versions; without a cursor if the log has none
	all   bool   // the selection contains every key of the log
	lsn   int64
	start int64 // the walk shows versions after this LSN

	still  bool // no version is moved into this log during the walk
	lowest bool // all versions since the low-water mark were dead so far
}

// feed opens cursors for the versions of some logs in (sel.lsn, head]. Several cursors share a view of the engine,
// because they must agree on marks and on versions that move from log to log. A single cursor needs no view: a cursor
// reads a single state anyway, and is cheaper.
func (m moment) feed(logs []uint32, sel selection) (*logWalk, error) {
	f := &logWalk{sel: sel, now: m.c.clock.now()}
	open := m.c.db.eng.Cursor
	switch {
	case m.held != nil:
		f.now, open = m.held.now, m.held.view.Cursor
	case len(logs) > 1 || m.l.marks(sel):
		v := m.c.db.eng.View()
		f.view = &v
		open = v.Cursor
	}
	for _, num := range logs {
		if err := f.openLog(m, num, open); err != nil {
			return nil, errors.Join(err, f.close())
		}
	}
	if m.held == nil && m.c.layout.Load() != m.l {
		return nil, cmp.Or(f.close(), errMoved)
	}
	return f, nil
}

// marks reports whether a reader has to look for marks. When the retention is turned off, marks remain until the
// sweeper has removed them. Therefore the field marked decides, not the retention.
func (l *layout) marks(sel selection) bool {
	return sel.mode == feed.LatestVersion && l.marked
}

// openLog opens the cursors of one log.
func (f *logWalk) openLog(m moment, num uint32, open openCursor) error {
	t := &track{c: m.c, num: num, log: m.l.logs[num], still: len(m.l.former) == 0}
	t.all = f.sel.rng.Contains(t.log.rng)
	f.tracks = append(f.tracks, t)
	return t.placeCursors(open, m, f.sel)
}

// low returns the low-water LSN of a log in the state that is read: every version up to this LSN is dead.
func (m moment) low(num uint32) int64 {
	if m.held != nil {
		return m.held.lows[num]
	}
	return m.l.logs[num].low.Load()
}

// eachShown calls visit for the versions that the selection shows, in order, until visit returns false, and closes
// the feed. If spec is not nil, expired versions are left out.
func (f *logWalk) eachShown(ctx context.Context, spec *ContainerSpec, visit func(*entry, addr) (bool, error)) error {
	err := f.walkLogs(ctx, spec, visit)
	return cmp.Or(err, f.err(), f.close())
}

// walkLogs walks the logs. walkLogs checks ctx and the store only every 1,024 versions, because most versions are
// skipped and the checks would cost more than the walk.
func (f *logWalk) walkLogs(ctx context.Context, spec *ContainerSpec, visit func(*entry, addr) (bool, error)) error {
	for steps := 1; ; steps++ {
		if steps%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		t := f.lowestTrack()
		if t == nil {
			return nil
		}
		if steps%1024 == 0 {
			if err := t.c.db.closed(); err != nil {
				return err
			}
		}
		if f.stop != nil && f.stop(t.lsn) {
			f.stopped = true
			return nil
		}
		value, shown, err := t.lookAt(&f.sel)
		if err != nil {
			return err
		}
		if shown {
			if f.entry, err = decodeEntry(value); err != nil {
				return fmt.Errorf("%w: LSN %d: %w", ErrCorrupt, t.lsn, err)
			}
			if f.sel.shows(&f.entry, spec, f.now) {
				if more, err := visit(&f.entry, parseAddr(tailOf(t.it.Key()))); err != nil || !more {
					return err
				}
			}
		}
		t.stepOn()
	}
}

type openCursor func(from, to []byte) (*engine.Cursor, error)

// placeCursors places the cursors of a log. Readers of latest versions skip the dead versions before the low-water
// mark. A log that is overwritten again and again begins with millions of tombstones, and stepping over them takes
// seconds.
//
// A search for a time moves the start before the cursor of the marks is opened, so both cursors begin at the same
// place. If a search has moved the start, or if versions may be moved into the log, the walk proves nothing about the
// low-water mark and the mark stays.
func (t *track) placeCursors(open openCursor, m moment, sel selection) (err error) {
	start, head, cont, num := sel.lsn, m.head, t.c.num, t.num
	low := m.low(num)
	if sel.mode == feed.LatestVersion && start <= low {
		start, t.lowest = low, t.still
	}
	if t.start = start; start >= head {
		return nil
	}
	from, to := logBounds(tableLog, cont, num, start, head)
	if t.it.Cursor, err = open(from, to); err != nil {
		return err
	}
	if sel.search {
		start, err = t.seekTime(num, sel.since, start, head)
		t.start, t.lowest = start, false
	}
	if err != nil {
		return err
	}
	if m.l.marks(sel) {
		from, to := logBounds(tableDead, cont, num, start, head)
		if t.dead.Cursor, err = open(from, to); err != nil {
			return err
		}
		t.dead.ok = t.dead.First()
	}
	if sel.search {
		t.it.ok = t.it.Seek(logKey(tableLog, cont, addr{num, start + 1, 0}))
	} else {
		t.it.ok = t.it.First()
	}
	t.readLSN()
	return nil
}

// jumpAfter continues the walk after an LSN.
func (t *track) jumpAfter(lsn int64) {
	first := addr{log: t.num, lsn: lsn + 1}
	t.it.ok = t.it.Seek(logKey(tableLog, t.c.num, first))
	if t.dead.Cursor != nil {
		t.dead.ok = t.dead.Seek(logKey(tableDead, t.c.num, first))
	}
	t.readLSN()
}

// seekTime returns the greatest LSN in [lo, hi] such that all commits up to it came before since. A binary search
// finds the LSN, because commit times grow with LSNs.
func (t *track) seekTime(num uint32, since, lo, hi int64) (int64, error) {
	for hi-lo > 1 {
		mid := lo + (hi-lo)/2
		if !t.it.Seek(logKey(tableLog, t.c.num, addr{num, mid + 1, 0})) {
			if err := t.it.Err(); err != nil {
				return 0, err
			}
			hi = mid
			continue
		}
		value, err := t.it.Value()
		if err != nil {
			return 0, err
		}
		e, err := decodeEntry(value)
		if err != nil {
			return 0, err
		}
		if e.time >= since {
			hi = mid
		} else {
			lo = mid
		}
	}
	return lo, nil
}

// readLSN reads the LSN of the present key.
func (t *track) readLSN() {
	if t.it.ok {
		t.lsn = parseAddr(tailOf(t.it.Key())).lsn
	}
}

func (t *track) stepOn() {
	t.it.ok = t.it.Next()
	t.readLSN()
}

// isSuperseded reports whether the present version has been superseded. The cursor of the marks moves along with the
// log, because a lookup for each version would make the scan slow.
func (t *track) isSuperseded() bool {
	if !t.dead.ok {
		return false
	}
	key := t.it.Key()
	for t.dead.ok {
		switch order := compareVersions(t.dead.Key(), key); {
		case order == 0:
			return true
		case order > 0:
			return false
		}
		t.dead.ok = t.dead.Next()
	}
	return false
}

// compareVersions compares two keys of a log. Each key is from the table of logs or from the table of marks.
func compareVersions(a, b []byte) int { return bytes.Compare(tailOf(a), tailOf(b)) }

// lookAt returns the present version, and whether the version is shown: the version must not be superseded, and its
// key must be in the range. The whole entry is decoded only for shown versions.
func (t *track) lookAt(sel *selection) (value []byte, shown bool, err error) {
	latest := sel.mode == feed.LatestVersion
	if latest && t.isSuperseded() {
		return nil, false, nil
	}
	v, err := t.it.Value()
	if err != nil {
		return nil, false, err
	}
	op, key, err := peekEntry(v)
	if err != nil {
		return nil, false, fmt.Errorf("%w: LSN %d: %w", ErrCorrupt, t.lsn, err)
	}
	if latest && op.endsDocument() {
		return nil, false, nil
	}
	t.recordLiving(t.lsn)
	if t.all {
		return v, true, nil
	}
	return v, sel.rng.Min <= string(key) && string(key) < sel.rng.Max, nil
}

// recordLiving records the first living version, so the next reader can begin there.
func (t *track) recordLiving(lsn int64) {
	if t.lowest {
		t.lowest = false
		raise(&t.log.low, lsn-1)
	}
}

// lowestTrack returns the track with the lowest LSN, or nil at the end. A partition reads few logs, so a scan is
// faster than a heap.
func (f *logWalk) lowestTrack() *track {
	var best *track
	for _, t := range f.tracks {
		if t.it.ok && (best == nil || t.lsn < best.lsn) {
			best = t
		}
	}
	return best
}

// err returns the error that ended a cursor. Without this check the error would look like the end of the log.
func (f *logWalk) err() error {
	for _, t := range f.tracks {
		for _, it := range []*engine.Cursor{t.it.Cursor, t.dead.Cursor} {
			if it != nil && it.Err() != nil {
				return it.Err()
			}
		}
	}
	return nil
}

// close closes the cursors, and then the state of the engine below them.
func (f *logWalk) close() error {
	var errs []error
	for _, t := range f.tracks {
		for _, it := range []*engine.Cursor{t.it.Cursor, t.dead.Cursor} {
			if it != nil {
				errs = append(errs, it.Close())
			}
		}
	}
	if f.view != nil {
		errs = append(errs, f.view.Close())
	}
	return errors.Join(errs...)
}
