package feed

import "context"

// Handler is your code: it handles each batch of changes.
//
// If Handle returns nil, the batch is done. If Handle returns an error or panics, its changes are redelivered after a
// pause, with a higher attempt number, and the instance keeps the lease: either the whole batch is redelivered or, as
// FailurePolicy.MaxAttempts says, parts of the batch. If the error is a [Failure], it says which of the changes have
// failed. An error of [Poison] says that a retry cannot help. Changes that you have confirmed with [Batch.Checkpoint]
// are not redelivered, whatever Handle returns.
//
// The context ends with cause [ErrLeaseLost] when the lease is lost, with [ErrHandlerTimeout] after
// Options.HandlerTimeout, and with [ErrStopped] when the processor stops or hands the lease over and Options.Drain has
// passed. Return soon when the context ends, because another instance may begin.
//
// Handle is called for one batch at a time on each lease or, with Options.Concurrency, for several batches of different
// partition keys. Calls for different leases are concurrent.
type Handler interface {
	Handle(ctx context.Context, b *Batch) error
}

// HandlerFunc makes a [Handler] from a function.
type HandlerFunc func(ctx context.Context, b *Batch) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, b *Batch) error { return f(ctx, b) }

// Opener is an optional ability of a [Handler]: the instance calls Open after it has acquired a lease, before the first
// batch. After an error Open is called again, as a failed batch is retried.
type Opener interface {
	Open(ctx context.Context, l Lease) error
}

// Closer is an optional ability of a [Handler]: Close is called after the last batch of a lease, with the lease as it
// was acquired, before the lease is released. If the handler is an [Opener], Close is called only if Open has
// succeeded. If the handler is stuck, Close is not called. After [ReasonLost] another instance may own the lease
// already. If Close takes longer than Options.Drain, the handler counts as stuck.
type Closer interface {
	Close(ctx context.Context, l Lease, why Reason) error
}

// Reason is the reason for giving up a lease.
type Reason string

// The reasons.
const (
	ReasonStopped Reason = "stopped" // the processor stops
	ReasonGiven   Reason = "given"   // handed over to another instance
	ReasonLost    Reason = "lost"    // stolen, expired or deleted
	ReasonSplit   Reason = "split"   // replaced by the leases of its children
	ReasonJoined  Reason = "joined"  // replaced, with a neighbouring lease, by a lease for the keys of both
	ReasonStuck   Reason = "stuck"   // its handler ignores its context

	// ReasonRedundant: other leases cover the range and have progressed at least as far. The lease was left from a
	// create that arrived late.
	ReasonRedundant Reason = "redundant"

	ReasonPaused Reason = "paused" // an operator has paused the range: see package admin
	ReasonReset  Reason = "reset"  // an operator has set another position: see package admin

	ReasonSkipped  Reason = "skipped"  // an operator has had some changes skipped: see package admin
	ReasonReplayed Reason = "replayed" // an operator has a key delivered again: see package admin

	// ReasonUnconfirmed: batches were handled and will not be confirmed, see [Batch.Abandon]. They come again.
	ReasonUnconfirmed Reason = "unconfirmed"
)
