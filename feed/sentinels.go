package feed

import (
	"errors"
	"fmt"
	"time"
)

// Errors of sources and stores.
var (
	// ErrConflict: a record or item with this id exists, or its ETag has changed.
	ErrConflict = errors.New("conflict")
	// ErrPrecondition is the [ErrConflict] of a conditional write: the stored ETag differs, or a condition of the write
	// is false.
	ErrPrecondition = fmt.Errorf("%w: precondition failed", ErrConflict)
	// ErrNotFound: there is no such record, item or container.
	ErrNotFound = errors.New("not found")
	// ErrForbidden: the caller lacks the right.
	ErrForbidden = errors.New("forbidden")
	// ErrGone: the range spans several physical partitions after a split.
	ErrGone = errors.New("partition key range is gone")
	// ErrTooOld: all versions and deletes no longer retains the changes after this position.
	ErrTooOld = errors.New("position is older than the retention")
	// ErrThrottled: the store asks for a pause; see [ThrottledError].
	ErrThrottled = errors.New("request rate is too large")
	// ErrBadRequest: the store refuses the input; a retry cannot help.
	ErrBadRequest = errors.New("bad request")
	// ErrBadLease: a document among the leases is no valid lease.
	ErrBadLease = errors.New("not a lease document")
	// ErrForeignLease: the lease belongs to a kind of processor with which this processor cannot share leases; this
	// processor reads the lease and never writes it.
	ErrForeignLease = fmt.Errorf("%w that this processor can write", ErrBadLease)
	// ErrNotManual: the handler called Batch.Checkpoint, but the processor checkpoints by itself.
	ErrNotManual = errors.New("checkpoint by hand needs Options.Manual")
)

// Errors that end a handler's context, as its cause.
var (
	// ErrLeaseLost: the lease belongs to another owner, or may soon.
	ErrLeaseLost = errors.New("lease lost")
	// ErrStopped: the processor stops or hands the lease over, and Options.Drain has passed.
	ErrStopped = errors.New("processor stopped")
	// ErrHandlerTimeout: the handler took longer than Options.HandlerTimeout.
	ErrHandlerTimeout = errors.New("handler deadline exceeded")
)

// ThrottledError is the [ErrThrottled] that says how long to wait.
type ThrottledError struct {
	After time.Duration
}

// Error names the pause.
func (e *ThrottledError) Error() string {
	return fmt.Sprintf("%v: retry after %v", ErrThrottled, e.After)
}

// Is makes errors.Is(err, ErrThrottled) true.
func (e *ThrottledError) Is(target error) bool { return target == ErrThrottled }
