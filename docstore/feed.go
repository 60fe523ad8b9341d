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

// logWalk walks the logs that a partition reads, merged by LSN. An LSN is in one log only,
// even while versions are being moved (see move.go), so there are no ties.
type logWalk struct {
	sel     selection
	now     int64        // time of the container, which decides who has expired
	view    *engine.View // where several cursors must see one state
	tracks  []*track
	stop    func(lsn int64) bool // asked before each version
	stopped bool
	entry   entry // the present one
}

// errMoved means that the layout changed while the feed was opened; see move.go.
var errMoved = errors.New("layout has changed")

// placed is a cursor, and whether it is at a key.
type placed struct {
	*engine.Cursor
	ok bool
}

// track is the walk through one log.
type track struct {
	c     *Container
	num   uint32
	log   *changelog
	it    placed
	dead  placed // marks of superseded versions; without a cursor where none are kept
	all   bool   // the selection holds every key of the log
	lsn   int64
	start int64 // the versions come after this LSN

	still  bool // no version is moved into this log meanwhile
	lowest bool // every version since the low-water mark was dead
}

// feed opens cursors for the versions of some logs in (sel.lsn, head]. Several
// cursors share a snapshot, because they must agree about versions that move from log
// to log and about marks; a single cursor is a snapshot by itself and cheaper.
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

// marks reports whether a reader has to look for marks. They outlive a retention that was
// turned off, until the sweeper has removed them: so marked decides, and not the
// retention.
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

// low returns up to which LSN every version of a log is dead in the state that is read.
func (m moment) low(num uint32) int64 {
	if m.held != nil {
		return m.held.lows[num]
	}
	return m.l.logs[num].low.Load()
}

// eachShown calls visit for the versions that the selection shows, in order, until visit
// returns false, and closes the feed. With a specification, expired versions are left
// out.
func (f *logWalk) eachShown(ctx context.Context, spec *ContainerSpec, visit func(*entry, addr) (bool, error)) error {
	err := f.walkLogs(ctx, spec, visit)
	return cmp.Or(err, f.err(), f.close())
}

// walkLogs walks the logs. It looks at ctx and the store every 1,024 versions only, because
// most are passed over and the looks would cost more than the walk.
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

// placeCursors places the cursors of one log. Readers of last versions skip the dead ones
// before the low-water mark: a log that is overwritten again and again begins with
// millions of tombstones, and stepping over them takes seconds.
//
// A search for a time moves the start before the cursor of the marks is opened, so that
// both cursors begin at one place. A walk that a search or a moving version makes begin
// elsewhere says nothing about the low-water mark, and does not raise it.
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

// jumpAfter goes on after an LSN.
func (t *track) jumpAfter(lsn int64) {
	first := addr{log: t.num, lsn: lsn + 1}
	t.it.ok = t.it.Seek(logKey(tableLog, t.c.num, first))
	if t.dead.Cursor != nil {
		t.dead.ok = t.dead.Seek(logKey(tableDead, t.c.num, first))
	}
	t.readLSN()
}

// seekTime returns the greatest LSN in [lo, hi] up to which all commits came before
// since. A binary search finds it, because commit times grow with LSNs.
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

// isSuperseded reports whether the present version has been superseded. The marks are walked
// beside the log, since a lookup for each version would cost the scan its speed.
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

// compareVersions compares two keys of one log, from either of its tables.
func compareVersions(a, b []byte) int { return bytes.Compare(tailOf(a), tailOf(b)) }

// lookAt returns the present version, and whether its range and its successor let it be
// shown. The whole entry is decoded only for versions that are.
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

// recordLiving records the first living version, so that the next reader can begin there.
func (t *track) recordLiving(lsn int64) {
	if t.lowest {
		t.lowest = false
		raise(&t.log.low, lsn-1)
	}
}

// lowestTrack returns the track with the lowest LSN, nil at the end. A partition reads a
// handful of logs at most, so a scan is quicker than a heap.
func (f *logWalk) lowestTrack() *track {
	var best *track
	for _, t := range f.tracks {
		if t.it.ok && (best == nil || t.lsn < best.lsn) {
			best = t
		}
	}
	return best
}

// err returns the error that ended a cursor, which looks like the end of its log.
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

// close closes the cursors, and then the state of the engine that they read.
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
