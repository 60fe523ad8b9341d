package changefeed

import (
	"context"
	mathrand "math/rand/v2"
	"sync/atomic"
)

// tenure is the time for which this process holds a lease. Its contexts are named after
// what ends them.
type tenure struct {
	r     *run
	lease Lease // as acquired
	rng   *mathrand.Rand

	// untilLost ends, with the cause, when the lease is lost or given up: nothing may be
	// written for it after that, and its handler must end.
	untilLost context.Context
	lose      context.CancelCauseFunc

	// untilStopped ends with untilLost, and when the worker is told to stop: nothing new
	// is begun after that, but a batch in hand may go on and is still stored.
	untilStopped context.Context
	end          context.CancelFunc
	stopped      atomic.Pointer[ending] // why, if it was told

	// untilDrained ends with untilLost, and two drain times after the worker was told to
	// stop: what is not stored by then is not waited for, because Run must return.
	untilDrained context.Context
}

// ending is why the work on a lease ends, and how the lease is then given up. The zero
// ending is none: the work goes on. It is no error, so that no error of a handler, a
// source or a store can be taken for one.
type ending struct {
	why    Reason
	to     owner // ReasonGiven: who gets the lease
	undone bool  // ReasonSplit: a merge has undone the split, so the lease stays
}

func (e ending) none() bool { return e.why == "" }

func (r *run) newTenure(l Lease) *tenure {
	t := &tenure{r: r, lease: l, rng: r.random("worker " + l.Token)}
	t.untilLost, t.lose = context.WithCancelCause(r.base)
	t.untilStopped, t.end = context.WithCancel(t.untilLost)
	drained, end := context.WithCancel(t.untilLost)
	context.AfterFunc(t.untilStopped, func() {
		if pause(drained, 2*r.opts.Drain) { // a batch in hand has half of it
			end()
		}
	})
	t.untilDrained = drained
	return t
}

// stop tells the worker to end; who says so first counts.
func (t *tenure) stop(e ending) bool {
	first := t.stopped.CompareAndSwap(nil, &e)
	t.end()
	return first && t.untilLost.Err() == nil
}

// ending is why the work must end now, if it must.
func (t *tenure) ending() ending {
	if t.untilLost.Err() != nil {
		return ending{why: ReasonLost}
	}
	if told := t.stopped.Load(); told != nil {
		return *told
	}
	return ending{}
}

// report tells Hooks.Error of a failure, unless it is only that ctx has ended.
func (t *tenure) report(ctx context.Context, from Origin, err error) {
	t.r.report(ctx, from, t.lease.Token, err)
}

// backoff pauses after so many failures in a row, for as long as the work goes on.
func (t *tenure) backoff(failures int) {
	pause(t.untilStopped, t.r.backoff(t.rng, failures))
}
