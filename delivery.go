package changefeed

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// How a page is handed over
//
// A page is delivered until the handler is done with it. One that took longer than
// Options.HandlerTimeout is read again with half as many changes at most, down to one
// transaction: only the source knows the position after a part of a page. The limit
// grows again as soon as a page of that size takes less than half of the time.

// delivery is one page on its way through the handler.
type delivery struct {
	number int64
	next   Position
	void   atomic.Bool // it comes again in smaller parts; set by the keeper
}

// deliver hands a page to the handler until it is done, and checkpoints it.
func (w *worker) deliver(page Page) error {
	w.delivered++
	d := &delivery{number: w.delivered, next: page.Next}
	if w.failing.IsZero() {
		w.failing = time.Now()
	}
	for {
		b := w.batch(page, d)
		begun := time.Now()
		how, err := w.call(func(ctx context.Context) error { return w.r.handler.Handle(ctx, b) })
		took := time.Since(begun)
		w.r.hooks.BatchDone(BatchDone{Batch: b, Duration: took, Err: err})
		switch {
		case err == nil:
			w.grow(len(page.Changes), took)
			return w.finish(page)
		case how == isStuck:
			return errStuck
		case how == wasCut:
			return context.Cause(w.halt)
		}
		w.attempts++
		w.r.report(w.lease, OriginHandler, w.first.Token,
			fmt.Errorf("attempt %d, without progress for %v: %w", b.Attempt, time.Since(w.failing).Round(time.Millisecond), err))
		if err := w.fail(); err != nil {
			return err
		}
		if !pause(w.halt, w.r.backoff(w.rng, w.attempts)) {
			return context.Cause(w.halt)
		}
		if how == wasLate && isDivisible(page) {
			return w.shrink(page, d)
		}
	}
}

func (w *worker) batch(page Page, d *delivery) *Batch {
	b := &Batch{
		LeaseToken: w.first.Token, Range: w.first.Range, Instance: w.r.me.instance,
		Attempt: w.attempts + 1, Session: page.Session, Charge: page.Charge,
		Changes: slices.Clone(page.Changes), // the handler may do with its slice what it likes
	}
	if w.r.opts.Manual {
		b.checkpoint = func(ctx context.Context) error { return w.checkpoint(ctx, d) }
	}
	return b
}

// isDivisible tells a page that holds more than one transaction.
func isDivisible(page Page) bool {
	return page.Changes[0].LSN != page.Changes[len(page.Changes)-1].LSN
}

// shrink has a page that took too long read again with half as many changes. A batch
// that the handler has checkpointed by hand meanwhile is done; if not, it can be no
// more, because its position lies after that of the parts.
func (w *worker) shrink(page Page, d *delivery) error {
	err := w.note(func(*Lease) { d.void.Store(w.asked < d.number) })
	if err != nil {
		return err
	}
	if !d.void.Load() {
		return w.finish(page)
	}
	if n := len(page.Changes); w.most == 0 {
		w.most, w.full = n/2, n
	} else {
		w.most = n / 2
	}
	w.delivered--
	return nil
}

// grow raises the limit that shrink has set, when twice as many changes would not have
// taken too long.
func (w *worker) grow(changes int, took time.Duration) {
	if w.most == 0 || changes < w.most || took >= w.r.opts.HandlerTimeout/2 {
		return
	}
	if w.most *= 2; w.most >= w.full {
		w.most = 0
	}
}

// checkpoint is [Batch.Checkpoint] of a delivery.
func (w *worker) checkpoint(ctx context.Context, d *delivery) error {
	if d.number <= w.saved.Load() && !d.void.Load() {
		return nil
	}
	split := false
	err := w.keeper.do(ctx, w.lease, true, func(l *Lease) {
		if split = l.State == StateSplitting; split {
			return
		}
		if d.number > w.asked && !d.void.Load() {
			l.Position, l.Attempts, w.asked = d.next, 0, d.number
		}
	})
	if err == nil && split { // the leases of the parts begin, or have begun, where it was
		return fmt.Errorf("%w: its range was split", ErrLeaseLost)
	}
	if err == nil && d.void.Load() {
		return fmt.Errorf("%w: this batch comes again in smaller parts", ErrHandlerTimeout)
	}
	for saved := w.saved.Load(); err == nil && saved < d.number && !w.saved.CompareAndSwap(saved, d.number); {
		saved = w.saved.Load()
	}
	return err
}

// fail counts a failed attempt in the lease, if the lease is at this batch. A handler may
// have asked for its checkpoint before it failed: then the next write has a position behind it.
func (w *worker) fail() error {
	if w.delivered-1 != w.saved.Load() {
		return nil
	}
	attempts, number := w.attempts, w.delivered
	return w.save(func(l *Lease) {
		if w.asked < number {
			l.Attempts = attempts
		}
	})
}

// finish moves on after a page that is done.
func (w *worker) finish(page Page) error {
	w.at, w.attempts, w.failing = page.Next, 0, time.Time{}
	if w.r.opts.Manual {
		return nil
	}
	w.saved.Store(w.delivered)
	w.done += len(page.Changes)
	edit := func(l *Lease) { l.Position, l.Attempts = page.Next, 0 }
	if !w.due() {
		return w.note(edit)
	}
	return w.store(edit)
}

// due tells whether an automatic checkpoint must be stored now.
func (w *worker) due() bool {
	items, every := w.r.opts.CheckpointItems, w.r.opts.CheckpointEvery
	switch {
	case items == 0 && every == 0:
		return true
	case items > 0 && w.done >= items:
		return true
	}
	return every > 0 && time.Since(w.checkpointed) >= every
}
