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

// Held is a lease that this instance holds, for as long as it does. Its contexts are named after
// what ends them.
type Held struct {
	in       *Instance
	Lease    feed.Record // as acquired
	rng      *mathrand.Rand
	Activity Activities
	Troubles latest.Set[feed.Origin, *feed.Error] // the last of each origin, until it succeeds

	// UntilLost ends, with the cause, when the lease is lost or given up: nothing may be
	// written for it after that, and its handler must end.
	UntilLost context.Context
	Lose      context.CancelCauseFunc

	// UntilStopped ends with UntilLost, and when the worker is stopped: nothing new
	// is begun after that, but a batch in hand may go on and is still stored.
	UntilStopped context.Context
	end          context.CancelFunc
	stopped      atomic.Pointer[Ending] // why, if it was stopped

	// UntilDrained ends with UntilLost, and two drain times after the worker was
	// stopped: what is not stored by then is not waited for, because Run must return.
	UntilDrained context.Context

	// Status describes the work, and Requests serves what operators ask of the lease. Both are set before the work begins.
	Status   func() feed.LeaseStatus
	Requests Requests

	check chan struct{} // another owner was seen
}

// Requests serves what operators ask of the keys of a held lease.
type Requests interface {
	// Accept begins to serve a request, unless it is served already.
	Accept(request feed.Record)
	// Withdraw ends the work on requests that are not among those that are asked, by their tokens.
	Withdraw(asked map[string]bool)
}

// Hold nests the contexts of the work, so that the loss of a lease ends all of it
// at once.
func (in *Instance) Hold(l feed.Record) *Held {
	h := &Held{in: in, Lease: l, check: make(chan struct{}, 1), rng: in.Random("worker " + l.Token)}
	h.UntilLost, h.Lose = context.WithCancelCause(in.Base)
	h.UntilStopped, h.end = context.WithCancel(h.UntilLost)
	drained, end := context.WithCancel(h.UntilLost)
	context.AfterFunc(h.UntilStopped, func() {
		if pause.For(drained, 2*in.Options.Drain) == nil { // a batch in hand has half of it
			end()
		}
	})
	h.UntilDrained = drained
	return h
}

// Stop has the worker end; the first ending counts.
func (h *Held) Stop(e Ending) bool {
	first := h.stopped.CompareAndSwap(nil, &e)
	h.end()
	return first && h.UntilLost.Err() == nil
}

// Ending is why the work must end now, if it must.
func (h *Held) Ending() Ending {
	if h.UntilLost.Err() != nil {
		return Ending{Why: feed.ReasonLost}
	}
	if e := h.stopped.Load(); e != nil {
		return *e
	}
	return Ending{}
}

// Verify has the lease written soon, because another owner was seen: only a conditional write proves whose the lease is.
func (h *Held) Verify() {
	select {
	case h.check <- struct{}{}:
	default:
	}
}

// Checks has something when another owner was seen.
func (h *Held) Checks() <-chan struct{} { return h.check }

// Report raises a failure, unless it is only that ctx has ended.
func (h *Held) Report(ctx context.Context, from feed.Origin, err error) {
	if isFailure(ctx, err) {
		h.Raise(from, err)
	}
}

// Raise calls Hooks.Error, and has the error stand until something of its origin succeeds.
func (h *Held) Raise(from feed.Origin, err error) {
	raised := &feed.Error{Origin: from, Lease: h.Lease.Token, Err: err}
	h.Troubles.Put(from, raised)
	h.in.Hooks.Error(raised)
}

// Backoff pauses after so many failures in a row, at least for so long, while the work goes on.
func (h *Held) Backoff(failures int, least time.Duration) {
	h.Activity.WorkerDoes(feed.ActivityFailing)
	pause.For(h.UntilStopped, max(h.in.Backoff(h.rng, failures), least))
}

// Ending is why the work on a lease ends, and how the lease is then given up. The zero
// ending is none: the work goes on. It is no error, so that no error of a handler, a
// source or a store can be taken for one.
type Ending struct {
	Why    feed.Reason
	To     balance.Owner // ReasonGiven: who gets the lease
	Undone bool          // ReasonSplit: a merge has undone the split, so the lease stays
}

// None reports whether the work goes on.
func (e Ending) None() bool { return e.Why == "" }
