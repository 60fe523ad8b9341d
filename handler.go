package changefeed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Handler is the delegate: the code that handles each batch of changes.
//
// Returning nil means that the batch is done. An error, whichever it is, or a panic, has
// the same batch delivered again after a pause, with a higher attempt number and with the
// lease still held. The context ends with cause [ErrLeaseLost] when the lease is lost, with
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
// a lease, with the lease as it was acquired, before it is released, if [Opener] (when
// there is one) had succeeded. It is not called when the handler is stuck. After
// [ReasonLost] somebody else may own the lease already. A Close that takes longer than
// [Options.Drain] counts as a stuck handler.
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

// outcome is how a call of the handler came to its end. It stands beside the handler's
// error and is never read from it: a handler may return any error of this package.
type outcome uint8

const (
	hasReturned outcome = iota // by itself
	wasLate                    // it failed after HandlerTimeout had ended its context
	wasCut                     // it failed after its lease, or the drain time, had ended its context
	isStuck                    // it has not returned
)

// call runs a function of the handler, which is not ours to trust: it may panic, take
// too long, or ignore its context. What is stuck goes on alone: nobody waits for it.
func (w *worker) call(f func(context.Context) error) (outcome, error) {
	ctx, cancel := context.WithCancelCause(w.lease)
	defer cancel(nil)
	c := w.launch(ctx, f)
	if err, returned := w.patience(c.result, cancel); returned {
		return w.verdict(ctx, err)
	}
	grace := time.NewTimer(w.r.opts.Drain)
	defer grace.Stop()
	select {
	case err := <-c.result:
		return w.verdict(ctx, err)
	case <-grace.C:
	}
	if !c.abandon() {
		return w.verdict(ctx, <-c.result)
	}
	err := fmt.Errorf("%w, %v after it ended: %w", ErrHandlerStuck, w.r.opts.Drain, context.Cause(ctx))
	w.r.hooks.Error(&Error{Origin: OriginHandler, Lease: w.first.Token, Err: err})
	return isStuck, err
}

// launched is a call of the handler that runs by itself.
type launched struct {
	result chan error
	over   atomic.Bool // it has returned, or was abandoned: whichever is first
}

// abandon gives up on a call, unless it has just returned.
func (c *launched) abandon() bool { return c.over.CompareAndSwap(false, true) }

// launch calls a function of the handler. When it returns after it was abandoned, its
// range may be taken again.
func (w *worker) launch(ctx context.Context, f func(context.Context) error) *launched {
	c := &launched{result: make(chan error, 1)}
	go func() {
		defer func() {
			if !c.abandon() {
				w.r.unclaim(w.first.Range)
			}
		}()
		protect(ctx, f, c.result)
	}()
	return c
}

// patience waits for the handler as long as it may go on, and then ends its context.
func (w *worker) patience(result <-chan error, cancel context.CancelCauseFunc) (err error, returned bool) {
	timeout := time.NewTimer(w.r.opts.HandlerTimeout)
	defer timeout.Stop()
	drain := make(<-chan time.Time)
	halted := w.halt.Done()
	for {
		select {
		case err := <-result:
			return err, true
		case <-w.lease.Done():
			return nil, false
		case <-halted:
			halted = nil
			drain = time.After(w.r.opts.Drain)
		case <-drain:
			cancel(ErrStopped)
			return nil, false
		case <-timeout.C:
			cancel(ErrHandlerTimeout)
			w.r.hooks.Error(&Error{
				Origin: OriginHandler, Lease: w.first.Token,
				Err: fmt.Errorf("%w after %v", ErrHandlerTimeout, w.r.opts.HandlerTimeout),
			})
			return nil, false
		}
	}
}

// verdict tells a handler's own failure from one that we caused by ending its context.
func (w *worker) verdict(ctx context.Context, err error) (outcome, error) {
	switch cause := context.Cause(ctx); {
	case err == nil || cause == nil:
		return hasReturned, err
	case cause == ErrHandlerTimeout:
		return wasLate, fmt.Errorf("%w: %w", cause, err)
	default:
		return wasCut, fmt.Errorf("handler was cut short: %w: %w", context.Cause(w.halt), err)
	}
}

// protect turns a panic into an error, and the end of the goroutine too.
func protect(ctx context.Context, f func(context.Context) error, result chan<- error) {
	err := errExit
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
		result <- err
	}()
	err = f(ctx)
}

// errExit is a handler that called runtime.Goexit, as testing's FailNow does.
var errExit = errors.New("handler ended its goroutine")

// open calls the handler's Open until it succeeds.
func (w *worker) open() error {
	opener, ok := w.r.handler.(Opener)
	for failures := 1; ok; failures++ {
		how, err := w.call(func(ctx context.Context) error { return opener.Open(ctx, w.first) })
		switch {
		case err == nil:
			w.opened = true
			return nil
		case how == isStuck:
			return errStuck
		case how == wasCut:
			return context.Cause(w.halt)
		}
		w.r.report(w.lease, OriginHandler, w.first.Token, fmt.Errorf("open: %w", err))
		if !pause(w.halt, w.r.backoff(w.rng, failures)) {
			return context.Cause(w.halt)
		}
	}
	w.opened = true
	return nil
}

// close calls the handler's Close, while the lease is still held if it can be. A Close
// that hangs holds the lease as a stuck handler does.
func (w *worker) close(why Reason) Reason {
	closer, ok := w.r.handler.(Closer)
	if !ok || !w.opened || why == ReasonStuck {
		return why
	}
	ctx, cancel := context.WithTimeout(w.r.base, w.r.opts.Drain)
	defer cancel()
	told := why
	c := w.launch(ctx, func(ctx context.Context) error { return closer.Close(ctx, w.first, told) })
	var err error
	select {
	case err = <-c.result:
	case <-ctx.Done():
		if c.abandon() {
			err, why = ErrHandlerStuck, ReasonStuck
		} else {
			err = <-c.result
		}
	}
	if err != nil {
		w.r.hooks.Error(&Error{Origin: OriginHandler, Lease: w.first.Token, Err: fmt.Errorf("close: %w", err)})
	}
	return why
}
