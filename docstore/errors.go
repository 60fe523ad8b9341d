package docstore

import (
	"errors"
	"fmt"

	"github.com/millrace/changefeed"
)

var (
	// ErrInUse: another process, or another DB of this one, has the directory open.
	ErrInUse = errors.New("directory is in use")
	// ErrCorrupt: the files are not what was written.
	ErrCorrupt = errors.New("store is corrupt")
	// ErrNotStore: the directory holds no store, and what it holds is left alone.
	ErrNotStore = errors.New("not a store")
	// ErrFormat: the directory was written by a newer version, or by another program.
	ErrFormat = errors.New("unknown format")
	// ErrClosed: the store has been closed.
	ErrClosed = errors.New("store is closed")
	// ErrFailed: the disk failed, and from then on the store refuses reads and writes
	// alike, with the reason. What was acknowledged before is safe; close the store and
	// open it again. A disk without room, or a process without descriptors, is waited out
	// for 10 seconds before.
	ErrFailed = errors.New("store has failed")
	// ErrUniqueKey is the [changefeed.ErrConflict] of a unique key that another
	// document has.
	ErrUniqueKey = fmt.Errorf("%w: unique key is taken", changefeed.ErrConflict)
	// ErrLeaseKey is the [changefeed.ErrBadRequest] of a lease container whose
	// partition key is neither /id nor /partitionKey.
	ErrLeaseKey = fmt.Errorf("%w: lease container has a wrong partition key", changefeed.ErrBadRequest)
	// ErrProcessorName is the [changefeed.ErrBadRequest] of a processor name that cannot be part of an id.
	ErrProcessorName = fmt.Errorf("%w: processor name", changefeed.ErrBadRequest)
	// ErrKeyMismatch is the [changefeed.ErrBadRequest] of a partition key that is not the
	// document's, or that has not one component for each path of the container.
	ErrKeyMismatch = fmt.Errorf("%w: partition key does not match", changefeed.ErrBadRequest)
	// ErrBatchLimit is the [changefeed.ErrBadRequest] of a batch with too many writes or bytes.
	ErrBatchLimit = fmt.Errorf("%w: batch is too large", changefeed.ErrBadRequest)
)
