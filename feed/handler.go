package feed

import "context"

// Handler is your code: it handles each batch of changes.
//
// Returning nil means that the batch is done. If Handle returns an error, whichever it is, or
// panics, its changes are delivered again after a pause, with a higher attempt number and with
// the lease still held: the batch as a whole or, as FailurePolicy.MaxAttempts says, in parts. An
// error that is a [Failure] says which of the changes have failed, and one of [Poison] that
// trying again cannot help. What [Batch.Checkpoint] has confirmed does not come again, whatever
// Handle returns.
//
// The context ends with cause [ErrLeaseLost] when the lease is lost, with
// [ErrHandlerTimeout] past Options.HandlerTimeout and with [ErrStopped] when the
// processor stops or hands the lease over and Options.Drain has passed; a handler
// must then return soon, because somebody else may begin.
//
// Handle is called for one batch at a time on each lease or, with Options.Concurrency, for
// several batches of different partition keys, and concurrently for different leases.
type Handler interface {
	Handle(ctx context.Context, b *Batch) error
}

// HandlerFunc makes a [Handler] of a function.
type HandlerFunc func(ctx context.Context, b *Batch) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, b *Batch) error { return f(ctx, b) }

// Opener is an optional ability of a [Handler]: Open is called before the first batch
// of a lease that the instance has acquired. An error is retried like a failed batch.
type Opener interface {
	Open(ctx context.Context, l Lease) error
}

// Closer is an optional ability of a [Handler]: Close is called after the last batch of
// a lease, with the lease as it was acquired, before it is released, if [Opener] (when
// there is one) had succeeded. It is not called when the handler is stuck. After
// [ReasonLost] somebody else may own the lease already. A Close that takes longer than
// Options.Drain counts as a stuck handler.
type Closer interface {
	Close(ctx context.Context, l Lease, why Reason) error
}

// Reason is why a lease was given up.
type Reason string

// The reasons.
const (
	ReasonStopped Reason = "stopped" // the processor stops
	ReasonGiven   Reason = "given"   // handed over to another instance
	ReasonLost    Reason = "lost"    // stolen, expired or deleted
	ReasonSplit   Reason = "split"   // replaced by the leases of its children
	ReasonStuck   Reason = "stuck"   // its handler ignores its context

	// ReasonRedundant: other leases cover its range and have come as far. It was left from
	// a create that arrived late.
	ReasonRedundant Reason = "redundant"
)
