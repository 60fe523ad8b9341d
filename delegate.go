package changefeed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/delivery"
)

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
func (d *delegate) handle(b *feed.Batch) (how outcome, took time.Duration, err error) {
	begun := time.Now()
	how, err = d.call(func(ctx context.Context) error { return d.r.handler.Handle(ctx, b) })
	took = time.Since(begun)
	d.r.hooks.BatchDone(feed.BatchDone{Batch: b, Duration: took, Err: err})
	return how, took, err
}

// call runs a function of the handler. What is stuck goes on alone: nobody waits for it.
func (d *delegate) call(f func(context.Context) error) (outcome, error) {
	d.activity.Set(feed.ActivityHandling)
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
	err := fmt.Errorf("%w, %v after it ended: %w", feed.ErrHandlerStuck, d.r.opts.Drain, context.Cause(ctx))
	d.raise(feed.OriginHandler, err)
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
			cancel(feed.ErrStopped)
			return nil, false
		case <-timeout.C:
			cancel(feed.ErrHandlerTimeout)
			d.raise(feed.OriginHandler, fmt.Errorf("%w after %v", feed.ErrHandlerTimeout, d.r.opts.HandlerTimeout))
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
	case cause == feed.ErrHandlerTimeout:
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
			err = &feed.PanicError{Value: v, Stack: debug.Stack()}
		}
		result <- err
	}()
	err = f(ctx)
	if err != nil {
		_ = err.Error() // it is the handler's code too, and may panic here rather than anywhere later
		if said, ok := errors.AsType[*feed.Failure](err); ok {
			probeErrors(said)
		}
	}
}

// errExit is a handler that called runtime.Goexit, as testing's FailNow does.
var errExit = errors.New("handler ended its goroutine")

// open calls the handler's Open until it succeeds.
func (d *delegate) open() ending {
	opener, ok := d.r.handler.(feed.Opener)
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
			return ending{why: feed.ReasonStuck}
		case wasCut:
			continue // with the work
		}
		d.report(d.untilLost, feed.OriginHandler, fmt.Errorf("open: %w", err))
		d.backoff(failures, 0)
	}
	return d.ending()
}

// close calls the handler's Close, while the lease is still held if it can be. A Close
// that hangs holds the lease as a stuck handler does.
func (d *delegate) close(why feed.Reason) feed.Reason {
	closer, ok := d.r.handler.(feed.Closer)
	if !ok || !d.opened || why == feed.ReasonStuck {
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
		err, why = feed.ErrHandlerStuck, feed.ReasonStuck
	}
	if err != nil {
		d.raise(feed.OriginHandler, fmt.Errorf("close: %w", err))
	}
	return why
}

// failureOf is what a handler's error says of a batch of so many changes: of all of it, where it names none, or one that
// the batch does not have.
func failureOf(err error, changes int, late bool) delivery.Failure {
	f := delivery.Failure{Err: err, Hopeless: feed.IsPoison(err), Late: late}
	said, ok := errors.AsType[*feed.Failure](err)
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
		part := &delivery.Part{Err: cause, Hopeless: feed.IsPoison(cause), Untried: cause == feed.ErrUntried}
		// Poison takes no other change with it to the dead letters.
		if last.Hopeless || part.Hopeless || part.Untried != last.Untried {
			f.Left, last = append(f.Left, part), part
		}
		last.Changes = append(last.Changes, i)
	}
	return f
}

// probeErrors calls all code of the handler that is in the failure.
func probeErrors(f *feed.Failure) {
	for _, err := range f.Items {
		if err != nil {
			_ = err.Error()
		}
	}
}
