package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Engine is an open ordered map on disk. All methods may be called concurrently.
//
// The format of its files is the newest that the pinned version knows. That format is
// the fastest, and the only one that shares no channel between the synctest bubbles of
// a process: with older ones the second test in virtual time would crash.
//
// The library's values stand behind the interfaces of pebble.go.
type Engine struct {
	db    library
	sync  bool
	guard *guard
	use   users

	lock      *pebble.Lock // of the directory
	inventory *inventory   // nil in memory, and while raising
	raising   bool         // opened to raise the format of a store of an older build, and for nothing else
	newest    LogEnd       // as it was found
	schema    Schema

	plain int64       // bytes on the disk up to which tables are not compressed
	large atomic.Bool // it has more
	stuck atomic.Bool // panicked with locks held, so closing would hang
}

const bloomBits = 10

// FS is the ground that the engine stands on; tests inject errors through it.
type FS = vfs.FS

// Options are the optional settings of an engine, and the schema.
type Options struct {
	NoSync     bool  // writes are acknowledged before the disk has them
	InMemory   bool  // nothing is on a disk, and the directory means nothing
	CacheBytes int64 // of memory, for blocks that were read and writes that are not in tables yet; 0 is 96 MB
	Schema     Schema

	// AsFound does not have load called twice for the store of an older build: its format stays,
	// or has been raised already.
	AsFound bool

	// The rest is for tests.
	FS          FS     // below the guard; nil is the machine's
	Buffer      uint64 // bytes of writes in memory before they become a table; 0 follows from CacheBytes
	SmallTables bool
	Plain       int64 // bytes on the disk up to which tables are not compressed; 0 is a gigabyte
}

// Open verifies the files of a store, opens the engine, and has load read what the user keeps
// in memory. Damage is found before a file is changed. While load runs, the end of ctx and a
// failure of the disk end its reads. For the store of an older build load is called twice, with
// an engine each: the first only raises the format.
func Open(ctx context.Context, dir string, o Options, load func(*Engine) error) (*Engine, error) {
	if o.CacheBytes == 0 {
		o.CacheBytes = defaultCache
	}
	e, err := openVerified(ctx, dir, o)
	if err != nil {
		return nil, openError(err)
	}
	if err := e.start(ctx, load); err != nil {
		_ = e.Close() // has nothing to lose
		return nil, err
	}
	if e.raising {
		if err := e.Close(); err != nil {
			return nil, err
		}
		o.AsFound = true // it is of the present format now
		return Open(ctx, dir, o, load)
	}
	if !o.InMemory && o.FS == nil {
		if err := errors.Join(closeFiles(dir), e.dropStages()); err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
	return e, nil
}

// start has the user read what it keeps in memory, and only then records that the store has been
// opened, because a first open that fails is repeated from the beginning.
func (e *Engine) start(ctx context.Context, load func(*Engine) error) error {
	settled := e.guard.breakWhenDone(ctx)
	err := load(e)
	if err == nil {
		err = e.inventory.recordOpened()
	}
	settled()
	if failure := e.guard.err(); failure != nil {
		return openFailure(ctx, failure)
	}
	return err
}

// OnFailure ends the opening, and has tell called when the disk fails, at once if it has failed
// already.
func (e *Engine) OnFailure(tell func(error)) { e.guard.endOpening(tell) }

// NewestLog is how far the newest log reached when the store was opened.
func (e *Engine) NewestLog() LogEnd { return e.newest }

// openVerified verifies the files and opens the map, or gives up when ctx ends.
func openVerified(ctx context.Context, dir string, o Options) (*Engine, error) {
	fs := o.FS
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
	e := &Engine{sync: !o.NoSync, guard: g, use: newUsers(), plain: plainOf(o), schema: o.Schema}
	po := pebbleOptions(g, &e.large, o)
	defer po.FileCache.Unref()
	if !o.InMemory {
		if err := lockAndVerify(ctx, e, dir, po, !o.AsFound); err != nil {
			return nil, err
		}
	}
	settled := g.breakWhenDone(ctx)
	db, err := pebble.Open(dir, po)
	settled()
	if err == nil {
		e.db = pebbleDB{db}
		e.weighStore(e.db.measure())
	}
	if g.isBroken() { // then the library's own error is only a consequence
		err = openFailure(ctx, g.err())
	}
	switch {
	case err == nil:
		return e, nil
	case e.db != nil:
		_ = e.Close()
	default:
		_ = e.unlockDirectory()
	}
	return nil, err
}

// pebbleOptions are the settings of the library. Filters are on because a create looks for an id that is mostly not there.
func pebbleOptions(g *guard, large *atomic.Bool, o Options) *pebble.Options {
	po := &pebble.Options{
		FS:                          g,
		FormatMajorVersion:          pebble.FormatNewest,
		CacheSize:                   o.CacheBytes,
		MemTableSize:                cmp.Or(o.Buffer, bufferOf(o.CacheBytes)),
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
		EventListener: &pebble.EventListener{DataCorruption: func(pebble.DataCorruptionInfo) { g.pauseReads() }},
	}
	for i := range po.Levels {
		po.Levels[i].FilterPolicy = bloom.FilterPolicy(bloomBits)
		po.Levels[i].BlockSize = blockSize
	}
	po.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return compressionOf(large) })
	if o.SmallTables {
		po.TargetFileSizes[0], po.FlushSplitBytes = 16<<10, 16<<10
	}
	po.Experimental.CompactionScheduler = newScheduler(g)
	po.Experimental.FileCacheShards = max(1, min(runtime.GOMAXPROCS(0), openTables()/tablesOfShard))
	po.FileCache = pebble.NewFileCache(po.Experimental.FileCacheShards, openTables())
	return po
}

// quietLog drops the library's log, since every error of consequence also comes as a
// return value or goes through the guard. An error that the library calls fatal breaks
// the guard, because the default ends the process.
type quietLog struct{ g *guard }

// Infof drops a message.
func (quietLog) Infof(string, ...any) {}

// Errorf drops a message: the caller gets the error too, or the library tries again, and
// errors of the disk are known to the guard.
func (quietLog) Errorf(string, ...any) {}

// Fatalf breaks the guard.
func (l quietLog) Fatalf(format string, args ...any) { l.g.breakWith(fmt.Errorf(format, args...)) }

// Close closes the engine after its last user has left. A stuck engine is not closed,
// since that would wait for its own locks; the directory stays locked until the process
// ends.
func (e *Engine) Close() (err error) {
	e.use.end()
	if e.stuck.Load() {
		return e.guard.err()
	}
	e.guard.endWaits()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	if err = cmp.Or(e.db.Close(), e.guard.err()); err == nil {
		err = e.inventory.sealLogs()
	}
	return cmp.Or(e.guard.err(), err, e.unlockDirectory())
}
