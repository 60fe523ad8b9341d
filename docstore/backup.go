package docstore

import (
	"context"
	"fmt"
	"io"

	"github.com/millrace/changefeed/docstore/internal/engine"
)

// A backup is a copy of the engine's own files at one moment, not an export of documents. So the copy contains LSNs,
// ETags, resource ids and retained versions, and leases and continuations made against the original remain valid
// against the copy.

// PartialSuffix is the end of the name of a copy that is not whole yet.
const PartialSuffix = engine.PartialSuffix

// Backup copies the store into a new directory. The copy is the state of one moment during the call: every write
// acknowledged before the call is in the copy, and readers and writers go on. When Backup returns, the copy is on the
// disk, and Backup has opened it once, because a copy that was never opened may not be readable. If Backup returns an
// error, the directory does not exist.
func (db *DB) Backup(ctx context.Context, dir string) error {
	ctx, cancel := db.whileOpen(ctx)
	defer cancel(nil)
	err := checkNew(dir)
	if err == nil {
		err = db.eng.CopyInto(ctx, dir, opensOnce(ctx))
	}
	if err != nil {
		return fmt.Errorf("backup of store %s to %s: %w", db.dir, dir, err)
	}
	return nil
}

// BackupTo is [DB.Backup] into a stream for [ReceiveBackup]. The stream is a tar archive of the files. Its last file
// records their number and checksum, because a stream that breaks between two files looks complete.
func (db *DB) BackupTo(ctx context.Context, w io.Writer) error {
	ctx, cancel := db.whileOpen(ctx)
	defer cancel(nil)
	if err := db.eng.StreamTo(ctx, w); err != nil {
		return fmt.Errorf("backup of store %s: %w", db.dir, err)
	}
	return nil
}

// ReceiveBackup creates a store in a new directory from the stream that [DB.BackupTo] wrote. When ReceiveBackup
// returns, the store is on the disk and has been opened once. After an error, for example because the stream broke,
// the directory does not exist.
func ReceiveBackup(ctx context.Context, r io.Reader, dir string) error {
	err := checkNew(dir)
	if err == nil {
		err = engine.ReceiveInto(ctx, r, dir, opensOnce(ctx))
	}
	if err != nil {
		return fmt.Errorf("receive backup to %s: %w", dir, err)
	}
	return nil
}

// checkNew refuses an empty name of a directory.
func checkNew(dir string) error {
	if dir == "" {
		return refuse("name of the directory is empty: want that of a new one")
	}
	return nil
}

const leastCache = 8 << 20 // bytes, for a store that is only opened and closed

// opensOnce returns a function that tests a copy: it opens and closes the copy.
func opensOnce(ctx context.Context) func(dir string) error {
	return func(dir string) error {
		copied, err := OpenContext(ctx, dir, Options{MustExist: true, CacheBytes: leastCache, resting: true})
		if err != nil {
			return err
		}
		return copied.Close()
	}
}

// whileOpen returns a context that also ends with the store.
func (db *DB) whileOpen(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(life{db.stop}, func() { cancel(ErrClosed) })
	return ctx, func(cause error) {
		stop()
		cancel(cause)
	}
}
