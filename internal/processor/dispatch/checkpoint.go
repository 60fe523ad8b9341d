package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/delivery"
)

// storeGap is how often the lease is written for changes that are done after an unfinished change.
const storeGap = time.Second

// saveIfDue has the lease written if that is urgent or due. If one batch is in hand at a time, the next batch may be
// handled during the write, and the batch after that waits for the write: so a crash has at most two batches redelivered.
// An urgent write ends before the next batch.
func (d *Dispatcher) saveIfDue(urgent bool) {
	d.mu.Lock()
	due, first := d.isDue() || urgent, d.storing
	d.mu.Unlock()
	switch {
	case urgent && first:
		d.save() // or the work ends
	case due && first:
		d.saver.Wait()
		d.writeIfDue()
	case due:
		d.saver.Write()
	case !d.in.Options.Manual && d.in.Options.CheckpointItems == 0:
		d.saver.Changed()
	}
	d.mu.Lock()
	d.storing = false
	d.mu.Unlock()
}

// writeIfDue has the lease written in the background if that is still due.
func (d *Dispatcher) writeIfDue() {
	d.mu.Lock()
	due := d.isDue()
	d.mu.Unlock()
	if due {
		d.saver.Write()
	}
}

// save writes the lease. An error is that the work ends.
func (d *Dispatcher) save() error {
	if d.in.Options.Concurrency == 1 {
		d.held.Activity.BeginWrite()
		defer d.held.Activity.EndWrite()
	}
	return d.store(d.held.UntilDrained)
}

// isDue reports whether the lease is to be written now for the changes that are done.
func (d *Dispatcher) isDue() bool {
	o, unsaved := &d.in.Options, d.engine.Counts().Unsaved
	switch {
	case unsaved == 0:
		return false
	case o.CheckpointItems == 0 && o.CheckpointEvery == 0:
		return true
	case o.CheckpointItems > 0 && unsaved >= o.CheckpointItems:
		return true
	}
	return o.CheckpointEvery > 0 && time.Since(d.saved) >= o.CheckpointEvery
}

// checkpoint is [feed.Batch.Checkpoint].
func (d *Dispatcher) checkpoint(ctx context.Context, b *delivery.Batch) error {
	d.mu.Lock()
	confirmed := b.IsConfirmed()
	if d.engine.IsFrozen() && !confirmed {
		d.mu.Unlock()
		return fmt.Errorf("%w: its range was split", feed.ErrLeaseLost)
	}
	fresh, valid := d.engine.Confirm(b, time.Now())
	if fresh {
		d.marks++
	}
	isStored := d.stored >= d.marks
	d.mu.Unlock()
	d.wakeAll()
	switch {
	case !valid:
		return fmt.Errorf("%w: this batch comes again in smaller parts", feed.ErrHandlerTimeout)
	case isStored:
		return nil
	}
	return d.store(ctx)
}

// Pending returns how many changes are done and not stored, and when they must be stored at the latest; 0 is never.
func (d *Dispatcher) Pending() (changes int, every time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.engine.Counts().Unsaved, d.in.Options.CheckpointEvery
}
