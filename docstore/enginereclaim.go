package docstore

import (
	"context"

	"github.com/cockroachdb/pebble/v2"
)

// spareLogs is how many bytes of logs an idle store may keep. The engine keeps old logs
// to write new ones into them, which is faster than to extend a file.
const spareLogs = 2 << 20

// reclaim gives back the room of deleted ranges of keys and, when nobody writes, of old
// logs. On the way the store is weighed.
func (e *engine) reclaim(ctx context.Context, ranges [][2][]byte, quiet bool) error {
	if !e.use.enter() {
		return ErrClosed
	}
	defer e.use.leave()
	m := e.db.(*pebble.DB).Metrics()
	e.weigh(m)
	logs := m.WAL
	if quiet && logs.PhysicalSize+logs.ObsoletePhysicalSize > spareLogs {
		e.guard.afresh.Store(true)
		defer e.guard.afresh.Store(false)
		for range logs.Files + logs.ObsoleteFiles { // each flush begins a log in place of an old one
			if err := e.flush(ctx); err != nil {
				return err
			}
		}
	} else if len(ranges) > 0 {
		if err := e.flush(ctx); err != nil {
			return err
		}
	}
	for _, r := range ranges {
		if err := e.db.(*pebble.DB).Compact(ctx, r[0], r[1], false); err != nil {
			return err
		}
	}
	return nil
}

// flush brings the writes in memory into tables.
func (e *engine) flush(ctx context.Context) error {
	done, err := e.db.(*pebble.DB).AsyncFlush()
	if err != nil {
		return err
	}
	select {
	case <-done:
		return e.guard.err()
	case <-e.guard.broken:
		return e.guard.err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// room estimates the bytes on disk of a range of keys.
func (e *engine) room(from, to []byte) uint64 {
	if !e.use.enter() {
		return 0
	}
	defer e.use.leave()
	n, err := e.db.(*pebble.DB).EstimateDiskUsage(from, to)
	if err != nil {
		return 0 // and nothing is reclaimed
	}
	return n
}
