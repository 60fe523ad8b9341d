package docstore

import (
	"context"
	"fmt"
	"io"

	"github.com/millrace/changefeed/docstore/internal/engine"
)

// A backup is the engine's own files of one moment, and not an export of documents. So
// LSNs, ETags, resource ids and retained versions are in it, and leases and
// continuations that were made against the original remain valid against the copy.

// Backup copies the store into a new directory, in a state of one moment of the call:
// every write acknowledged before the call is in the copy, and readers and writers go
// on. When Backup returns, the copy is on the disk and has been opened once, because a
// copy that nobody has opened is a hope. After an error there is no directory.
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

// BackupTo is [DB.Backup] into a stream for [ReceiveBackup]: a tar archive of the
// files, and of a last file with their number and checksum, because a stream that
// breaks between two files looks whole.
func (db *DB) BackupTo(ctx context.Context, w io.Writer) error {
	ctx, cancel := db.whileOpen(ctx)
	defer cancel(nil)
	if err := db.eng.StreamTo(ctx, w); err != nil {
		return fmt.Errorf("backup of store %s: %w", db.dir, err)
	}
	return nil
}

// ReceiveBackup makes a store of the stream that [DB.BackupTo] wrote, in a new
// directory. When it returns, the store is on the disk and has been opened once; after
// an error, as of a stream that broke, there is no directory.
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

// checkNew refuses a directory without a name.
func checkNew(dir string) error {
	if dir == "" {
		return refuse("name of the directory is empty: want that of a new one")
	}
	return nil
}

const leastCache = 8 << 20 // bytes, for a store that is only looked at

// opensOnce tries a copy: it opens the copy and closes it.
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
