package docstore

import (
	"fmt"

	"github.com/millrace/changefeed/docstore/internal/engine"
	"github.com/millrace/changefeed/feed"
)

var (
	// ErrInUse means that another process, or another DB of this one, has the directory
	// open.
	ErrInUse = engine.ErrInUse
	// ErrCorrupt means that the files are not as they were written.
	ErrCorrupt = engine.ErrCorrupt
	// ErrNotStore means that the directory holds no store; its files are left alone.
	ErrNotStore = engine.ErrNotStore
	// ErrFormat means that a newer version, or another program, wrote the directory.
	ErrFormat = engine.ErrFormat
	// ErrClosed means that the store has been closed.
	ErrClosed = engine.ErrClosed
	// ErrFailed means that the disk failed. From then on the store refuses reads and
	// writes alike, with the reason. Acknowledged writes are safe: close the store and
	// open it again. Lack of room or of descriptors is waited out for 10 seconds first.
	ErrFailed = engine.ErrFailed
	// ErrDiskFull means that a write was refused, and left nothing, because the disk has less room
	// than the store needs for what it has: 64 MB, or a sixteenth of a small disk. Reads go on, and so
	// do writes as soon as there is room.
	ErrDiskFull = engine.ErrDiskFull
	// ErrUniqueKey is the [feed.ErrConflict] of a unique key that another
	// document of the logical partition has.
	ErrUniqueKey = fmt.Errorf("%w: unique key is taken", feed.ErrConflict)
	// ErrLeaseKey is the [feed.ErrBadRequest] of a lease container whose
	// partition key is neither /id nor /partitionKey.
	ErrLeaseKey = fmt.Errorf("%w: lease container has a wrong partition key", feed.ErrBadRequest)
	// ErrProcessorName is the [feed.ErrBadRequest] of a processor name that
	// cannot be part of an id.
	ErrProcessorName = fmt.Errorf("%w: processor name", feed.ErrBadRequest)
	// ErrKeyMismatch is the [feed.ErrBadRequest] of a partition key that is not
	// the document's, or has more or fewer components than the container has paths.
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
