package instance

import (
	"context"
	mathrand "math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/processor/balance"
	"github.com/millrace/changefeed/internal/processor/latest"
)

// Held is a lease that this instance holds. The contexts are named after the event that ends them.
type Held struct {
	in       *Instance
	Lease    feed.Record // as acquired
	rng      *mathrand.Rand
	Activity Activities
	Troubles latest.Set[feed.Origin, *feed.Error] // the last error of each origin, until the same operation succeeds

	// UntilLost ends, with the cause, when the lease is lost or given up: from then on nothing may be written for the
	// lease, and the handler must end.
	UntilLost context.Context
	Lose      context.CancelCauseFunc

	// UntilStopped ends with UntilLost, and when the worker is stopped: from then on no new work begins, but a batch in
	// the handler may go on and is still stored.
	UntilStopped context.Context
	end          context.CancelFunc
	stopped      atomic.Pointer[Ending] // the reason, if it was stopped

	// UntilDrained ends with UntilLost, and two drain times after the worker was stopped: the worker does not wait
	// longer for a write, because Run must return.
	UntilDrained context.Context

	// Status describes the work, and Requests serves operators' requests for the lease. Both are set before the work
	// begins.
	Status   func() feed.LeaseStatus
	Requests Requests

	check  chan struct{} // another owner was seen
	seat   atomic.Pointer[Seat]
	called atomic.Pointer[call]
}

// Requests serves operators' requests for the keys of a held lease.
type Requests interface {
	// Accept begins to serve a request, unless it is served already.
	Accept(request feed.Record)
	// Withdraw ends the work on requests that are not in asked, by their tokens.
	Withdraw(asked map[string]bool)
}

// Hold nests the contexts of the work: the loss of a lease ends all of them at once.
func (in *Instance) Hold(l feed.Record) *Held {
	h := &Held{in: in, Lease: l, check: make(chan struct{}, 1), rng: in.Random("worker " + l.Token)}
	h.UntilLost, h.Lose = context.WithCancelCause(in.Base)
	h.UntilStopped, h.end = context.WithCancel(h.UntilLost)
	drained, end := context.WithCancel(h.UntilLost)
	context.AfterFunc(h.UntilStopped, func() {
		if pause.For(drained, 2*in.Options.Drain) == nil { // a batch in the handler has half of this time
			end()
		}
	})
	h.UntilDrained = drained
	h.awaitCall()
	return h
}

// Stop makes the worker end; the first ending counts.
func (h *Held) Stop(e Ending) bool {
	first := h.stopped.CompareAndSwap(nil, &e)
	h.end()
	return first && h.UntilLost.Err() == nil
}

// Ending returns why the work must end now, if it must.
func (h *Held) Ending() Ending {
	if h.UntilLost.Err() != nil {
		return Ending{Why: feed.ReasonLost}
	}
	if e := h.stopped.Load(); e != nil {
		return *e
	}
	return Ending{}
}

// Verify makes the keeper write the lease soon, because another owner was seen: only a conditional write proves the
// owner.
func (h *Held) Verify() {
	select {
	case h.check <- struct{}{}:
	default:
	}
}

// Checks receives a value when another owner was seen.
func (h *Held) Checks() <-chan struct{} { return h.check }

// Report raises an error, unless the end of ctx is the cause.
func (h *Held) Report(ctx context.Context, from feed.Origin, err error) {
	if isFailure(ctx, err) {
		h.Raise(from, err)
	}
}

// Raise calls Hooks.Error, and keeps the error until an operation of the same origin succeeds.
func (h *Held) Raise(from feed.Origin, err error) {
	raised := &feed.Error{Origin: from, Lease: h.Lease.Token, Err: err}
	h.Troubles.Put(from, raised)
	CallHook(h.in, h.in.Hooks.Error, raised)
}

// Backoff pauses after this many failures in a row, at least for least, unless the work stops.
func (h *Held) Backoff(failures int, least time.Duration) {
	h.Activity.WorkerDoes(feed.ActivityFailing)
	pause.For(h.UntilStopped, max(h.in.Backoff(h.rng, failures), least))
}

// Ending is why the work on a lease ends, and how the lease is then given up. With the zero Ending the work goes on. An
// Ending is no error, so that an error of a handler, a source or a store cannot be taken for an Ending.
type Ending struct {
	Why    feed.Reason
	To     balance.Owner // ReasonGiven: the next owner
	Undone bool          // ReasonSplit, ReasonJoined: other leases do not replace this lease after all
	Into   int           // ReasonSplit: the lease is cut into this many parts, though its partition has not split
	Asked  *feed.Record  // ReasonReset, ReasonSkipped, ReasonReplayed: the request, which is valid
	Seat   *Seat         // ReasonJoined: where the worker meets that of the neighbouring lease
}

// None reports whether the work goes on.
func (e Ending) None() bool { return e.Why == "" }
