package engine

import (
	"context"
	"io"

	"github.com/cockroachdb/pebble/v2"
)

// If the types of a package refer to a library, through fields and signatures of methods, the compiler compiles the
// library's generic code with each package that uses those types. For this library, that was 5 MB and most of a
// second for each importer of docstore. Therefore an open engine uses the library through the interfaces of this
// file, and a test of docstore verifies that its DB does not refer to the library's types.
//
// The interfaces have the library's own methods where these fit, so a step of a cursor is a single call.

// library is an open ordered map on disk.
type library interface {
	state
	writer
	upkeep
	gauge
}

// state is the present state of the map, or a saved state.
type state interface {
	Get(key []byte) (value []byte, closer io.Closer, err error)
	iterate(from, to []byte) (iterator, error)
	Close() error
}

// writer begins changes of the map, and saves its states.
type writer interface {
	begin(size int) changes
	snapshot() state
}

// upkeep maintains the map's files.
type upkeep interface {
	AsyncFlush() (done <-chan struct{}, err error)
	compact(ctx context.Context, from, to []byte) error
	checkpoint(dir string) error
}

// gauge reports how large the map is.
type gauge interface {
	measure() weights
	EstimateDiskUsage(from, to []byte) (uint64, error)
}

// weights are sizes of a map, in bytes.
type weights struct {
	disk, buffers, cache int64

	logs     uint64 // on the disk, including logs kept for reuse
	logFiles int64
}

// iterator walks keys in order.
type iterator interface {
	steps
	spot
}

type steps interface {
	First() bool
	Next() bool
	SeekGE(key []byte) bool
	Close() error
}

type spot interface {
	Key() []byte
	ValueAndErr() ([]byte, error)
	Error() error
}

// changes is a set of changes applied as a whole.
type changes interface {
	edits
	apply(sync bool) error
	Close() error
}

type edits interface {
	reserve(keySize, valueSize int) (key, value []byte, filled finisher)
	drop(key []byte)
	dropSized(key []byte, size int)
	dropRange(from, to []byte)
}

// finisher is called after a key and a value have been filled in.
type finisher interface{ Finish() error }

// pebbleDB is the library's map.
type pebbleDB struct{ *pebble.DB }

func (db pebbleDB) iterate(from, to []byte) (iterator, error) {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return nil, err
	}
	return it, nil
}

func (db pebbleDB) snapshot() state { return pebbleSnapshot{db.NewSnapshot()} }

func (db pebbleDB) compact(ctx context.Context, from, to []byte) error {
	return db.Compact(ctx, from, to, false)
}

// checkpoint writes the files of a single state, including all writes in the log, into a new directory.
func (db pebbleDB) checkpoint(dir string) error { return db.Checkpoint(dir, pebble.WithFlushedWAL()) }

func (db pebbleDB) measure() weights {
	m := db.Metrics()
	return weights{
		disk: int64(m.DiskSpaceUsage()), buffers: int64(m.MemTable.Size), cache: m.BlockCache.Size,
		logs: m.WAL.PhysicalSize + m.WAL.ObsoletePhysicalSize, logFiles: m.WAL.Files + m.WAL.ObsoleteFiles,
	}
}

// pebbleSnapshot is a state saved by the library.
type pebbleSnapshot struct{ *pebble.Snapshot }

func (s pebbleSnapshot) iterate(from, to []byte) (iterator, error) {
	it, err := s.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return nil, err
	}
	return it, nil
}

// pebbleBatch is a set of changes in the library's form. Changes to such a batch have no documented errors; the
// library checks the batch at its application.
type pebbleBatch struct {
	*pebble.Batch
	db *pebble.DB
}

func (db pebbleDB) begin(size int) changes {
	return &pebbleBatch{db.NewBatchWithSize(size), db.DB}
}

// reserve adds a key with a value, which the caller fills in. So the caller's bytes are not passed to an interface,
// and stay on the stack.
func (b *pebbleBatch) reserve(keySize, valueSize int) (key, value []byte, filled finisher) {
	d := b.SetDeferred(keySize, valueSize)
	return d.Key, d.Value, d
}

func (b *pebbleBatch) drop(key []byte)                { _ = b.Delete(key, nil) }
func (b *pebbleBatch) dropSized(key []byte, size int) { _ = b.DeleteSized(key, uint32(size), nil) }
func (b *pebbleBatch) dropRange(from, to []byte)      { _ = b.DeleteRange(from, to, nil) }

// apply shows the changes to readers and, if sync is set, returns when they are on the disk.
func (b *pebbleBatch) apply(sync bool) error {
	if !sync {
		return b.db.Apply(b.Batch, pebble.NoSync)
	}
	if err := b.db.ApplyNoSyncWait(b.Batch, pebble.Sync); err != nil {
		return err
	}
	return b.SyncWait()
}
