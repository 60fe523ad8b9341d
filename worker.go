package changefeed

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// worker works on one held lease: read, handle, checkpoint, in a loop.
type worker struct {
	r      *run
	keeper *keeper
	rng    *mathrand.Rand

	// lease ends, with the cause, when the lease is lost; halt ends with it, and when
	// the worker is told to stop. Reading and waiting end with halt, writing with lease.
	lease, halt context.Context
	lose, stop  context.CancelCauseFunc

	// last ends with the lease, and some time after halt: what is still to be stored
	// then is not waited for any longer.
	last context.Context

	first    Lease     // as acquired
	at       Position  // after the last batch delivered
	attempts int       // failures of the batch after at
	failing  time.Time // when that batch was first delivered here
	opened   bool
	idle     int       // reads in a row that found nothing
	ahead    time.Time // since when, or since the last report, reads have said that at is ahead of the feed

	most int // changes a page may have, after one took too long; 0 is no limit of ours
	full int // how many that one had

	checkpointed time.Time // when the last automatic checkpoint was stored
	done         int       // changes done since then

	delivered int64        // number of the last batch delivered
	saved     atomic.Int64 // number of the last one that is checkpointed, or will be without being asked
	asked     int64        // number of the last one that the keeper was asked to checkpoint by hand; the keeper's
}

// order tells a worker to stop. It is the cause that halt ends with.
type order struct {
	reason Reason
	to     owner // of a hand-over
	whole  bool  // after a split that a merge has undone
}

// Why a loop ends without an order. They are compared with ==, never with errors.Is:
// what a handler, a source or a store returns may wrap anything, and is only a failure.
var (
	errGone      = errors.New("the range is gone")
	errStuck     = errors.New("the handler is stuck")
	errRedundant = errors.New("other leases cover the range")
)

// Error makes an order the cause of a context's end.
func (o order) Error() string { return fmt.Sprintf("lease is to be %s", o.reason) }

func newWorker(r *run, l Lease, started time.Time) *worker {
	w := &worker{
		r: r, rng: r.random("worker " + l.Token), first: l, at: l.Position,
		attempts: l.Attempts, checkpointed: time.Now(),
	}
	w.lease, w.lose = context.WithCancelCause(r.base)
	w.halt, w.stop = context.WithCancelCause(w.lease)
	last, end := context.WithCancelCause(w.lease)
	context.AfterFunc(w.halt, func() {
		if pause(last, 2*r.opts.Drain) { // a batch in hand has half of it
			end(context.Cause(w.halt))
		}
	})
	w.last = last
	w.keeper = newKeeper(r, l, started, w.lose)
	return w
}

// order tells the worker to stop; the first order counts.
func (w *worker) order(o order) bool {
	if w.halt.Err() != nil {
		return false
	}
	w.stop(o)
	return true
}

// work works until the lease is to be given up, gives it up, and tells why.
func (w *worker) work() Reason {
	keeping, endKeeping := context.WithCancel(w.lease)
	var kept sync.WaitGroup
	kept.Go(func() { w.keeper.keep(keeping) })
	defer kept.Wait()
	defer endKeeping()
	defer w.lose(ErrLeaseLost)
	w.r.hooks.Acquired(w.first)
	why := w.close(w.reason(w.loop()))
	why = w.giveUp(why)
	w.r.hooks.Released(w.first, why)
	return why
}

// loop reads and delivers until the lease is to be given up, and returns why.
func (w *worker) loop() error {
	if err := w.begin(); err != nil {
		return err
	}
	for w.halt.Err() == nil {
		page, err := w.read()
		switch {
		case err != nil:
			return err
		case len(page.Changes) == 0:
			w.idle++
			w.lookAhead(page)
			err = w.rest(page.Next)
		default:
			w.idle, w.ahead = 0, time.Time{}
			err = w.deliver(page)
		}
		if err != nil {
			return err
		}
	}
	return context.Cause(w.halt)
}

// begin waits until the last owner must have stopped, and opens the handler.
func (w *worker) begin() error {
	switch {
	case w.halt.Err() != nil: // before anything of the handler is called
		return context.Cause(w.halt)
	case w.first.State == StateSplitting:
		return errGone
	case w.r.view.covers(w.first):
		return errRedundant
	}
	if w.at.Token == "" {
		if err := w.anchor(); err != nil {
			return err
		}
	}
	if !w.first.Fence.IsZero() {
		if !pause(w.halt, w.r.view.until(w.first.Fence)) {
			return context.Cause(w.halt)
		}
		if err := w.note(func(l *Lease) { l.Fence = time.Time{} }); err != nil {
			return err
		}
	}
	return w.open()
}

// reason tells why the loop ended.
func (w *worker) reason(err error) Reason {
	switch {
	case err == errStuck:
		return ReasonStuck
	case w.lease.Err() != nil:
		return ReasonLost
	case err == errGone:
		return ReasonSplit
	case err == errRedundant:
		return ReasonRedundant
	}
	return w.ordered().reason
}

// ordered is the order that ended halt.
func (w *worker) ordered() order {
	if o, ok := context.Cause(w.halt).(order); ok {
		return o
	}
	return order{reason: ReasonLost}
}

// giveUp lets go of the lease in the way that fits the reason.
func (w *worker) giveUp(why Reason) Reason {
	switch why {
	case ReasonSplit:
		return w.split()
	case ReasonRedundant:
		return w.yield()
	case ReasonStopped, ReasonGiven:
		return w.release(w.ordered())
	}
	return why // lost already; or stuck, and then only expiry keeps others from starting too early
}

// release writes the next owner, or none.
func (w *worker) release(o order) Reason {
	ctx, cancel := context.WithTimeout(w.r.base, w.r.opts.Drain)
	defer cancel()
	err := w.keeper.do(ctx, w.lease, true, func(l *Lease) {
		l.Owner, l.Epoch = o.to.instance, o.to.epoch
		if o.whole {
			l.State = StateLive
		}
	})
	if err != nil {
		w.r.report(w.lease, OriginLeaseStore, w.first.Token, fmt.Errorf("release: %w", err))
		return ReasonLost
	}
	return o.reason
}

// read reads the next page, again and again until it succeeds.
func (w *worker) read() (Page, error) {
	for failures := 1; ; failures++ {
		page, err := w.readOnce()
		if w.halt.Err() != nil { // even if the page came: it must not be handed out any more
			return page, context.Cause(w.halt)
		}
		switch {
		case err == nil:
			return page, nil
		case errors.Is(err, ErrGone) && !w.whole():
			return page, errGone
		}
		w.r.report(w.halt, OriginSource, w.first.Token, err)
		wait := w.r.backoff(w.rng, failures)
		if throttled := (*ThrottledError)(nil); errors.As(err, &throttled) {
			wait = max(wait, throttled.After)
		}
		if !pause(w.halt, wait) {
			return page, context.Cause(w.halt)
		}
	}
}

func (w *worker) readOnce() (Page, error) {
	ctx, cancel := context.WithTimeout(w.halt, readTimeout)
	defer cancel()
	o := ReadOptions{Mode: w.r.opts.Mode, MaxItems: w.r.opts.MaxItems}
	if w.most > 0 {
		o.MaxItems = w.most
	}
	return w.r.source.Read(ctx, w.first.Range, w.at, o)
}

// whole tells whether one partition holds the range: then a source that says it is gone
// does not know its own partitions yet, and there is nothing to split.
func (w *worker) whole() bool {
	ctx, cancel := context.WithTimeout(w.halt, readTimeout)
	defer cancel()
	partitions, err := w.r.source.Partitions(ctx)
	return err != nil || slices.ContainsFunc(partitions, func(p Partition) bool { return p.Range.Contains(w.first.Range) })
}

// readTimeout bounds one read, as the service's own processors do.
const readTimeout = 65 * time.Second

// lookAhead reports a position that stays ahead of its feed. A replica that lags behind looks the same for a while.
func (w *worker) lookAhead(page Page) {
	switch {
	case !page.Ahead:
		w.ahead = time.Time{}
	case w.ahead.IsZero():
		w.ahead = time.Now()
	case time.Since(w.ahead) >= w.r.opts.Renew:
		w.ahead = time.Now()
		w.r.report(w.halt, OriginSource, w.first.Token, aheadError(w.at, page.Head))
	}
}

func aheadError(at Position, end int64) error {
	return fmt.Errorf("%w: it is %s, and the feed ends at %d: was the container restored from a backup, or are these leases of another one? "+
		"Changes up to the position will not be handled: delete the leases of this unit and begin anew", ErrAhead, at.Token, end)
}

// rest notes that there was nothing up to next, and waits for more.
func (w *worker) rest(next Position) error {
	if next != w.at {
		w.at, w.attempts, w.failing = next, 0, time.Time{}
		if w.delivered == w.saved.Load() {
			if err := w.note(func(l *Lease) { l.Position, l.Attempts = next, 0 }); err != nil {
				return err
			}
		}
	}
	if w.done > 0 && w.due() { // CheckpointEvery has passed since
		if err := w.store(func(*Lease) {}); err != nil {
			return err
		}
	}
	waiter, pushed := w.r.source.(Waiter)
	if !pushed {
		pause(w.halt, min(w.r.opts.Poll, firstPoll<<min(w.idle-1, maxDoublings)))
		return nil
	}
	// Writes to other leases of the partition wake us too: do not read for each of them.
	if w.idle > 1 && !pause(w.halt, min(maxGather, time.Millisecond<<min(w.idle, maxDoublings))) {
		return nil
	}
	// A quiet range is read now and then all the same, so that its position moves on
	// with its container's and does not fall out of the retention.
	most := w.r.opts.Renew
	if every := w.r.opts.CheckpointEvery; w.done > 0 && every > 0 {
		most = min(most, every)
	}
	waiting, cancel := context.WithTimeout(w.halt, most)
	defer cancel()
	begun := time.Now()
	if err := waiter.Wait(waiting, w.first.Range, w.at); err != nil && waiting.Err() == nil {
		w.r.report(w.halt, OriginSource, w.first.Token, err)
		pause(w.halt, w.r.opts.Poll)
	}
	if time.Since(begun) > maxGather {
		w.idle = 0
	}
	return nil
}

const (
	firstPoll = 5 * time.Millisecond   // first pause after activity
	maxGather = 128 * time.Millisecond // longest pause before a range waits again that is woken for others all the time
)

// note has the keeper store an edit with its next write.
func (w *worker) note(edit func(*Lease)) error {
	return w.keeper.do(w.last, w.lease, false, edit)
}

// save has the keeper store an edit now.
func (w *worker) save(edit func(*Lease)) error {
	return w.keeper.do(w.last, w.lease, true, edit)
}

// store saves an automatic checkpoint.
func (w *worker) store(edit func(*Lease)) error {
	err := w.save(edit)
	if err == nil {
		w.done, w.checkpointed = 0, time.Now()
	}
	return err
}
