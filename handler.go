package changefeed

import (
	"context"
	"encoding/json"
	"fmt"
)

// Handler is the delegate: the code that handles each batch of changes.
//
// Returning nil means that the batch is done. An error, or a panic, has the same batch
// delivered again after a pause, with a higher attempt number and with the lease still
// held. The context ends with cause [ErrLeaseLost] when the lease is lost, with
// [ErrHandlerTimeout] past [Options.HandlerTimeout] and with [ErrStopped] when the
// processor stops or hands the lease over and [Options.Drain] has passed; a handler
// must then return soon, because somebody else may begin.
//
// Handle is called for one batch at a time on each lease, and concurrently for
// different leases.
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
// a lease, for whatever reason it was given up, if [Opener] (when there is one) had
// succeeded. After [ReasonLost] somebody else may own the lease already.
type Closer interface {
	Close(ctx context.Context, l Lease, why Reason) error
}

// Item is a change with its body decoded.
type Item[T any] struct {
	Change
	Value  T  // the current version; zero for a delete
	Before *T // the previous version, where the change has one
}

// Items makes a [Handler] of a function that wants documents decoded into T. A document
// that does not decode fails the batch with a [DecodeError].
func Items[T any](handle func(ctx context.Context, b *Batch, items []Item[T]) error) Handler {
	return HandlerFunc(func(ctx context.Context, b *Batch) error {
		items := make([]Item[T], len(b.Changes))
		for i, c := range b.Changes {
			if err := decode(c, &items[i]); err != nil {
				return err
			}
		}
		return handle(ctx, b, items)
	})
}

func decode[T any](c Change, into *Item[T]) error {
	into.Change = c
	if c.Body != nil {
		if err := json.Unmarshal(c.Body, &into.Value); err != nil {
			return &DecodeError{Change: c, Err: err}
		}
	}
	if c.Previous != nil {
		into.Before = new(T)
		if err := json.Unmarshal(c.Previous, into.Before); err != nil {
			return &DecodeError{Change: c, Err: err}
		}
	}
	return nil
}

// DecodeError is a document that the type of [Items] cannot hold.
type DecodeError struct {
	Change Change
	Err    error
}

// Error names the item.
func (e *DecodeError) Error() string {
	return fmt.Sprintf("decode item %q of partition %s, LSN %d: %v", e.Change.ID, e.Change.PartitionKey, e.Change.LSN, e.Err)
}

// Unwrap gives the decoder's error.
func (e *DecodeError) Unwrap() error { return e.Err }
