package dispatch

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/delivery"
	"github.com/millrace/changefeed/internal/processor/instance"
)

// delegate is the handler of a lease. A user's code cannot be trusted: the code may panic, take too long, or ignore its
// context.
type delegate struct {
	in     *instance.Instance
	held   *instance.Held
	opened bool
	calls  sync.WaitGroup // also those that are stuck: the range is not free before they return
	usual  atomic.Int64   // time of a call, in nanoseconds; see learnUsual
}

// outcome is how a call of the handler ended. The outcome stands beside the handler's error and is never read from that
// error: a handler may return any error of this package.
type outcome uint8

const (
	hasSucceeded outcome = iota
	hasFailed            // by itself
	wasLate              // failed after HandlerTimeout had ended the context
	wasCut               // failed after the end of the lease, or of the drain time, had ended the context
	isStuck              // not returned
)

// handle has the handler handle a batch.
func (d *delegate) handle(b *feed.Batch) (how outcome, took time.Duration, err error) {
	begun := time.Now()
	left := d.watchCall(b, begun)
	how, err = d.runInHandler(func(ctx context.Context) error { return d.in.Handler.Handle(ctx, b) })
	took = time.Since(begun)
	left(how, took)
	instance.CallHook(d.in, d.in.Hooks.BatchDone, feed.BatchDone{Batch: b, Duration: took, Err: err})
	return how, took, err
}

// runInHandler runs a function of the handler. A stuck function goes on alone: nobody waits for it.
func (d *delegate) runInHandler(f func(context.Context) error) (outcome, error) {
	d.held.Activity.BeginCall()
	defer d.held.Activity.EndCall()
	ctx, cancel := context.WithCancelCause(d.held.UntilLost)
	defer cancel(nil)
	result := d.launch(ctx, f)
	if err, returned := d.awaitResult(result, cancel); returned {
		return verdict(ctx, err)
	}
	grace := time.NewTimer(d.in.Options.Drain)
	defer grace.Stop()
	select {
	case err := <-result:
		return verdict(ctx, err)
	case <-grace.C:
	}
	err := fmt.Errorf("%w, %v after it ended: %w", feed.ErrHandlerStuck, d.in.Options.Drain, context.Cause(ctx))
	d.held.Raise(feed.OriginHandler, err)
	return isStuck, err
}

// launch calls a function of the handler, or of the dead letters.
func (d *delegate) launch(ctx context.Context, f func(context.Context) error) <-chan error {
	result := make(chan error, 1)
	d.calls.Go(func() { protect(ctx, f, result) })
	return result
}

// awaitResult waits for the handler as long as the handler may go on, and then ends the context.
func (d *delegate) awaitResult(result <-chan error, cancel context.CancelCauseFunc) (err error, returned bool) {
	timeout := time.NewTimer(d.in.Options.HandlerTimeout)
	defer timeout.Stop()
	drain := make(<-chan time.Time)
	stopped := d.held.UntilStopped.Done()
	for {
		select {
		case err := <-result:
			return err, true
		case <-d.held.UntilLost.Done():
			return nil, false
		case <-stopped:
			stopped = nil
			drain = time.After(d.in.Options.Drain)
		case <-drain:
			cancel(feed.ErrStopped)
			return nil, false
		case <-timeout.C:
			cancel(feed.ErrHandlerTimeout)
			d.held.Raise(feed.OriginHandler, fmt.Errorf("%w after %v", feed.ErrHandlerTimeout,
				d.in.Options.HandlerTimeout))
			return nil, false
		}
	}
}

// verdict separates a handler's own failure from a failure that we caused by ending the context.
func verdict(ctx context.Context, err error) (outcome, error) {
	switch cause := context.Cause(ctx); {
	case err == nil:
		return hasSucceeded, nil
	case cause == nil:
		return hasFailed, err
	case cause == feed.ErrHandlerTimeout:
		return wasLate, withCause(err, cause)
	default:
		return wasCut, fmt.Errorf("handler was cut short: %w", withCause(err, cause))
	}
}

// withCause puts the cause of the end of a handler's context before the handler's error, unless the error contains the
// cause already.
func withCause(err, cause error) error {
	if errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
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
		_ = err.Error() // the Error method is the handler's code too, and may panic here rather than later
		if said, ok := errors.AsType[*feed.Failure](err); ok {
			probeErrors(said)
		}
	}
}

// errExit is a handler that called runtime.Goexit, as testing's FailNow does.
var errExit = errors.New("handler ended its goroutine")

// open calls the handler's Open until it succeeds.
func (d *delegate) open() instance.Ending {
	opener, ok := d.in.Handler.(feed.Opener)
	if !ok {
		d.opened = true
		return instance.Ending{}
	}
	for failures := 1; d.held.Ending().None(); failures++ {
		how, err := d.runInHandler(func(ctx context.Context) error { return opener.Open(ctx, d.held.Lease.Lease()) })
		switch how {
		case hasSucceeded:
			d.opened = true
			return instance.Ending{}
		case isStuck:
			return instance.Ending{Why: feed.ReasonStuck}
		case wasCut:
			continue // with the work
		}
		d.held.Report(d.held.UntilLost, feed.OriginHandler, fmt.Errorf("open: %w", err))
		d.held.Backoff(failures, 0)
	}
	return d.held.Ending()
}

// close calls the handler's Close, if possible while the lease is still held. A Close that hangs holds the lease as a
// stuck handler does.
func (d *delegate) close(why feed.Reason) feed.Reason {
	closer, ok := d.in.Handler.(feed.Closer)
	if !ok || !d.opened || why == feed.ReasonStuck {
		return why
	}
	ctx, cancel := context.WithTimeout(d.in.Base, d.in.Options.Drain)
	defer cancel()
	given := why
	result := d.launch(ctx, func(ctx context.Context) error { return closer.Close(ctx, d.held.Lease.Lease(), given) })
	var err error
	select {
	case err = <-result:
	case <-ctx.Done():
		err, why = feed.ErrHandlerStuck, feed.ReasonStuck
	}
	if err != nil {
		d.held.Raise(feed.OriginHandler, fmt.Errorf("close: %w", err))
	}
	return why
}

// Open calls the handler's Open, if any, until it succeeds.
func (d *Dispatcher) Open() instance.Ending { return d.delegate.open() }

// Close calls the handler's Close, if any, and returns why the work ends. The failures of a lease that goes to another
// instance are no part of an outage here any more.
func (d *Dispatcher) Close(why feed.Reason) feed.Reason {
	why = d.delegate.close(why)
	if why != feed.ReasonStopped && why != feed.ReasonSplit {
		d.LeaveOutage()
	}
	return why
}

// LeaveOutage removes the lease from an outage here. After a split, the parts of this instance must have begun before
// that.
func (d *Dispatcher) LeaveOutage() { d.tellEngine(delivery.LeaseLeft{}) }

// Wait waits for the calls left behind because they are stuck.
func (d *Dispatcher) Wait() { d.delegate.calls.Wait() }
