package engine

import "context"

// spareLogs is how many bytes of logs an idle store may keep. The library keeps old logs to reuse their files, which
// is faster than to extend a file.
const spareLogs = 2 << 20

// Reclaim frees the space of deleted key ranges and, if the store is quiet, of old logs. Reclaim also updates whether
// the store is large enough for compression.
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
		for range w.logFiles { // each flush begins a new log in place of an old one
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

// Compact rewrites the tables that contain the keys [from, to). The engine does this by itself if the work is
// worthwhile; only tests call Compact.
func (e *Engine) Compact(ctx context.Context, from, to []byte) error {
	if !e.use.enter() {
		return ErrClosed
	}
	defer e.use.leave()
	return e.db.compact(ctx, from, to)
}

// flush writes the writes in memory into tables.
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

// RoomOf estimates how many bytes on the disk a range of keys takes.
func (e *Engine) RoomOf(from, to []byte) uint64 {
	if !e.use.enter() {
		return 0
	}
	defer e.use.leave()
	n, err := e.db.EstimateDiskUsage(from, to)
	if err != nil {
		return 0 // then nothing is reclaimed
	}
	return n
}
