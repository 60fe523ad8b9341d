package docstore

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// engine is the ordered map on disk below the store. This file alone knows which one.
//
// The format is the newest that the pinned version knows: besides being the fastest, it
// is the one that shares no channel between the synctest bubbles of one process.
type engine struct {
	db   *pebble.DB
	sync bool
	log  *quietLog

	lock      *pebble.Lock // of the directory
	inventory *inventory   // nil in memory
	recovery  Recovery

	stuck atomic.Bool // it panicked with its locks held, and cannot be closed
}

const (
	memTable     = 32 << 20
	bloomBits    = 10
	defaultCache = 96 << 20
)

// filesystem is what the engine stands on; tests inject errors through it.
type filesystem = vfs.FS

func openEngine(dir string, o Options) (*engine, error) {
	fs := o.fs
	switch {
	case fs != nil:
	case o.InMemory:
		fs, dir = vfs.NewMem(), "docstore"
	default:
		fs = vfs.Default
	}
	log := &quietLog{}
	po := &pebble.Options{
		FS:                          fs,
		FormatMajorVersion:          pebble.FormatNewest,
		CacheSize:                   o.CacheBytes,
		MemTableSize:                memTable,
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       24,
		LBaseMaxBytes:               64 << 20,
		BytesPerSync:                1 << 20,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		Logger:                      log,
	}
	for i := range po.Levels {
		po.Levels[i].FilterPolicy = bloom.FilterPolicy(bloomBits)
		po.Levels[i].BlockSize = 32 << 10
	}
	// Feeds are read nearly twice as fast as with the engine's default compression.
	po.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionFastest })
	if o.small {
		po.MemTableSize, po.TargetFileSizes[0], po.FlushSplitBytes = 64<<10, 16<<10, 16<<10
	}
	e := &engine{sync: !o.NoSync, log: log}
	var err error
	if !o.InMemory {
		if err := e.verify(dir, po); err != nil {
			return nil, err
		}
	}
	if e.db, err = pebble.Open(dir, po); err != nil {
		return nil, errors.Join(err, e.unlock())
	}
	return e, nil
}

// verify locks the directory and verifies what is in it, before the engine changes anything.
func (e *engine) verify(dir string, po *pebble.Options) (err error) {
	if err := po.FS.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if e.lock, err = pebble.LockDirectory(dir, po.FS); err != nil {
		return err
	}
	e.inventory = &inventory{fs: po.FS, dir: dir, noSync: !e.sync}
	e.inventory.facts, e.recovery, err = verify(po.FS, dir, po)
	if err == nil && e.inventory.facts.Making {
		err = e.inventory.save()
	}
	if err != nil {
		return errors.Join(err, e.unlock())
	}
	po.FS, po.Lock = inventoryFS{po.FS, e.inventory}, e.lock
	return nil
}

// unlock gives the directory back.
func (e *engine) unlock() error {
	if e.lock == nil {
		return nil
	}
	return e.lock.Close()
}

// isCorrupt tells the error of files that are not what they were.
func isCorrupt(err error) bool {
	return pebble.IsCorruptionError(err) || errors.Is(err, pebble.ErrCorruption)
}

// look tells of the names in a directory whether there is a store, or what is left of one,
// and whether there is anything else.
func look(names []string) (store, other bool) {
	for _, name := range names {
		switch {
		case name == "LOCK" || name == "lost+found" || name == inventoryNext:
		case ours(name):
			store = true
		default:
			other = true
		}
	}
	return store, other
}

// ours tells the names of a store's files.
func ours(name string) bool {
	for _, prefix := range []string{manifestMarker, formatMarker, manifestPrefix, optionsPrefix} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	for _, suffix := range []string{tableSuffix, logSuffix, blobSuffix} {
		if _, ok := fileNumber(name, suffix); ok {
			return true
		}
	}
	return name == inventoryName
}

// damage is the [ErrCorrupt] of a file, which is empty where the engine's error knows it.
type damage struct {
	file string
	err  error
}

// Error is one line, although the engine's may have several.
func (d damage) Error() string {
	return fmt.Sprintf("%v: %s: nothing was changed; restore the directory from a copy, or salvage what is left", ErrCorrupt, d.reason())
}

// reason is the file and what is wrong with it.
func (d damage) reason() string {
	file := d.file
	if info := pebble.ExtractDataCorruptionInfo(d.err); info != nil && file == "" {
		file = path.Base(info.Path)
	}
	what, _, _ := strings.Cut(strings.TrimPrefix(d.err.Error(), "pebble: "), "\n")
	return strings.TrimPrefix(file+": "+what, ": ")
}

// Unwrap gives the class and the engine's error.
func (d damage) Unwrap() []error { return []error{ErrCorrupt, d.err} }

// readError gives the error of a read one of our names.
func readError(err error) error {
	if err != nil && isCorrupt(err) {
		return damage{err: err}
	}
	return err
}

// quietLog drops the engine's chatter and keeps the error after which it cannot go on.
type quietLog struct {
	fatal atomic.Pointer[error]
}

// Infof drops a message.
func (l *quietLog) Infof(string, ...any) {}

// Errorf drops a message: the error also reaches the caller, or is retried.
func (l *quietLog) Errorf(string, ...any) {}

// Fatalf keeps the error; the next write fails with it.
func (l *quietLog) Fatalf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	l.fatal.CompareAndSwap(nil, &err)
}

func (l *quietLog) err() error {
	if e := l.fatal.Load(); e != nil {
		return *e
	}
	return nil
}

// close closes the engine; a stuck one is left to its fate, and keeps the directory.
func (e *engine) close() (err error) {
	if e.stuck.Load() {
		return e.log.err()
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	if err = e.db.Close(); err == nil {
		err = e.inventory.seal()
	}
	return errors.Join(err, e.unlock())
}

// get appends the value of a key to dst; false tells that there is none.
func (e *engine) get(dst, key []byte) ([]byte, bool, error) {
	v, closer, err := e.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return dst, false, nil
	}
	if err != nil {
		return dst, false, readError(err)
	}
	dst = append(dst, v...)
	return dst, true, closer.Close()
}

// find is get for the time when a store is opened: it reads no more than has been read by
// [survey.heads], which leaves out the filters of tables.
func (e *engine) find(key []byte) (value []byte, found bool, err error) {
	c, err := e.cursor(key, append(slices.Clone(key), 0))
	if err != nil {
		return nil, false, err
	}
	defer c.finish(&err, "close cursor")
	if !c.first() {
		return nil, false, c.err()
	}
	v, err := c.value()
	return slices.Clone(v), true, err
}

// write is a set of changes that is applied as one.
type write struct {
	b *pebble.Batch
	e *engine
}

func (e *engine) newWrite(size int) write { return write{b: e.db.NewBatchWithSize(size), e: e} }

// set, drop and dropRange cannot fail before commit: the engine documents no error for
// a batch of its own, and commit checks.
func (w write) set(key, value []byte)          { _ = w.b.Set(key, value, nil) }
func (w write) drop(key []byte)                { _ = w.b.Delete(key, nil) }
func (w write) dropSized(key []byte, size int) { _ = w.b.DeleteSized(key, uint32(size), nil) }
func (w write) dropRange(from, to []byte)      { _ = w.b.DeleteRange(from, to, nil) }

// commit applies the changes, and returns when they are safe. After an error the engine
// takes no more writes: what it has of this one is found out by opening it again.
func (w write) commit() (err error) {
	if err := w.e.log.err(); err != nil {
		return err
	}
	defer func() {
		if r := recover(); r != nil { // the engine panics when its log cannot grow
			w.e.stuck.Store(true)
			w.e.log.Fatalf("%v", r)
			err = w.e.log.err()
		}
	}()
	if w.e.sync {
		err = w.e.db.ApplyNoSyncWait(w.b, pebble.Sync)
		if err == nil {
			err = w.b.SyncWait()
		}
	} else {
		err = w.e.db.Apply(w.b, pebble.NoSync)
	}
	if err == nil {
		err = w.e.log.err()
	}
	if err != nil {
		w.e.log.Fatalf("%w", err)
		return err
	}
	return w.b.Close()
}

// cursor walks keys in order. Key and value are good until the next step.
type cursor struct {
	it *pebble.Iterator
}

// view is one state of the engine, for several cursors and gets.
type view struct {
	s *pebble.Snapshot
}

func (e *engine) view() view { return view{e.db.NewSnapshot()} }
func (v view) close() error  { return v.s.Close() }

// get is a copy of the value of a key.
func (v view) get(key []byte) ([]byte, bool, error) {
	value, closer, err := v.s.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, readError(err)
	}
	return slices.Clone(value), true, closer.Close()
}

func (v view) cursor(from, to []byte) (*cursor, error) {
	it, err := v.s.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	return &cursor{it}, readError(err)
}

// cursor walks the keys [from, to) of the present state.
func (e *engine) cursor(from, to []byte) (*cursor, error) {
	it, err := e.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	return &cursor{it}, readError(err)
}

func (c *cursor) first() bool          { return c.it.First() }
func (c *cursor) next() bool           { return c.it.Next() }
func (c *cursor) seek(key []byte) bool { return c.it.SeekGE(key) }
func (c *cursor) key() []byte          { return c.it.Key() }
func (c *cursor) err() error           { return readError(c.it.Error()) }
func (c *cursor) close() error         { return readError(c.it.Close()) }
func (c *cursor) value() ([]byte, error) {
	v, err := c.it.ValueAndErr()
	return v, readError(err)
}

func (c *cursor) finish(err *error, verb string) {
	if cerr := c.close(); cerr != nil && *err == nil {
		*err = fmt.Errorf("%s: %w", verb, cerr)
	}
}

// usage is the engine's part of [Stats].
func (e *engine) usage() (disk, memory, cache int64) {
	m := e.db.Metrics()
	return int64(m.DiskSpaceUsage()), int64(m.MemTable.Size), m.BlockCache.Size
}
