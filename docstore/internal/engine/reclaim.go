package engine

import "context"

// spareLogs is how many bytes of logs an idle store may keep. The library keeps old logs
// to write new ones into them, which is faster than to extend a file.
const spareLogs = 2 << 20

// Reclaim gives back the room of deleted ranges of keys and, when nobody writes, of old
// logs. On the way the store is weighed.
func (e *Engine) Reclaim(ctx context.Context, ranges [][2][]byte, quiet bool) error {
	if !e.use.enter() {
		return ErrClosed
	}
	defer e.use.leave()
	w := e.db.measure()
	e.weighStore(w)
	if quiet && w.logs > spareLogs {
		e.guard.afresh.Store(true)
		defer e.guard.afresh.Store(false)
		for range w.logFiles { // each flush begins a log in place of an old one
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
		if err := e.db.compact(ctx, r[0], r[1]); err != nil {
			return err
		}
	}
	return nil
}

// Compact rewrites the tables that hold the keys [from, to). The engine does that by itself where it is worth the work:
// tests ask for it.
func (e *Engine) Compact(ctx context.Context, from, to []byte) error {
	if !e.use.enter() {
		return ErrClosed
	}
	defer e.use.leave()
	return e.db.compact(ctx, from, to)
}

// flush brings the writes in memory into tables.
func (e *Engine) flush(ctx context.Context) error {
	done, err := e.db.AsyncFlush()
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

// RoomOf estimates the bytes on disk of a range of keys.
func (e *Engine) RoomOf(from, to []byte) uint64 {
	if !e.use.enter() {
		return 0
	}
	defer e.use.leave()
	n, err := e.db.EstimateDiskUsage(from, to)
	if err != nil {
		return 0 // and nothing is reclaimed
	}
	return n
}
