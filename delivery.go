package changefeed

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/changefeed/internal/lanes"
)

// How a page is handed over
//
// The usual page goes to the handler as it was read: one batch, one call, and nothing
// to remember beside the position. Only keys in parallel, batches that wait for more,
// and what is left of a page that failed go through the lanes (see dispatch.go).

// deliverer hands the pages of one lease to the handler.
type deliverer struct {
	*tenure
	keeper     *keeper
	delegate   *delegate
	dispatcher *dispatcher
}

// deliver hands a page over, again and again until the handler is done with it, the page
// is to come in smaller parts, or the work ends.
func (d *deliverer) deliver(page Page) ending {
	if !d.dispatcher.passes(page) {
		return d.dispatcher.deliver(page)
	}
	defer d.dispatcher.passed()
	on := d.keeper.deliver(page)
	for d.ending().none() { // or it has ended since the page was asked for: another owner may have begun
		how, took, err := d.delegate.handle(d.batch(page, on))
		switch how {
		case hasSucceeded:
			d.finish(on, took)
			return ending{}
		case isStuck:
			return ending{why: ReasonStuck}
		case wasCut:
			continue // with the work
		}
		said := failureOf(err, len(page.Changes), false)
		if d.isDivided(said) {
			return d.dispatcher.unravel(page, on, err, how == wasLate)
		}
		d.fail(page, on, err, said.After)
		if how == wasLate && isDivisible(page) && d.ending().none() {
			d.shrink(on)
			return ending{}
		}
	}
	return d.ending()
}

// isDivided reports whether the handler, or a policy, says more of a page than that it has failed.
func (d *deliverer) isDivided(said lanes.Failure) bool {
	o := d.r.opts
	return o.hasPolicy() || !o.Manual && said.Left != nil
}

// batch is what the handler gets of a page.
func (d *deliverer) batch(page Page, on *delivery) *Batch {
	b := d.newBatch(page, d.keeper.soFar().Failures+1)
	b.Changes = slices.Clone(page.Changes) // the handler may do with its slice what it likes
	if d.r.opts.Manual {
		b.checkpoint = func(ctx context.Context) error { return d.keeper.checkpoint(ctx, on) }
	}
	return b
}

// newBatch is a batch of a page, but for its changes.
func (t *tenure) newBatch(page Page, attempt int) *Batch {
	return &Batch{
		LeaseToken: t.lease.Token, Range: t.lease.Range, Instance: t.r.me.Instance, Epoch: t.lease.term(),
		Attempt: attempt, Session: page.Session, Charge: page.Charge, Head: page.Head, Position: page.Next,
	}
}

// finish moves on after a page that is done, and stores that when it is due.
func (d *deliverer) finish(on *delivery, took time.Duration) {
	d.troubles.Remove(OriginHandler)
	due := false
	d.keeper.move(func(p *leaseProgress) {
		if took < d.r.opts.HandlerTimeout/2 {
			p.Grow(on)
		}
		p.Finish(on)
		due = p.Due(time.Now())
	})
	if due {
		d.activity.Set(ActivityStoring)
		d.keeper.store(d.untilDrained) // or the work ends
	}
}

// fail reports a failure, counts it in the lease, so that the count survives a crash, and
// pauses, at least as long as the handler asks for.
func (d *deliverer) fail(page Page, on *delivery, err error, after time.Duration) {
	changes := false
	d.keeper.move(func(p *leaseProgress) { changes = p.Fail(on) })
	p := d.keeper.soFar()
	d.report(d.untilLost, OriginHandler,
		newBatchError(page.Changes, p.Failures, p.Failing, err))
	if changes {
		d.keeper.store(d.untilDrained) // or the work ends
	}
	d.backoff(p.Failures, after)
}

// shrink has a page that took too long read again with half as many changes, unless the
// handler has checkpointed it.
func (d *deliverer) shrink(on *delivery) {
	d.keeper.move(func(p *leaseProgress) {
		if !p.Shrink(on) {
			p.Finish(on)
		}
	})
}

// isDivisible reports whether a page holds more than one transaction.
func isDivisible(page Page) bool {
	return page.Changes[0].LSN != page.Changes[len(page.Changes)-1].LSN
}
