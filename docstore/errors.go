package docstore

import (
	"fmt"

	"github.com/millrace/changefeed/docstore/internal/engine"
	"github.com/millrace/changefeed/feed"
)

var (
	// ErrInUse means that another process, or another DB of your process, has the directory open.
	ErrInUse = engine.ErrInUse
	// ErrCorrupt means that the contents of the files are damaged: they differ from the data written.
	ErrCorrupt = engine.ErrCorrupt
	// ErrNotStore means that the directory contains no store. The store does not change its files.
	ErrNotStore = engine.ErrNotStore
	// ErrFormat means that a newer version, or another program, wrote the directory.
	ErrFormat = engine.ErrFormat
	// ErrClosed means that the store has been closed.
	ErrClosed = engine.ErrClosed
	// ErrFailed means that the disk failed. From then on the store refuses all reads and writes, and the error
	// contains the reason. Acknowledged writes are safe: close the store and open it again. If the disk is full or
	// the process has no file descriptor left, the store first waits up to 10 seconds.
	ErrFailed = engine.ErrFailed
	// ErrDiskFull means that the store refused a write, and changed nothing, because the disk has less free space
	// than the store's reserve: 64 MB, or a sixteenth of a small disk. Reads go on. Writes go on as soon as the disk
	// has room.
	ErrDiskFull = engine.ErrDiskFull
	// ErrUniqueKey is the [feed.ErrConflict] of a write whose unique key another document of the logical partition
	// already has.
	ErrUniqueKey = fmt.Errorf("%w: unique key is taken", feed.ErrConflict)
	// ErrLeaseKey is the [feed.ErrBadRequest] of a lease container whose
	// partition key is neither /id nor /partitionKey.
	ErrLeaseKey = fmt.Errorf("%w: lease container has a wrong partition key", feed.ErrBadRequest)
	// ErrProcessorName is the [feed.ErrBadRequest] of a processor name that is not valid as part of an id.
	ErrProcessorName = fmt.Errorf("%w: processor name", feed.ErrBadRequest)
	// ErrKeyMismatch is the [feed.ErrBadRequest] of a partition key that differs from the document's, or has more or
	// fewer components than the container has paths.
	ErrKeyMismatch = fmt.Errorf("%w: partition key does not match", feed.ErrBadRequest)
	// ErrNotJSON is the [feed.ErrBadRequest] of a body, patch or value that is not
	// JSON in UTF-8.
	ErrNotJSON = fmt.Errorf("%w: not JSON", feed.ErrBadRequest)
	// ErrNoID is the [feed.ErrBadRequest] of a document without the member id.
	ErrNoID = fmt.Errorf("%w: document has no id", feed.ErrBadRequest)
	// ErrBatchLimit is the [feed.ErrBadRequest] of a batch with too many writes
	// or bytes.
	ErrBatchLimit = fmt.Errorf("%w: batch is too large", feed.ErrBadRequest)
)
