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
// Its files have the newest format of the pinned version of the library. That format is the fastest. That is also the
// only format that shares no channel between the synctest bubbles of a process: with older formats, the second test
// in virtual time would crash.
//
// The library's values are used through the interfaces of pebble.go.
type Engine struct {
	db    library
	sync  bool
	guard *guard
	use   users

	lock      *pebble.Lock // of the directory
	inventory *inventory   // nil in memory, and while raising
	raising   bool         // opened only to raise the format of a store of an older build
	newest    LogEnd       // the state in which the log was found
	schema    Schema

	plain int64       // bytes on the disk up to which tables are not compressed
	large atomic.Bool // the store is larger than plain
	stuck atomic.Bool // the library panicked with locks held, so closing would hang
}

const bloomBits = 10

// FS is the file system below the engine; tests inject errors through FS.
type FS = vfs.FS

// Options are the optional settings of an engine, and its schema.
type Options struct {
	NoSync     bool  // acknowledge writes before they are on the disk
	InMemory   bool  // nothing is on a disk, and the directory is ignored
	CacheBytes int64 // memory for cached blocks and for writes that are not in tables yet; 0 means 96 MB
	Schema     Schema

	// AsFound prevents the second call of load for the store of an older build: the format of the store stays, or has
	// been raised already.
	AsFound bool

	// The other fields are for tests.
	FS          FS     // below the guard; nil means the machine's
	Buffer      uint64 // bytes of writes in memory before they become a table; 0 derives the size from CacheBytes
	SmallTables bool
	Plain       int64 // bytes on the disk up to which tables are not compressed; 0 means a gigabyte
}

// Open verifies the files of a store, opens the engine, and calls load, which reads the data that the user keeps in
// memory. Open detects damage before any file is changed. If ctx ends or the disk fails while load runs, the reads of
// load return errors. For the store of an older build, Open calls load twice, each time with a new engine: the first
// call only raises the format.
func Open(ctx context.Context, dir string, o Options, load func(*Engine) error) (*Engine, error) {
	if o.CacheBytes == 0 {
		o.CacheBytes = DefaultCache
	}
	e, err := openVerified(ctx, dir, o)
	if err != nil {
		return nil, openError(err)
	}
	if err := e.start(ctx, load); err != nil {
		_ = e.Close() // nothing can be lost
		return nil, err
	}
	if e.raising {
		if err := e.Close(); err != nil {
			return nil, err
		}
		o.AsFound = true // the store has the present format now
		return Open(ctx, dir, o, load)
	}
	if !o.InMemory && o.FS == nil {
		if err := errors.Join(closeFiles(dir), e.dropStages()); err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
	return e, nil
}

// start calls load, and records only after its success that the store has been opened, because a first open that
// fails is repeated from the beginning.
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

// OnFailure ends the opening. The engine calls tell when the disk fails, or at once after an earlier failure.
func (e *Engine) OnFailure(tell func(error)) { e.guard.endOpening(tell) }

// NewestLog returns how far the newest log reached when the store was opened.
func (e *Engine) NewestLog() LogEnd { return e.newest }

// openVerified verifies the files and opens the map. If ctx ends, openVerified gives up.
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

// pebbleOptions returns the settings of the library. Filters are on, because a create looks up an id, and usually the
// id does not exist.
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
		// A reader of a damaged block gets the error. But the library retries a compaction that meets the block at
		// once and for ever; the pause prevents that the retries use a whole core.
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

// quietLog drops the library's log, because every important error is also returned or goes through the guard. If the
// library reports a fatal error, quietLog breaks the guard; the library's default would end the process.
type quietLog struct{ g *guard }

// Infof drops a message.
func (quietLog) Infof(string, ...any) {}

// Errorf drops a message. Either the caller gets the error too, or the library retries, and the guard knows the
// errors of the disk.
func (quietLog) Errorf(string, ...any) {}

// Fatalf breaks the guard.
func (l quietLog) Fatalf(format string, args ...any) { l.g.breakWith(fmt.Errorf(format, args...)) }

// Close closes the engine after its last user has left. If the library panicked with locks held, Close does not close
// the library, because that would wait for these locks; the directory stays locked until the process ends.
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
