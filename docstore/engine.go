package docstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// engine is the ordered map on disk below the store. Only the files named engine know
// which library provides the map, so the library can be replaced there.
//
// The format of its files is the newest that the pinned version knows. That format is
// the fastest, and the only one that shares no channel between the synctest bubbles of
// a process: with older ones the second test in virtual time would crash.
//
// What can be reached from the types of a package, through fields and the signatures of
// methods, is compiled with each package that uses them, generic code included: that of
// the library was 5 MB and most of a second for each importer of docstore. Therefore the
// library's values stand in fields of type any, and [TestImportersDoNotCompileTheEngine]
// keeps the way from [DB] to them closed.
type engine struct {
	db    any // *pebble.DB
	sync  bool
	guard *guard
	use   users

	lock      *pebble.Lock // of the directory
	inventory *inventory   // nil in memory, and while raising
	raising   bool         // opened to raise the format of a store of an older build, and for nothing else
	recovery  Recovery

	plain int64       // bytes on the disk up to which tables are not compressed
	large atomic.Bool // it has more
	stuck atomic.Bool // panicked with locks held, so closing would hang
}

const bloomBits = 10

// filesystem is the ground that the engine stands on; tests inject errors through it.
type filesystem = vfs.FS

// openEngine verifies the files and opens the engine, or gives up when ctx ends.
func openEngine(ctx context.Context, dir string, o Options) (*engine, error) {
	fs := o.fs
	switch {
	case fs != nil:
	case o.InMemory:
		fs, dir = vfs.NewMem(), "docstore"
	default:
		fs = machine
	}
	if err := makeDir(fs, dir); err != nil {
		return nil, err
	}
	g := newGuard(fs, dir)
	e := &engine{sync: !o.NoSync, guard: g, use: newUsers(), plain: plainOf(o)}
	po := engineOptions(g, &e.large, o)
	defer po.FileCache.Unref()
	if !o.InMemory {
		if err := verifyEngine(ctx, e, dir, po, !o.resting && !o.raised); err != nil {
			return nil, err
		}
	}
	settled := g.until(ctx)
	db, err := pebble.Open(dir, po)
	settled()
	if err == nil {
		e.db = db
		e.weigh(db.Metrics())
	}
	if g.frozen() { // then the engine's own error is only a consequence
		err = openFailure(ctx, g.err())
	}
	switch {
	case err == nil:
		return e, nil
	case e.db != nil:
		_ = e.close()
	default:
		_ = e.unlock()
	}
	return nil, err
}

// engineOptions are the settings of the engine. Filters are on because a create looks for an id that is mostly not there.
func engineOptions(g *guard, large *atomic.Bool, o Options) *pebble.Options {
	po := &pebble.Options{
		FS:                          g,
		FormatMajorVersion:          pebble.FormatNewest,
		CacheSize:                   o.CacheBytes,
		MemTableSize:                cmp.Or(o.buffer, bufferOf(o.CacheBytes)),
		MemTableStopWritesThreshold: buffers,
		L0CompactionThreshold:       mergedTables,
		L0StopWritesThreshold:       24,
		LBaseMaxBytes:               64 << 20,
		BytesPerSync:                1 << 20,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		Logger:                      quietLog{g},
		// Whoever reads a damaged block gets the error. A compaction that meets the
		// block would be tried again at once, for ever: the pause keeps that from taking
		// a core.
		EventListener: &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) { g.rest() }},
	}
	for i := range po.Levels {
		po.Levels[i].FilterPolicy = bloom.FilterPolicy(bloomBits)
		po.Levels[i].BlockSize = blockSize
	}
	po.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return compressionOf(large) })
	if o.small {
		po.TargetFileSizes[0], po.FlushSplitBytes = 16<<10, 16<<10
	}
	po.Experimental.CompactionScheduler = newScheduler(g)
	po.Experimental.FileCacheShards = max(1, min(runtime.GOMAXPROCS(0), openTables()/tablesOfShard))
	po.FileCache = pebble.NewFileCache(po.Experimental.FileCacheShards, openTables())
	return po
}

// openFailure is the error of an open that came to nothing because of the disk, or
// because ctx ended.
func openFailure(ctx context.Context, reason error) error {
	if ctx.Err() != nil && errors.Is(reason, context.Cause(ctx)) || isCorrupt(reason) {
		return reason
	}
	return fmt.Errorf("%w: %w", ErrFailed, reason)
}

// isCorrupt reports whether the engine calls an error damage.
func isCorrupt(err error) bool {
	return pebble.IsCorruptionError(err) || errors.Is(err, pebble.ErrCorruption)
}

// readError maps the error of a read to ours. After a failure the engine misses tables
// that were never written, which looks like damage and is none.
func (e *engine) readError(err error) error {
	switch {
	case err == nil:
		return nil
	case e.guard.frozen():
		return fmt.Errorf("%w: %w", ErrFailed, e.guard.err())
	case isCorrupt(err):
		return damage{err: err}
	}
	return err
}

// quietLog drops the engine's log, since every error of consequence also comes as a
// return value or goes through the guard. An error that the engine calls fatal breaks
// the guard, because the default ends the process.
type quietLog struct{ g *guard }

// Infof drops a message.
func (quietLog) Infof(string, ...any) {}

// Errorf drops a message: the caller gets the error too, or the engine tries again, and
// errors of the disk are known to the guard.
func (quietLog) Errorf(string, ...any) {}

// Fatalf breaks the guard.
func (l quietLog) Fatalf(format string, args ...any) { l.g.fail(fmt.Errorf(format, args...)) }

// close closes the engine after its last user has left. A stuck engine is not closed,
// since that would wait for its own locks; the directory stays locked until the process
// ends.
func (e *engine) close() (err error) {
	e.use.end()
	if e.stuck.Load() {
		return e.guard.err()
	}
	e.guard.hurry()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	if err = cmp.Or(e.db.(*pebble.DB).Close(), e.guard.err()); err == nil {
		err = e.inventory.seal()
	}
	return cmp.Or(e.guard.err(), err, e.unlock())
}

// get appends the value of a key to dst, and reports whether there is one.
func (e *engine) get(dst, key []byte) ([]byte, bool, error) {
	if !e.use.enter() {
		return dst, false, ErrClosed
	}
	defer e.use.leave()
	value, closer, err := e.db.(*pebble.DB).Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return dst, false, nil
	}
	if err != nil {
		return dst, false, e.readError(err)
	}
	dst = append(dst, value...)
	return dst, true, closer.Close()
}

// find is get while a store is being opened. Only blocks are read that [survey.heads]
// has verified, which get would not: get also reads the filters of tables, and damage
// found that late would come after the engine has changed files.
func (e *engine) find(key []byte) (value []byte, found bool, err error) {
	c, err := e.cursor(key, append(slices.Clone(key), 0))
	if err != nil {
		return nil, false, err
	}
	defer c.closeInto(&err, "close cursor")
	if !c.first() {
		return nil, false, c.err()
	}
	v, err := c.value()
	return slices.Clone(v), true, err
}

// batch is a set of changes that the engine applies as a whole.
type batch struct {
	b any // *pebble.Batch
	e *engine
}

func (e *engine) newBatch(size int) batch {
	return batch{b: e.db.(*pebble.DB).NewBatchWithSize(size), e: e}
}

// set, drop and dropRange cannot fail before commit: the engine documents no error for
// a batch of its own, and commit checks.
func (w batch) set(key, value []byte, more ...byte) {
	d := w.b.(*pebble.Batch).SetDeferred(len(key), len(value)+len(more))
	copy(d.Key, key)
	copy(d.Value[copy(d.Value, value):], more)
	_ = d.Finish()
}
func (w batch) drop(key []byte) { _ = w.b.(*pebble.Batch).Delete(key, nil) }
func (w batch) dropSized(key []byte, size int) {
	_ = w.b.(*pebble.Batch).DeleteSized(key, uint32(size), nil)
}

func (w batch) dropRange(from, to []byte) { _ = w.b.(*pebble.Batch).DeleteRange(from, to, nil) }

// commit applies the changes and returns when the disk has them. After an error the
// engine takes no more, because whether this batch reached the disk is not known
// until the store is opened again.
func (w batch) commit() (err error) {
	if err := w.e.guard.err(); err != nil {
		return err
	}
	defer func() {
		if r := recover(); r != nil {
			w.e.stuck.Store(true)
			w.e.guard.fail(fmt.Errorf("%v", r))
			err = w.e.guard.err()
		}
	}()
	db, b := w.e.db.(*pebble.DB), w.b.(*pebble.Batch)
	if w.e.sync {
		err = db.ApplyNoSyncWait(b, pebble.Sync)
		if err == nil {
			err = b.SyncWait()
		}
	} else {
		err = db.Apply(b, pebble.NoSync)
	}
	if err != nil {
		w.e.guard.fail(err)
	}
	if err := w.e.guard.err(); err != nil { // the engine was shown a success
		return err
	}
	return b.Close()
}

// cursor walks keys in order. Key and value are valid until the next step: keep copies.
type cursor struct {
	it   any // *pebble.Iterator
	e    *engine
	uses bool // counts as a user of the engine; a cursor of a view does not
}

// view is one state of the engine, for several cursors and gets that must agree. The
// view of a closing engine is empty.
type view struct {
	s any // *pebble.Snapshot
	e *engine
}

// view takes the present state. The engine is not closed before its views are.
func (e *engine) view() view {
	if !e.use.enter() {
		return view{}
	}
	return view{e.db.(*pebble.DB).NewSnapshot(), e}
}

func (v view) close() error {
	if v.s == nil {
		return nil
	}
	defer v.e.use.leave()
	return v.s.(*pebble.Snapshot).Close()
}

// get returns a copy of the value of a key.
func (v view) get(key []byte) ([]byte, bool, error) {
	if v.s == nil {
		return nil, false, ErrClosed
	}
	value, closer, err := v.s.(*pebble.Snapshot).Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, v.e.readError(err)
	}
	return slices.Clone(value), true, closer.Close()
}

// cursor walks the keys [from, to) of the view.
func (v view) cursor(from, to []byte) (*cursor, error) {
	if v.s == nil {
		return nil, ErrClosed
	}
	it, err := v.s.(*pebble.Snapshot).NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return nil, v.e.readError(err)
	}
	return &cursor{it, v.e, false}, nil
}

// cursor walks the keys [from, to) of the present state.
func (e *engine) cursor(from, to []byte) (*cursor, error) {
	if !e.use.enter() {
		return nil, ErrClosed
	}
	it, err := e.db.(*pebble.DB).NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		e.use.leave()
		return nil, e.readError(err)
	}
	return &cursor{it, e, true}, nil
}

func (c *cursor) first() bool          { return c.it.(*pebble.Iterator).First() }
func (c *cursor) next() bool           { return c.it.(*pebble.Iterator).Next() }
func (c *cursor) seek(key []byte) bool { return c.it.(*pebble.Iterator).SeekGE(key) }
func (c *cursor) key() []byte          { return c.it.(*pebble.Iterator).Key() }
func (c *cursor) err() error           { return c.e.readError(c.it.(*pebble.Iterator).Error()) }
func (c *cursor) value() ([]byte, error) {
	value, err := c.it.(*pebble.Iterator).ValueAndErr()
	return value, c.e.readError(err)
}

func (c *cursor) close() error {
	if c.uses {
		defer c.e.use.leave()
	}
	return c.e.readError(c.it.(*pebble.Iterator).Close())
}

// closeInto closes the cursor in a deferred call: an error of closing, which is where the
// engine reports a failed read, becomes that of the function unless there was one
// before.
func (c *cursor) closeInto(err *error, verb string) {
	if cerr := c.close(); cerr != nil && *err == nil {
		*err = fmt.Errorf("%s: %w", verb, cerr)
	}
}

// usage is the engine's part of [Stats], in bytes.
func (e *engine) usage() (disk, memory, cache int64) {
	if !e.use.enter() {
		return 0, 0, 0
	}
	defer e.use.leave()
	m := e.db.(*pebble.DB).Metrics()
	return int64(m.DiskSpaceUsage()), int64(m.MemTable.Size), m.BlockCache.Size
}
