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

// Options are the optional settings of [Open]. With the zero value, Open creates the store if absent, and keeps all
// data durably on disk.
type Options struct {
	// NoSync acknowledges writes before they are on the disk. Such writes mostly survive the end of the process, but
	// not a power loss. Default: off.
	NoSync bool

	// InMemory keeps everything in memory and ignores the directory. Use this for tests.
	InMemory bool

	// CacheBytes is the memory, in bytes, for blocks read from the disk and for writes that are not yet in tables.
	// Both share these bytes, but writes may take 16 MB even if CacheBytes is smaller. 0 means 96 MB. See [OffHeap].
	// A reader of [Snapshot.Documents] may take as many bytes again, one reader at a time.
	CacheBytes int64

	// MustExist makes Open return [ErrNotStore] for a directory without a store, instead of creating a store there.
	// Set MustExist if a mistyped path must not create an empty store.
	MustExist bool

	// The other fields are for tests and for opening a copy.
	fs      engine.FS
	buffer  uint64 // bytes of writes in memory; 0 derives the size from CacheBytes
	small   bool   // small tables, for tests
	resting bool   // no background work: a backup must not differ from its original
	cells   cells  // LSNs per cell of the tallies; 0 means cellLSNs
	plain   int64  // bytes on the disk up to which tables are not compressed; 0 means a gigabyte
}

// ofEngine returns the settings of the engine.
func (o Options) ofEngine() engine.Options {
	return engine.Options{
		NoSync: o.NoSync, InMemory: o.InMemory, CacheBytes: o.CacheBytes, Schema: onDisk, AsFound: o.resting,
		FS: o.fs, Buffer: o.buffer, SmallTables: o.small, Plain: o.plain,
	}
}

// DB is an open store. You may call all methods concurrently.
//
// Readers take no lock. Only the committer replaces the maps and layouts behind the atomic pointers, always as whole
// values. So a reader works on a consistent set for as long as necessary.
type DB struct {
	dir  string
	eng  *engine.Engine
	rid  []byte
	tags tagger

	committer committer

	stop   chan struct{} // closed by Close
	work   sync.WaitGroup
	closer sync.Once
	failed atomic.Pointer[failure]
	wake   chan struct{} // signals that the next expiry is now earlier
	found  Recovery
	wrote  chan struct{} // signals a write that the reclaimer has not seen
	cells  cells         // of tallies
	rest   bool          // Options.resting

	ordered bool // the index of moved documents is complete; false in a resting store of an older version
	hashed  bool // documents of an older version have hashes as numbers of their resource ids

	dropped leftovers // for the reclaimer

	passing   atomic.Bool // a reader has the memory for passes; see creationpass.go
	passBytes int

	containers atomic.Pointer[map[string]*Container] // replaced by the committer
	databases  atomic.Pointer[map[string]Database]   // the same
	nextCont   uint32                                // only for the committer
	common     atomic.Pointer[time.Duration]         // retention of containers without their own; nil if never set

	// A group is applied before the disk has the group safely. Readers that may have seen such a group wait until the
	// group is safe: see awaitSafe.
	applied, safe atomic.Int64
	broad         atomic.Int64 // the last group that may change what readers of any container see
	settled       gate
}

// formatVersion names the layout in keys.go. The store refuses files of another version, because their bytes would be
// misread. Open accepts stores of older versions. Stores of versions 1 and 2 have no index of moved documents, which
// Open builds (see creation.go), and stores of version 1 have no tallies, which are built later (see tally.go).
const (
	formatVersion = "3"
	formatNoOrder = "2"
	formatNoTally = "1"
)

// onDisk is the part of keys.go the engine needs to know.
var onDisk = engine.Schema{
	FormatKey: metaKey("format"),
	Formats:   []string{formatNoTally, formatNoOrder, formatVersion},
	Heads:     loadedTables,
	Age:       ageOfSlot,
}

// loadedTables are the tables read when a store is opened. They are verified before, so a failed open has changed
// nothing.
var loadedTables = []byte{tableMeta, tableContainer, tableDatabase, tableHead, tableCount, tableLow}

// ageOfSlot returns the LSN of an entry in the primary index.
func ageOfSlot(key, value []byte) (int64, bool) {
	if key[0] != tableDoc {
		return 0, false
	}
	s, err := decodeSlot(value)
	return s.lsn, err == nil
}

// maxQueue is the number of transactions waiting for the committer before writers block. There is room for two full
// groups, so the next group is ready when the committer returns from the disk.
const maxQueue = 1024

// Open opens the store in dir, as [OpenContext] does, without a context. If the disk accepts no write for 10 seconds,
// Open gives up.
func Open(dir string, o Options) (*DB, error) { return OpenContext(life{}, dir, o) }

// OpenContext opens the store in dir and creates dir if absent. OpenContext detects damage before any change. Errors:
// [ErrInUse] if another process has the directory open, [ErrCorrupt] if files are damaged, [ErrNotStore] if the
// directory holds other files, [ErrFormat] if a later version wrote the store, [ErrFailed] if a file cannot be
// created or the disk was full for 10 seconds. If ctx ends while OpenContext waits for the disk, the error joins the
// cause of ctx and the error of the disk.
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
		db.work.Go(func() { tallyAll(db) })
	}
	return db, nil
}

// newDB returns a store on an engine being opened.
func newDB(dir string, eng *engine.Engine, o Options) *DB {
	db := &DB{
		dir: dir, eng: eng, tags: newTagger(),
		stop: make(chan struct{}),
		wake: make(chan struct{}, 1), wrote: make(chan struct{}, 1),
		cells: cmp.Or(o.cells, cellLSNs), rest: o.resting,
		passBytes: int(cmp.Or(o.CacheBytes, engine.DefaultCache)),
	}
	queue := make(chan *transaction, maxQueue)
	db.committer = committer{db: db, queue: queue, ended: make(chan struct{}), gather: newGather(queue, !o.NoSync)}
	return db
}

// Close stops the background work, waits for its end, and closes the files. Unacknowledged writes return [ErrClosed]. A
// write waiting for room on a full disk may wait 10 seconds from its beginning; then the write returns [ErrFailed]. A
// second call does nothing and returns nil.
func (db *DB) Close() error {
	var err error
	db.closer.Do(func() {
		db.eng.PrepareClose() // first, because the committer cannot end while a write waits for room
		close(db.stop)
		db.work.Wait()
		if err = db.eng.Close(); err != nil {
			err = fmt.Errorf("close store %s: %w", db.dir, err)
		}
	})
	return err
}

// closed returns why the store cannot be used any more, or nil. The error of a failure comes first, because that
// error contains the reason.
func (db *DB) closed() error {
	if f := db.failed.Load(); f != nil {
		return f.err
	}
	select {
	case <-db.stop:
		return ErrClosed
	default:
		return nil
	}
}

// awaitSafe waits until every write of a container that the caller may have read is safe on the disk. Without this
// wait, a reader could store a position after a change that a power loss takes back. The reader would then skip the
// change that later gets the same LSN.
//
// awaitSafe does not wait for the writes of other containers, because the caller has not read their keys. Otherwise a
// processor's read of the feed would wait for the flush of each checkpoint of its leases.
func (db *DB) awaitSafe(ctx context.Context, c *Container) error {
	// The committer raises both before the engine shows the group, so everything read is counted.
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

// awaitEvent waits for a channel, for the end of ctx, or for the end of the store.
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

// Container returns the container with this name: its id, or database/id outside the [DefaultDatabase]. The error is
// [feed.ErrNotFound] if the container does not exist.
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

// Count returns the number of documents of all containers: the sum of [Container.Count].
func (db *DB) Count() (n int64) {
	for _, c := range *db.containers.Load() {
		n += c.Count()
	}
	return n
}

// RID returns the resource id of the store, which is that of its [DefaultDatabase].
func (db *DB) RID() string { return encodeRID(db.rid) }

// encodeRID writes a resource id as the service does: in base64 with a hyphen instead of a slash, because resource
// ids are segments of URLs.
func encodeRID(b []byte) string {
	var short [32]byte
	return string(ridEncoding.AppendEncode(short[:0], b))
}

// ridEncoding is base64 with a hyphen instead of a slash, which is not allowed in a path.
var ridEncoding = base64.NewEncoding("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-")

// decodeRID reverses encodeRID.
func decodeRID(rid string) ([]byte, error) {
	b, err := ridEncoding.DecodeString(rid)
	if err != nil || len(b) < 4 {
		return nil, fmt.Errorf("resource id %q: %w", rid, ErrCorrupt)
	}
	return b, nil
}
