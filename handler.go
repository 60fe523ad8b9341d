package changefeed

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/millrace/changefeed/internal/delivery"
)

// Handler is the delegate: the code that handles each batch of changes.
//
// Returning nil means that the batch is done. If Handle returns an error, whichever it is, or
// panics, its changes are delivered again after a pause, with a higher attempt number and with
// the lease still held: the batch as a whole or, as [Options.MaxAttempts] says, in parts. An
// error that is a [Failure] says which of the changes have failed, and one of [Poison] that
// trying again cannot help. What [Batch.Checkpoint] has confirmed does not come again, whatever
// Handle returns.
//
// The context ends with cause [ErrLeaseLost] when the lease is lost, with
// [ErrHandlerTimeout] past [Options.HandlerTimeout] and with [ErrStopped] when the
// processor stops or hands the lease over and [Options.Drain] has passed; a handler
// must then return soon, because somebody else may begin.
//
// Handle is called for one batch at a time on each lease or, with [Options.Concurrency], for
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
// that does not decode fails by itself, as [Poison] with a [DecodeError], and the function
// gets the others in batches without it. With [Options.Manual] such a document fails its batch.
func Items[T any](handle func(ctx context.Context, b *Batch, items []Item[T]) error) Handler {
	return HandlerFunc(func(ctx context.Context, b *Batch) error {
		items := make([]Item[T], len(b.Changes))
		said := &Failure{Items: map[int]error{}}
		for i, c := range b.Changes {
			if err := decode(c, &items[i]); err != nil {
				said.Items[i] = Poison(err)
				said.Err = cmp.Or(said.Err, said.Items[i])
			}
		}
		switch {
		case said.Err == nil:
			return handle(ctx, b, items)
		case b.IsManual():
			return said.Err
		}
		for i := range items {
			said.Items[i] = cmp.Or(said.Items[i], ErrUntried)
		}
		return said
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

// delegate is the handler of one lease. Its code is not ours to trust: it may panic, take
// too long, or ignore its context.
type delegate struct {
	*tenure
	opened bool
	calls  sync.WaitGroup // also those that are stuck: the range is not free before they return
}

// outcome is how a call of the handler came to its end. It stands beside the handler's
// error and is never read from it: a handler may return any error of this package.
type outcome uint8

const (
	hasSucceeded outcome = iota
	hasFailed            // by itself
	wasLate              // it failed after HandlerTimeout had ended its context
	wasCut               // it failed after its lease, or the drain time, had ended its context
	isStuck              // it has not returned
)

// handle has the handler handle a batch.
func (d *delegate) handle(b *Batch) (how outcome, took time.Duration, err error) {
	begun := time.Now()
	how, err = d.call(func(ctx context.Context) error { return d.r.handler.Handle(ctx, b) })
	took = time.Since(begun)
	d.r.hooks.BatchDone(BatchDone{Batch: b, Duration: took, Err: err})
	return how, took, err
}

// call runs a function of the handler. What is stuck goes on alone: nobody waits for it.
func (d *delegate) call(f func(context.Context) error) (outcome, error) {
	d.activity.Set(ActivityHandling)
	ctx, cancel := context.WithCancelCause(d.untilLost)
	defer cancel(nil)
	result := d.launch(ctx, f)
	if err, returned := d.patience(result, cancel); returned {
		return verdict(ctx, err)
	}
	grace := time.NewTimer(d.r.opts.Drain)
	defer grace.Stop()
	select {
	case err := <-result:
		return verdict(ctx, err)
	case <-grace.C:
	}
	err := fmt.Errorf("%w, %v after it ended: %w", ErrHandlerStuck, d.r.opts.Drain, context.Cause(ctx))
	d.raise(OriginHandler, err)
	return isStuck, err
}

// launch calls a function of the handler, or of the dead letters.
func (d *delegate) launch(ctx context.Context, f func(context.Context) error) <-chan error {
	result := make(chan error, 1)
	d.calls.Go(func() { protect(ctx, f, result) })
	return result
}

// patience waits for the handler as long as it may go on, and then ends its context.
func (d *delegate) patience(result <-chan error, cancel context.CancelCauseFunc) (err error, returned bool) {
	timeout := time.NewTimer(d.r.opts.HandlerTimeout)
	defer timeout.Stop()
	drain := make(<-chan time.Time)
	stopped := d.untilStopped.Done()
	for {
		select {
		case err := <-result:
			return err, true
		case <-d.untilLost.Done():
			return nil, false
		case <-stopped:
			stopped = nil
			drain = time.After(d.r.opts.Drain)
		case <-drain:
			cancel(ErrStopped)
			return nil, false
		case <-timeout.C:
			cancel(ErrHandlerTimeout)
			d.raise(OriginHandler, fmt.Errorf("%w after %v", ErrHandlerTimeout, d.r.opts.HandlerTimeout))
			return nil, false
		}
	}
}

// verdict separates a handler's own failure from one that we caused by ending its context.
func verdict(ctx context.Context, err error) (outcome, error) {
	switch cause := context.Cause(ctx); {
	case err == nil:
		return hasSucceeded, nil
	case cause == nil:
		return hasFailed, err
	case cause == ErrHandlerTimeout:
		return wasLate, fmt.Errorf("%w: %w", cause, err)
	default:
		return wasCut, fmt.Errorf("handler was cut short: %w: %w", cause, err)
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
	if err != nil {
		_ = err.Error() // it is the handler's code too, and may panic here rather than anywhere later
		if said, ok := errors.AsType[*Failure](err); ok {
			probeErrors(said)
		}
	}
}

// errExit is a handler that called runtime.Goexit, as testing's FailNow does.
var errExit = errors.New("handler ended its goroutine")

// open calls the handler's Open until it succeeds.
func (d *delegate) open() ending {
	opener, ok := d.r.handler.(Opener)
	if !ok {
		d.opened = true
		return ending{}
	}
	for failures := 1; d.ending().none(); failures++ {
		how, err := d.call(func(ctx context.Context) error { return opener.Open(ctx, d.lease.Lease()) })
		switch how {
		case hasSucceeded:
			d.opened = true
			return ending{}
		case isStuck:
			return ending{why: ReasonStuck}
		case wasCut:
			continue // with the work
		}
		d.report(d.untilLost, OriginHandler, fmt.Errorf("open: %w", err))
		d.backoff(failures, 0)
	}
	return d.ending()
}

// close calls the handler's Close, while the lease is still held if it can be. A Close
// that hangs holds the lease as a stuck handler does.
func (d *delegate) close(why Reason) Reason {
	closer, ok := d.r.handler.(Closer)
	if !ok || !d.opened || why == ReasonStuck {
		return why
	}
	ctx, cancel := context.WithTimeout(d.r.base, d.r.opts.Drain)
	defer cancel()
	given := why
	result := d.launch(ctx, func(ctx context.Context) error { return closer.Close(ctx, d.lease.Lease(), given) })
	var err error
	select {
	case err = <-result:
	case <-ctx.Done():
		err, why = ErrHandlerStuck, ReasonStuck
	}
	if err != nil {
		d.raise(OriginHandler, fmt.Errorf("close: %w", err))
	}
	return why
}

// failureOf is what a handler's error says of a batch of so many changes: of all of it, where it names none, or one that
// the batch does not have.
func failureOf(err error, changes int, late bool) delivery.Failure {
	f := delivery.Failure{Err: err, Hopeless: IsPoison(err), Late: late}
	said, ok := errors.AsType[*Failure](err)
	if !ok || said == nil {
		return f
	}
	f.After, f.Outage = said.After, said.Outage
	fits := 0 <= said.Done && said.Done < changes
	for i := range said.Items {
		fits = fits && 0 <= i && i < changes
	}
	last := &delivery.Part{Hopeless: true}
	for i := 0; fits && i < changes; i++ {
		cause, failed := said.Items[i]
		if !failed && (len(said.Items) > 0 || said.Done == 0 || i < said.Done) {
			continue
		}
		cause = cmp.Or(cause, err) // to name a change is to say that it failed, whatever the cause
		part := &delivery.Part{Err: cause, Hopeless: IsPoison(cause), Untried: cause == ErrUntried}
		// Poison takes no other change with it to the dead letters.
		if last.Hopeless || part.Hopeless || part.Untried != last.Untried {
			f.Left, last = append(f.Left, part), part
		}
		last.Changes = append(last.Changes, i)
	}
	return f
}

// probeErrors calls all code of the handler that is in the failure.
func probeErrors(f *Failure) {
	for _, err := range f.Items {
		if err != nil {
			_ = err.Error()
		}
	}
}
