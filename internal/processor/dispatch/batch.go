package dispatch

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/fold"
	"github.com/millrace/changefeed/internal/processor/delivery"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/records"
)

// callHandler calls the handler with a batch.
func (d *Dispatcher) callHandler(b *delivery.Batch, note bool) {
	made := &handout{d: d, of: b}
	batch := d.newBatch(made)
	// The call counts, although the call may end the process. The answer may come when the lease is lost.
	if note && (d.store(d.held.UntilDrained) != nil || !d.held.Ending().None()) {
		d.recordOutcome(made, wasCut, nil, 0)
		return
	}
	how, took, err := d.delegate.handle(batch)
	d.recordOutcome(made, how, err, took)
}

// newBatch makes the batch for the handler.
func (d *Dispatcher) newBatch(made *handout) *feed.Batch {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := made.of
	of := b.Changes[0].Page.Of.(*readPage)
	batch := &feed.Batch{
		LeaseToken: d.held.Lease.Token, Range: d.held.Lease.Range, Instance: d.in.Me.Instance,
		Epoch:   records.TermOf(d.held.Lease),
		Attempt: b.Attempt(), Cut: b.IsCut(), Redriven: b.IsRedriven(), Changes: changesOf(b),
		Session: of.Session, Charge: of.Charge, Head: of.Head, Position: endOf(d.in.Source, b),
	}
	of.Charge = 0
	if d.in.Options.Manual {
		batch.OnCheckpoint(func(ctx context.Context) error { return d.checkpoint(ctx, b) })
		batch.OnAbandon(made.abandon)
	}
	return batch
}

// endOf is the position after the newest change of a batch; none if the change was a dead letter. For a part of a
// transaction, the position is before the transaction. If no position can be set within a page, the position is after
// the page.
func endOf(source feed.Source, b *delivery.Batch) feed.Position {
	if b.IsRedriven() {
		return feed.Position{}
	}
	newest := slices.MaxFunc(b.Changes, func(a, b *delivery.Change) int {
		return cmp.Compare(changeOf(a).LSN, changeOf(b).LSN)
	})
	page, lsn := newest.Page.Of.(*readPage), changeOf(newest).LSN
	switch {
	case b.IsCut():
		lsn--
	case lsn == page.Changes[len(page.Changes)-1].LSN:
		return page.Next
	}
	end, _ := records.PositionAfter(source, lsn, page.Next)
	return end
}

// recordOutcome tells the engine how a call came out.
func (d *Dispatcher) recordOutcome(made *handout, how outcome, err error, took time.Duration) {
	b := made.of
	var failure, never error
	d.mu.Lock()
	switch how {
	case hasSucceeded:
		d.held.Troubles.Remove(feed.OriginHandler)
		never = d.unconfirmed.count(d)
		d.engine.Tell(delivery.Succeeded{Batch: b, Quick: took < d.in.Options.HandlerTimeout/2}, time.Now())
	case hasFailed, wasLate:
		said := failureOf(err, len(b.Changes), how == wasLate)
		failure = newBatchError(changesOf(b), b.Attempt(), b.Failing(), said.Err) // before the engine divides the batch
		d.engine.Tell(delivery.Failed{Batch: b, Failure: said}, time.Now())
	default:
		d.stuck = d.stuck || how == isStuck
		d.engine.Tell(delivery.Cut{Batch: b}, time.Now())
	}
	stuck := d.stuck
	d.storing = d.in.Options.Concurrency == 1
	urgent := failure != nil && !d.engine.IsIdle() || how == hasSucceeded && d.engine.NamesReturned()
	made.giveUpIfAbandoned()
	d.mu.Unlock()
	if failure != nil {
		d.held.Report(d.held.UntilLost, feed.OriginHandler, failure)
		d.failures.learnPartition(d)
	}
	if never != nil {
		d.held.Raise(feed.OriginHandler, never)
	}
	if stuck {
		d.held.Stop(instance.Ending{Why: feed.ReasonStuck})
	}
	d.saveIfDue(urgent)
	d.wakeAll()
}

// newBatchError describes the failure of some changes.
func newBatchError(changes []feed.Change, attempt int, failing time.Time, err error) *feed.BatchError {
	e := &feed.BatchError{
		Attempt: attempt, Failing: failing, Count: len(changes), Err: err,
		First: changes[0].LSN, Last: changes[len(changes)-1].LSN, Key: changes[0].PartitionKey,
	}
	for _, c := range changes[:min(len(changes), fold.MaxNamed)] {
		e.IDs = append(e.IDs, c.ID)
	}
	return e
}
