package changefeed

import (
	"context"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/balance"
	"github.com/millrace/changefeed/internal/latest"
	"github.com/millrace/changefeed/internal/pause"
)

// tenure is the time for which this process holds a lease. Its contexts are named after
// what ends them.
type tenure struct {
	r        *run
	lease    feed.Record // as acquired
	rng      *mathrand.Rand
	activity latest.Value[feed.Activity]
	troubles latest.Set[feed.Origin, *feed.Error] // the last of each origin, until it succeeds

	// untilLost ends, with the cause, when the lease is lost or given up: nothing may be
	// written for it after that, and its handler must end.
	untilLost context.Context
	lose      context.CancelCauseFunc

	// untilStopped ends with untilLost, and when the worker is stopped: nothing new
	// is begun after that, but a batch in hand may go on and is still stored.
	untilStopped context.Context
	end          context.CancelFunc
	stopped      atomic.Pointer[ending] // why, if it was stopped

	// untilDrained ends with untilLost, and two drain times after the worker was
	// stopped: what is not stored by then is not waited for, because Run must return.
	untilDrained context.Context
}

// ending is why the work on a lease ends, and how the lease is then given up. The zero
// ending is none: the work goes on. It is no error, so that no error of a handler, a
// source or a store can be taken for one.
type ending struct {
	why    feed.Reason
	to     balance.Owner // ReasonGiven: who gets the lease
	undone bool          // ReasonSplit: a merge has undone the split, so the lease stays
}

func (e ending) none() bool { return e.why == "" }

// newTenure nests the contexts of the work, so that the loss of a lease ends all of it
// at once.
func (r *run) newTenure(l feed.Record) *tenure {
	t := &tenure{r: r, lease: l, rng: r.random("worker " + l.Token)}
	t.untilLost, t.lose = context.WithCancelCause(r.base)
	t.untilStopped, t.end = context.WithCancel(t.untilLost)
	drained, end := context.WithCancel(t.untilLost)
	context.AfterFunc(t.untilStopped, func() {
		if pause.For(drained, 2*r.opts.Drain) == nil { // a batch in hand has half of it
			end()
		}
	})
	t.untilDrained = drained
	return t
}

// stop has the worker end; the first ending counts.
func (t *tenure) stop(e ending) bool {
	first := t.stopped.CompareAndSwap(nil, &e)
	t.end()
	return first && t.untilLost.Err() == nil
}

// ending is why the work must end now, if it must.
func (t *tenure) ending() ending {
	if t.untilLost.Err() != nil {
		return ending{why: feed.ReasonLost}
	}
	if e := t.stopped.Load(); e != nil {
		return *e
	}
	return ending{}
}

// report raises a failure, unless it is only that ctx has ended.
func (t *tenure) report(ctx context.Context, from feed.Origin, err error) {
	if isFailure(ctx, err) {
		t.raise(from, err)
	}
}

// raise calls Hooks.Error, and has the error stand until something of its origin succeeds.
func (t *tenure) raise(from feed.Origin, err error) {
	raised := &feed.Error{Origin: from, Lease: t.lease.Token, Err: err}
	t.troubles.Put(from, raised)
	t.r.hooks.Error(raised)
}

// backoff pauses after so many failures in a row, at least for so long, while the work goes on.
func (t *tenure) backoff(failures int, least time.Duration) {
	t.activity.Set(feed.ActivityFailing)
	pause.For(t.untilStopped, max(t.r.backoff(t.rng, failures), least))
}

// worker works on one held lease: it reads, hands over and rests, and gives the lease up
// in the way that fits the reason.
type worker struct {
	*tenure
	keeper     *keeper
	delegate   *delegate
	dispatcher *dispatcher
	ahead      *readAhead // nil when nothing is read ahead

	idle    int       // reads in a row that found nothing
	omitted int       // changes that nobody wanted since the last one that somebody did, or since a read that found nothing
	tooFar  time.Time // since when, or since the last report, reads have said that the position is ahead of the feed
}

// newWorker makes the worker of a lease that is ours since a write begun at started.
func newWorker(r *run, l feed.Record, started time.Time) *worker {
	t := r.newTenure(l)
	w := &worker{tenure: t, keeper: newKeeper(t, started), delegate: &delegate{tenure: t}}
	w.dispatcher = newDispatcher(t, w.keeper, w.delegate)
	w.keeper.fill, w.keeper.saved = w.dispatcher.fill, w.dispatcher.written
	return w
}

// work works until the lease is to be given up, gives it up, and returns why.
func (w *worker) work() feed.Reason {
	var keeping sync.WaitGroup
	keeping.Go(w.keeper.keep)
	defer keeping.Wait()
	defer w.lose(feed.ErrLeaseLost)
	w.r.hooks.Acquired(w.lease.Lease())
	e := w.loop()
	if w.dispatcher.finish() {
		e = ending{why: feed.ReasonStuck}
	}
	if e.why != feed.ReasonStuck && w.untilLost.Err() != nil {
		e = ending{why: feed.ReasonLost}
	}
	w.activity.Set(feed.ActivityEnding)
	e.why = w.delegate.close(e.why)
	why := w.giveUp(e)
	w.r.hooks.Released(w.lease.Lease(), why)
	return why
}

// loop reads and delivers until the lease is to be given up.
func (w *worker) loop() ending {
	if e := w.begin(); !e.none() {
		return e
	}
	defer w.drop()
	w.dispatcher.start() // the last owner may have set keys aside, whose changes the feed does not have any more
	for {
		page, e := w.read()
		switch {
		case !e.none():
			return e
		case len(page.Changes) == 0:
			w.idle++
			w.lookAhead(page)
			if w.dispatcher.pass(page.Next, w.omitted, true) {
				w.omitted = 0
			}
			w.rest()
			continue
		}
		w.idle, w.tooFar = 0, time.Time{}
		// While the handler has this page, the next ones are read.
		w.prefetch(page)
		read := len(page.Changes)
		if page.Changes = w.wanted(page.Changes); len(page.Changes) == 0 {
			w.omitted += read
			w.dispatcher.pass(page.Next, 0, false)
			continue
		}
		w.omitted = 0
		if e := w.dispatcher.deliver(page); !e.none() {
			return e
		}
	}
}

// begin waits until the last owner must have stopped, and opens the handler.
func (w *worker) begin() ending {
	switch {
	case !w.ending().none(): // before anything of the handler is called
		return w.ending()
	case w.lease.State == feed.StateSplitting:
		return ending{why: feed.ReasonSplit}
	case w.r.view.covers(w.lease):
		return ending{why: feed.ReasonRedundant}
	}
	if w.lease.Position.Token == "" {
		if e := w.anchor(); !e.none() {
			return e
		}
	}
	if !w.lease.Fence.IsZero() {
		w.activity.Set(feed.ActivityFenced)
		if pause.For(w.untilStopped, w.lease.Fence.Sub(w.r.view.Now())) != nil {
			return w.ending()
		}
		if err := w.keeper.note(w.untilDrained, func(l *feed.Record) { l.Fence = time.Time{} }); err != nil {
			return w.ending()
		}
	}
	if e := w.restore(); !e.none() {
		return e
	}
	return w.delegate.open()
}

// restore has the lanes go on from what the last owner has done.
func (w *worker) restore() ending {
	for failures := 1; w.ending().none(); failures++ {
		ctx, cancel := context.WithTimeout(w.untilStopped, readTimeout)
		e, err := w.dispatcher.restore(ctx)
		cancel()
		if err == nil {
			return e
		}
		w.report(w.untilStopped, feed.OriginSource, err)
		w.backoff(failures, 0)
	}
	return w.ending()
}

// wanted is those of some changes that the handler wants.
func (t *tenure) wanted(changes []feed.Change) []feed.Change {
	if t.r.opts.Filter == nil {
		return changes
	}
	return slices.DeleteFunc(slices.Clone(changes), func(c feed.Change) bool { return !t.r.opts.Filter(&c) })
}

// giveUp lets go of the lease in the way that fits the reason.
func (w *worker) giveUp(e ending) feed.Reason {
	if e.why != feed.ReasonStuck && e.why != feed.ReasonLost {
		w.dispatcher.requests.handBack()
	}
	switch e.why {
	case feed.ReasonSplit:
		return w.split()
	case feed.ReasonRedundant:
		return w.yield()
	case feed.ReasonStopped, feed.ReasonGiven:
		return w.release(e)
	}
	return e.why // lost already; or stuck, and then only expiry keeps others from starting too early
}

// release writes the next owner, or none.
func (w *worker) release(e ending) feed.Reason {
	// Of the base, because the context of the processor has mostly ended by now.
	ctx, cancel := context.WithTimeout(w.r.base, w.r.opts.Drain)
	defer cancel()
	err := w.keeper.edit(ctx, func(l *feed.Record) {
		l.Owner, l.Epoch = e.to.Instance, e.to.Epoch
		if e.undone {
			l.State = feed.StateLive
		}
	})
	if err != nil {
		w.report(w.untilLost, feed.OriginLeaseStore, fmt.Errorf("release: %w", err))
		return feed.ReasonLost
	}
	return e.why
}
