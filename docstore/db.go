package docstore

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/docstore/internal/engine"
	"github.com/millrace/changefeed/feed"
)

// Options are the optional settings of [Open]. The zero value is a durable store on
// disk, made if absent.
type Options struct {
	// NoSync acknowledges writes before the disk has them. They mostly survive the end
	// of the process, but not a power loss. Default: off.
	NoSync bool

	// InMemory keeps everything in memory and ignores the directory: for tests.
	InMemory bool

	// CacheBytes is the memory in bytes for blocks of the disk that were read, and for writes
	// that are not yet in tables, which take theirs from it. Writes may take 16 MB however small
	// it is. 0 is 96 MB. See [OffHeap].
	CacheBytes int64

	// MustExist refuses a directory without a store, with [ErrNotStore], instead of
	// making a store there: a mistyped path must not become an empty store.
	MustExist bool

	// The rest is for tests and for opening a copy.
	fs      engine.FS
	buffer  uint64 // of writes in memory; 0 follows from CacheBytes
	small   bool   // tables are, for tests
	resting bool   // nothing in the background: a backup must not differ from its original
	cells   cells  // of tallies; 0 is cellLSNs
	plain   int64  // bytes on the disk up to which tables are not compressed; 0 is a gigabyte
}

// ofEngine are the settings of the engine.
func (o Options) ofEngine() engine.Options {
	return engine.Options{
		NoSync: o.NoSync, InMemory: o.InMemory, CacheBytes: o.CacheBytes, Schema: onDisk, AsFound: o.resting,
		FS: o.fs, Buffer: o.buffer, SmallTables: o.small, Plain: o.plain,
	}
}

// DB is an open store. All methods may be called concurrently.
//
// Readers take no lock. The committer alone replaces the maps and layouts behind the
// atomic pointers, as whole values, so a reader works on a consistent set for as long
// as needed.
type DB struct {
	dir  string
	eng  *engine.Engine
	rid  []byte
	tags tagger

	committer committer

	stop   chan struct{} // closed by Close
	work   sync.WaitGroup
	closer sync.Once
	failed atomic.Pointer[error]
	wake   chan struct{} // an expiry has come closer
	found  Recovery
	wrote  chan struct{} // a write that the reclaimer has not seen
	cells  cells         // of tallies
	rest   bool          // Options.resting

	dropped leftovers // for the reclaimer

	containers atomic.Pointer[map[string]*Container] // replaced by the committer
	databases  atomic.Pointer[map[string]Database]   // the same
	nextCont   uint32                                // of the committer
	common     atomic.Pointer[time.Duration]         // retention of containers without their own; nil was never set

	// A group is applied before it is safe on the disk. Readers that may have seen such
	// a group wait until it is: see settle.
	applied, safe atomic.Int64
	broad         atomic.Int64 // the last group that may change what readers of any container see
	settled       gate
}

// formatVersion names the layout in keys.go. A store of another version is refused,
// because its bytes would be misread. A store of the version before has no tallies: it
// is opened and gets them (see tally.go).
const (
	formatVersion = "2"
	formatNoTally = "1"
)

// onDisk is what the engine has to know of keys.go.
var onDisk = engine.Schema{
	FormatKey: metaKey("format"),
	Formats:   []string{formatNoTally, formatVersion},
	Heads:     loadedTables,
	Age:       ageOfSlot,
}

// loadedTables are the tables that are read when a store is opened. They are verified
// before, so that an open that fails has changed nothing.
var loadedTables = []byte{tableMeta, tableContainer, tableDatabase, tableHead, tableCount, tableLow}

// ageOfSlot is the LSN of an entry in the primary index.
func ageOfSlot(key, value []byte) (int64, bool) {
	if key[0] != tableDoc {
		return 0, false
	}
	s, err := decodeSlot(value)
	return s.lsn, err == nil
}

// maxQueue is how many transactions wait for the committer before writers block: two full
// groups, so the committer finds the next group ready after the disk.
const maxQueue = 1024

// Open opens the store in dir, as [OpenContext] does, without a context. Open gives up
// on a disk that takes nothing for 10 seconds.
func Open(dir string, o Options) (*DB, error) { return OpenContext(life{}, dir, o) }

// OpenContext opens the store in dir and creates dir if absent. Damage is found before
// anything is changed. Errors: [ErrInUse] when another process has the directory open,
// [ErrCorrupt] when files are damaged, [ErrNotStore] when the directory holds other
// files, [ErrFormat] when a later version wrote the store, [ErrFailed] when a file
// cannot be made or the disk was full for 10 seconds. When ctx ends first, the error is
// its cause together with the error of the disk that was being waited out.
func OpenContext(ctx context.Context, dir string, o Options) (*DB, error) {
	if !o.InMemory && o.fs == nil {
		if dir == "" {
			return nil, refuse("name of the directory is empty: want a path, or Options.InMemory")
		}
		if err := engine.CheckDir(dir, o.MustExist); err != nil {
			return nil, err
		}
	}
	var db *DB
	_, err := engine.Open(ctx, dir, o.ofEngine(), func(eng *engine.Engine) error {
		db = newDB(dir, eng, o)
		return db.start()
	})
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	db.eng.OnFailure(func(err error) { _ = db.failWith(err) })
	db.work.Go(db.committer.commitLoop)
	if !o.resting {
		db.work.Go(db.sweepAll)
		db.work.Go(db.reclaimAll)
		db.work.Go(db.tallyAll)
	}
	return db, nil
}

// newDB is a store on an engine that is being opened.
func newDB(dir string, eng *engine.Engine, o Options) *DB {
	db := &DB{
		dir: dir, eng: eng, tags: newTagger(),
		stop: make(chan struct{}),
		wake: make(chan struct{}, 1), wrote: make(chan struct{}, 1),
		cells: cmp.Or(o.cells, cellLSNs), rest: o.resting,
	}
	queue := make(chan *transaction, maxQueue)
	db.committer = committer{db: db, queue: queue, ended: make(chan struct{}), gather: newGather(queue, !o.NoSync)}
	return db
}

// Close stops the background work, waits for its end, and closes the files. Writes that were
// not acknowledged return [ErrClosed]. A write that waits for room on a full disk has 10 seconds
// from its beginning, and returns [ErrFailed] when they have passed. A second call does nothing and
// returns nil.
func (db *DB) Close() error {
	var err error
	db.closer.Do(func() {
		db.eng.PrepareClose() // first, because a write that waits for room keeps the committer from its end
		close(db.stop)
		db.work.Wait()
		if err = db.eng.Close(); err != nil {
			err = fmt.Errorf("close store %s: %w", db.dir, err)
		}
	})
	return err
}

// closed returns why the store can no longer be used, or nil. The error of a failure
// comes first, because it has the reason.
func (db *DB) closed() error {
	if e := db.failed.Load(); e != nil {
		return *e
	}
	select {
	case <-db.stop:
		return ErrClosed
	default:
		return nil
	}
}

// awaitSafe waits until every write of a container that the caller may have read is safe on
// the disk. Without it a reader could store a position after a change that a power loss takes
// back, and the change that later gets the same LSN would be skipped.
//
// It does not wait for the writes of other containers, whose keys the caller has not read: else
// a processor's read of the feed would wait for the flush of each checkpoint of its leases.
func (db *DB) awaitSafe(ctx context.Context, c *Container) error {
	// Both are raised before the engine shows the group, so whatever was read is counted.
	seen := max(c.applied.Load(), db.broad.Load())
	for {
		ch := db.settled.next()
		if db.safe.Load() >= seen {
			return nil
		}
		if err := db.awaitEvent(ctx, ch); err != nil {
			return err
		}
	}
}

// awaitEvent waits for a channel, the end of ctx or that of the store.
func (db *DB) awaitEvent(ctx context.Context, ch <-chan struct{}) error {
	if err := db.closed(); err != nil {
		return err
	}
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-db.stop:
		return ErrClosed
	}
}

// Container returns the container with this name: its id, or database/id outside the
// [DefaultDatabase]. The error is [feed.ErrNotFound] if there is none.
func (db *DB) Container(name string) (*Container, error) {
	if err := db.closed(); err != nil {
		return nil, err
	}
	c, ok := (*db.containers.Load())[qualified(name)]
	if !ok {
		return nil, fmt.Errorf("container %q: %w", name, feed.ErrNotFound)
	}
	return c, nil
}

// Containers returns all containers, sorted by database and id.
func (db *DB) Containers() []*Container {
	all := *db.containers.Load()
	list := make([]*Container, 0, len(all))
	for _, id := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[id])
	}
	return list
}

// RID returns the resource id of the store, which is that of its [DefaultDatabase].
func (db *DB) RID() string { return encodeRID(db.rid) }

// encodeRID writes a resource id as the service does: base64 in which a slash is a
// hyphen, because resource ids are segments of URLs.
func encodeRID(b []byte) string {
	var short [32]byte
	return string(ridEncoding.AppendEncode(short[:0], b))
}

// ridEncoding is base64 with a dash for the slash, which cannot stand in a path.
var ridEncoding = base64.NewEncoding("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-")

// decodeRID reverses encodeRID.
func decodeRID(rid string) ([]byte, error) {
	b, err := ridEncoding.DecodeString(rid)
	if err != nil || len(b) < 4 {
		return nil, fmt.Errorf("resource id %q: %w", rid, ErrCorrupt)
	}
	return b, nil
}
