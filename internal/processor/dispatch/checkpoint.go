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

// saveIfDue has the lease written if that is urgent or due: before the next batch if one is in hand at a time, and
// otherwise in the background.
func (d *Dispatcher) saveIfDue(urgent bool) {
	d.mu.Lock()
	due, first := d.isDue() || urgent, d.storing
	d.mu.Unlock()
	switch {
	case due && first:
		d.held.Activity.DispatcherDoes(feed.ActivityStoring)
		d.store(d.held.UntilDrained) // or the work ends
		d.held.Activity.DispatcherDoes("")
	case due:
		d.saver.Write()
	case !d.in.Options.Manual && d.in.Options.CheckpointItems == 0:
		d.saver.Changed()
	}
	d.mu.Lock()
	d.storing = false
	d.mu.Unlock()
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
