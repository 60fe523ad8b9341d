package function

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/inhand"
	"github.com/millrace/changefeed/internal/pause"
)

// An Upserter writes the documents of an output binding.
type Upserter interface {
	Upsert(ctx context.Context, document json.RawMessage) error
}

// A Handler is a [feed.Handler] that invokes a function: each batch is an invocation.
type Handler struct {
	inHand

	host     *Host
	function *Function
	outputs  map[string]Upserter
	strange  sync.Once // an output that the function does not have

	mu     sync.Mutex
	failed map[string]*failedBatch // by the first change
}

// inHand is embedded, so that the field has a name of the package.
type inHand = inhand.Leases

// Handler makes the handler of a function of the app. outputs has an Upserter for each of the function's Outputs, by
// its name.
func (h *Host) Handler(f *Function, outputs map[string]Upserter) *Handler {
	return &Handler{host: h, function: f, outputs: outputs, failed: map[string]*failedBatch{}}
}

// Kill ends the program of the app at once, as [Host.Kill] does: the invocations of all functions have failed.
func (h *Handler) Kill() { h.host.Kill() }

// Handle invokes the function, writes its outputs, and returns what the answer says. If the program does not run,
// Handle waits for its next start. If the program cannot be started, or ends for a reason that is not in this batch, no
// change is at fault: the error is a [*feed.Failure] of an outage.
func (h *Handler) Handle(ctx context.Context, b *feed.Batch) error {
	inhand.Count(&h.inHand, b.LeaseToken, +1)
	defer inhand.Count(&h.inHand, b.LeaseToken, -1)
	err := h.invoke(ctx, b)
	if err != nil && errors.Is(context.Cause(ctx), feed.ErrStopped) {
		inhand.Interrupt(&h.inHand, b.LeaseToken)
	}
	return h.applyRetry(b, err)
}

// invoke does an invocation with all that belongs to it.
func (h *Handler) invoke(ctx context.Context, b *feed.Batch) error {
	id := newID()
	var got *answer
	err := h.host.call(ctx, b.LeaseToken, func(ctx context.Context, address string) error {
		req, err := h.newRequest(ctx, address, id, b)
		if err == nil {
			got, err = h.host.send(req)
		}
		return err
	})
	if err != nil {
		return err
	}
	result, err := got.parse()
	if err != nil {
		return fmt.Errorf("function %s: %w", h.function.Name, err)
	}
	for _, line := range result.Logs {
		h.host.opts.Log.Info(string(line), "origin", "function", "function", h.function.Name, "invocation", id)
	}
	h.nameStrangeOutputs(ctx, result)
	if err := h.writeOutputs(ctx, result); err != nil {
		return fmt.Errorf("function %s: %w", h.function.Name, err)
	}
	return nil
}

// errLate: the invocation has taken too long.
var errLate = errors.New("no answer in time")

// toldTime is how long the host waits for the end of a process that seems to have ended, and for an answer that it has
// given before.
const toldTime = time.Second

// call sends an invocation to the program, when it runs.
func (h *Host) call(ctx context.Context, lease string, send func(ctx context.Context, address string) error) error {
	for {
		l := h.currentLife()
		select {
		case <-l.ready:
		case <-ctx.Done():
			return untried(fmt.Errorf("wait for the program to start: %w", context.Cause(ctx)))
		}
		if l.address == "" { // err is set, and nobody changes it any more
			return untried(l.err)
		}
		leave, err := h.suspects.Enter(ctx, l.turn)
		if err != nil {
			return untried(fmt.Errorf("wait for the batch before: %w", err))
		}
		if h.beginCall(l) {
			defer leave()
			return h.callOnce(ctx, l, lease, send)
		}
		leave()
		select {
		case <-l.ended: // the next life is there
		case <-ctx.Done():
			return untried(context.Cause(ctx))
		}
	}
}

// callOnce sends an invocation to a program that runs, and finds out who is at fault if that fails.
func (h *Host) callOnce(
	ctx context.Context, l *life, lease string, send func(ctx context.Context, address string) error,
) error {
	timed, cancel := ctx, context.CancelFunc(func() {})
	if h.app.Timeout > 0 {
		timed, cancel = context.WithTimeoutCause(ctx, h.app.Timeout, errLate)
	}
	defer cancel()
	calling, end := context.WithCancelCause(timed)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer end(nil)
	watching.Go(func() {
		select {
		case <-calling.Done():
		case <-l.exited:
			if pause.For(calling, toldTime) == nil { // what the program has said before its end still counts
				end(errGone)
			}
		}
	})
	err := send(calling, l.address)
	isLate := errors.Is(context.Cause(timed), errLate)
	if err != nil && ctx.Err() == nil && !isLate {
		return h.blame(ctx, l, lease, err)
	}
	h.endCall(l, err == nil)
	h.suspects.Acquit(lease)
	switch {
	case err == nil:
		return nil
	case isLate:
		late := fmt.Errorf("no answer within %v (functionTimeout)", h.app.Timeout)
		h.condemn(l, fmt.Errorf("%w to an invocation of lease %s", late, lease))
		return late
	}
	return context.Cause(ctx)
}

// blame returns the error of an invocation without an answer: it may have ended the program.
func (h *Host) blame(ctx context.Context, l *life, lease string, err error) error {
	isRefused := errors.Is(err, syscall.ECONNREFUSED)
	hasEnded := pause.UntilClosed(l.exited, toldTime)
	h.endCall(l, false) // now, because the invocations in hand at the end of the process are counted
	if !hasEnded {
		if !isRefused {
			h.suspects.Acquit(lease)
			if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
				err = fmt.Errorf("the program has closed the connection without an answer: %w", err)
			}
			return err // the program runs
		}
		h.condemn(l, fmt.Errorf("it does not listen any more: %w", err))
	}
	select {
	case <-l.ended: // the exit code is known, and the process has no effect any more
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case isRefused, l.reason != nil, h.closed, errors.Is(l.err, feed.ErrStopped):
		return untried(l.err)
	case l.left <= 1:
		return l.err
	}
	h.suspects.Add(lease)
	return untried(fmt.Errorf("%w (with %d invocations in hand; they come again one at a time)", l.err, l.left))
}
