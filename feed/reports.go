package feed

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/changefeed/internal/fold"
)

// Errors that changefeed.Processor.Run returns, the first three only at its start. At its start, Run also returns
// [ErrNotFound], [ErrForbidden] or [ErrBadRequest] of a source or a store.
var (
	// ErrModeChanged: existing leases were made in the other mode.
	ErrModeChanged = errors.New("mode differs from that of the existing leases")
	// ErrStartIgnored: the unit began with another start, so Options.Start would have no effect; see [StartError].
	ErrStartIgnored = errors.New("start option would be ignored")
	// ErrNoStart: leases have no position, and no record says where their unit began; see [StartError].
	ErrNoStart = errors.New("leases without a position or a start")
	// ErrLeasesGone: all leases of a working unit, or their container, were deleted, or another instance has begun the
	// unit anew. The progress of the unit is lost, so Run ends with this error. Restore the container, or start again:
	// the unit then begins where Options.Start says.
	ErrLeasesGone = errors.New("the leases of the unit are gone")
	// ErrSourceGone: the monitored container was deleted, for longer than Options.Expiration. Another container of the
	// same name is another feed, with other positions, so Run ends with this error. Start again when there is such a
	// container: the unit then begins where Options.Start says.
	ErrSourceGone = errors.New("the monitored container is gone")
)

// Errors that changefeed.Hooks.Error receives: the processor goes on.
var (
	// ErrNoProgress: the oldest change of a lease fails again and again. Only changefeed.Processor.Healthy returns this
	// error: Hooks.Error receives each failure.
	ErrNoProgress = errors.New("lease makes no progress")
	// ErrHandlerStuck: the handler did not return after its context had ended.
	ErrHandlerStuck = errors.New("handler ignores its context")
	// ErrOutage: at least three changes fail, and fewer partition keys succeed. Nothing is parked during the outage,
	// and the handler is called only now and then to see whether the handler has recovered; see [Outage].
	ErrOutage = errors.New("the handler seems to lack what it needs")
	// ErrTooManyHeld: a change cannot be parked, because the lease already holds the largest possible number of keys.
	// The change waits until a key is released, and other keys go on.
	ErrTooManyHeld = errors.New("too many held keys")
	// ErrUnconfirmed: with Options.Manual, the handler returns nil and has confirmed nothing since this instance has
	// the lease. The next owner receives all of that again. The error is reported once for each owner of the lease,
	// after ten batches and five minutes.
	ErrUnconfirmed = errors.New("handled batches are not confirmed")
	// ErrMoved: another processor has moved a lease, or the range of the lease has another partition, so the notes
	// beside the position are invalid. Changes that were done after the position are repeated, and the other processor
	// has handled the held changes. Keys that were set aside stay so if the position had already passed their changes.
	ErrMoved = errors.New("lease was moved without us")
	// ErrNoOwner: leases have no owner, because no instance may own more leases.
	ErrNoOwner = errors.New("leases that no instance may own")
	// ErrForeignOwner: the unit holds keys, but a processor of another kind owns a lease of the unit.
	ErrForeignOwner = errors.New("owned by another kind of processor")
	// ErrBufferFull: the processor reads nothing more of a lease, because unhandled changes fill the buffer, and their
	// keys cannot be set aside; see FailurePolicy.MaxSetAside.
	ErrBufferFull = errors.New("buffer is full")
	// ErrNoKeyReads: the source cannot read a single partition key, so no key can be set aside. This error is reported
	// once, at the start; see FailurePolicy.MaxSetAside.
	ErrNoKeyReads = errors.New("the source cannot read a partition key again")
	// ErrAhead: the position of a lease lies after the end of the feed. The processor handles nothing until the feed
	// has reached the position, and never handles the changes before the position. changefeed.Pull ends with this
	// error.
	ErrAhead = errors.New("position is ahead of the feed")
	// ErrHole: part of the key space has no lease.
	ErrHole = errors.New("key range without a lease")
	// ErrOverlap: two leases cover the same keys.
	ErrOverlap = errors.New("leases overlap")
)

// StartError says that Run cannot use Options.Start, or that Options.Start is missing: an [ErrStartIgnored] or, with
// Leases, an [ErrNoStart].
type StartError struct {
	Given  string    // Options.Start; empty if not set
	Began  string    // where the unit began, in the words of the first start
	Since  time.Time // when it began
	Leases []string  // ids of leases without a position
}

// Error names the start that you should set instead.
func (e *StartError) Error() string {
	if len(e.Leases) > 0 {
		return fmt.Sprintf("%v: %s: set Options.Start to where the unit began, such as FromBeginning, or to FromNow "+
			"to skip what was written before",
			ErrNoStart, fold.Names(e.Leases))
	}
	return fmt.Sprintf("%v: Options.Start is %s, but the unit began from %s at %s: leave Start empty to go on where "+
		"it is, or use another processor name to begin anew",
		ErrStartIgnored, e.Given, e.Began, e.Since.Format(time.RFC3339))
}

// Is makes errors.Is(err, ErrStartIgnored) or errors.Is(err, ErrNoStart) true.
func (e *StartError) Is(target error) bool {
	if len(e.Leases) > 0 {
		return target == ErrNoStart
	}
	return target == ErrStartIgnored
}

// BatchError is a failed batch, as changefeed.Hooks.Error receives it.
type BatchError struct {
	Attempt     int
	Failing     time.Time // when the batch failed for the first time in this instance
	Count       int       // of the changes
	First, Last int64     // LSNs of the changes
	Key         PartitionKey
	IDs         []string // ids of the first changes
	Err         error
}

// Error names the attempt, the changes and the cause.
func (e *BatchError) Error() string {
	since := time.Duration(0)
	if !e.Failing.IsZero() {
		since = time.Since(e.Failing).Round(time.Millisecond)
	}
	attempt := fmt.Sprintf("attempt %d, without progress for %v", e.Attempt, since)
	if e.Count == 1 && len(e.IDs) == 1 {
		return fmt.Sprintf("%s, LSN %d, id %q of partition %s: %v", attempt, e.First, e.IDs[0], e.Key, e.Err)
	}
	more := ""
	if e.Count > len(e.IDs) {
		more = fmt.Sprintf(" and %d more", e.Count-len(e.IDs))
	}
	return fmt.Sprintf("%s, %d changes, LSN %d to %d, ids %q%s, the first of partition %s: %v",
		attempt, e.Count, e.First, e.Last, e.IDs, more, e.Key, e.Err)
}

// Unwrap returns the handler's error.
func (e *BatchError) Unwrap() error { return e.Err }

// PanicError describes a panic of the handler.
type PanicError struct {
	Value any
	Stack []byte
}

// Error returns the panic's value; the stack is in Stack.
func (e *PanicError) Error() string { return fmt.Sprintf("handler panicked: %v", e.Value) }

// Origin says where an [Error] arose.
type Origin string

// The origins of errors.
const (
	OriginHandler    Origin = "handler"
	OriginSource     Origin = "source"
	OriginLeaseStore Origin = "lease store"
	OriginBalancer   Origin = "balancer"

	OriginDeadLetters Origin = "dead letters"
)

// Error is a failure, as changefeed.Hooks.Error receives it.
type Error struct {
	Origin Origin
	Lease  string // lease token; empty if the error concerns no single lease
	Err    error
}

// Error names origin, lease and cause.
func (e *Error) Error() string {
	if e.Lease == "" {
		return fmt.Sprintf("%s: %v", e.Origin, e.Err)
	}
	return fmt.Sprintf("%s: lease %s: %v", e.Origin, e.Lease, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// DecodeError says that changefeed.Items could not decode a document into its type.
type DecodeError struct {
	Change Change
	Err    error
}

// Error names the item.
func (e *DecodeError) Error() string {
	return fmt.Sprintf("decode item %q of partition %s, LSN %d: %v", e.Change.ID, e.Change.PartitionKey, e.Change.LSN,
		e.Err)
}

// Unwrap returns the decoder's error.
func (e *DecodeError) Unwrap() error { return e.Err }
