package changefeed

import (
	"errors"
	"fmt"
	"time"
)

// What a store answers.
var (
	// ErrConflict: a record or item with this id exists, or its ETag has moved on.
	ErrConflict = errors.New("conflict")
	// ErrPrecondition is the [ErrConflict] of a conditional write: its ETag is not the
	// stored one, or what else it depends on does not hold.
	ErrPrecondition = fmt.Errorf("%w: precondition failed", ErrConflict)
	// ErrNotFound: there is no such record, item or container.
	ErrNotFound = errors.New("not found")
	// ErrForbidden: the caller lacks the right.
	ErrForbidden = errors.New("forbidden")
	// ErrGone: the range spans several physical partitions, because one was split.
	ErrGone = errors.New("partition key range is gone")
	// ErrTooOld: all versions and deletes no longer retains the changes behind this position.
	ErrTooOld = errors.New("position is older than the retention")
	// ErrThrottled: the store asks for a pause; see [ThrottledError].
	ErrThrottled = errors.New("request rate is too large")
	// ErrBadRequest: the store refuses the input as such; trying again cannot help.
	ErrBadRequest = errors.New("bad request")
)

// What a processor reports, or ends a handler's context with.
var (
	// ErrLeaseLost: the lease belongs to somebody else, or may soon.
	ErrLeaseLost = errors.New("lease lost")
	// ErrStopped: the processor is stopping, or hands the lease over, and the drain time is up.
	ErrStopped = errors.New("processor stopped")
	// ErrHandlerTimeout: the handler took longer than Options.HandlerTimeout.
	ErrHandlerTimeout = errors.New("handler deadline exceeded")
	// ErrHandlerStuck: the handler did not return after its context had ended.
	ErrHandlerStuck = errors.New("handler ignores its context")
	// ErrNotManual: Batch.Checkpoint on a processor that checkpoints by itself.
	ErrNotManual = errors.New("checkpoint by hand needs Options.Manual")
	// ErrModeChanged: existing leases were made in the other mode.
	ErrModeChanged = errors.New("mode differs from that of the existing leases")
	// ErrStartIgnored: leases exist, so the start option would have no effect.
	ErrStartIgnored = errors.New("start option would be ignored")
	// ErrHole: part of the key space has no lease.
	ErrHole = errors.New("key range without a lease")
	// ErrOverlap: two leases cover the same keys.
	ErrOverlap = errors.New("leases overlap")
	// ErrBadLease: a document among the leases is not one.
	ErrBadLease = errors.New("not a lease document")
)

// OptionError is an option that [New] refuses.
type OptionError struct {
	Field string // as in Options
	Value string
	Want  string
}

// Error names the field, its value and what would be right.
func (e *OptionError) Error() string {
	return fmt.Sprintf("option %s is %s: want %s", e.Field, e.Value, e.Want)
}

// ThrottledError is the [ErrThrottled] that tells how long to wait.
type ThrottledError struct {
	After time.Duration
}

// Error tells the pause.
func (e *ThrottledError) Error() string {
	return fmt.Sprintf("%v: retry after %v", ErrThrottled, e.After)
}

// Is makes errors.Is(err, ErrThrottled) true.
func (e *ThrottledError) Is(target error) bool { return target == ErrThrottled }

// PanicError is a handler that panicked.
type PanicError struct {
	Value any
	Stack []byte
}

// Error is the panic's value; the stack is in Stack.
func (e *PanicError) Error() string { return fmt.Sprintf("handler panicked: %v", e.Value) }

// Origin tells where an [Error] arose.
type Origin string

// The origins of errors.
const (
	OriginHandler    Origin = "handler"
	OriginSource     Origin = "source"
	OriginLeaseStore Origin = "lease store"
	OriginBalancer   Origin = "balancer"
)

// Error is what [Hooks.Error] gets.
type Error struct {
	Origin Origin
	Lease  string // lease token; empty when it concerns no single lease
	Err    error
}

// Error tells origin, lease and cause.
func (e *Error) Error() string {
	if e.Lease == "" {
		return fmt.Sprintf("%s: %v", e.Origin, e.Err)
	}
	return fmt.Sprintf("%s: lease %s: %v", e.Origin, e.Lease, e.Err)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }
