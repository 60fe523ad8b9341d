package docstore

import (
	"fmt"
	"time"
)

// Health is the state of a store at a given moment, for the store's operator.
type Health struct {
	// Err is why the store refuses all reads and writes: [ErrFailed] with the reason, or [ErrClosed]. If Err is nil,
	// the store serves reads.
	Err error

	// Since is the time of the failure. If the store has not failed, Since is the zero time.
	Since time.Time

	// Full is why the store refuses writes and serves reads: [ErrDiskFull] with the free space and the reserve. If the
	// disk has room, Full is nil.
	Full error

	// Waiting is the number of writes that callers have begun and the store has not answered. A busy store has some. If
	// the disk hangs or becomes full during a write, the number grows with each caller.
	Waiting int64

	// Bytes is the size of the files in the store's directory, in bytes, or 0 if they cannot be listed.
	Bytes int64

	// Disk is the volume of the store's directory. If Disk is unknown, all its fields are 0: if the store is in memory,
	// or if the system does not report the free space.
	Disk Disk
}

// Disk is the space of a volume.
type Disk struct {
	Free int64 // bytes that this process may still write
	Size int64 // bytes; 0 if the space is unknown
}

// failure is why and when a store has failed.
type failure struct {
	err error
	at  time.Time
}

// failWith stops the store after an error of the disk and wakes all waiters.
func (db *DB) failWith(err error) error {
	f := &failure{fmt.Errorf("write to disk: %w: %w", ErrFailed, err), time.Now()}
	if db.failed.CompareAndSwap(nil, f) {
		db.settled.open()
		for _, c := range db.Containers() {
			c.wakeAll()
		}
	}
	return db.failed.Load().err
}

// Health returns the state of the store. Health also works if the store has failed, was closed, or waits for a disk
// that hangs: it asks the file system for the free space and the sizes of the files, and waits for no write.
func (db *DB) Health() Health {
	h := Health{Err: db.closed(), Full: db.CheckRoom(), Waiting: db.committer.waiting.Load(), Bytes: db.eng.Size()}
	if f := db.failed.Load(); f != nil {
		h.Since = f.at
	}
	h.Disk.Free, h.Disk.Size = db.eng.Space()
	return h
}

// OnSync calls f after each sync of the log to the disk, with the duration of the sync, until stop is called. Each
// write waits for such a sync, unless [Options].NoSync is set; concurrent writes share a sync. f must return soon, and
// must not call the store, because all writes wait for f.
func (db *DB) OnSync(f func(took time.Duration)) (stop func()) { return db.eng.OnSync(f) }
