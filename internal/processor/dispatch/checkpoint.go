package dispatch

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/processor/delivery"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/soon"
)

// storeGap is how often the lease is written for changes that are done after an unfinished change.
const storeGap = time.Second

// saver writes the lease, now or in the background.
type saver struct {
	*soon.Writer
	store    func(context.Context) error
	held     *instance.Held
	oneByOne bool // the batches of the lease
}

func newSaver(in *instance.Instance, held *instance.Held, store func(context.Context) error) *saver {
	s := &saver{store: store, held: held, oneByOne: in.Options.Concurrency == 1}
	s.Writer = soon.New(max(storeGap, in.Options.CheckpointEvery), in.Work.Go, s.writeNow)
	return s
}

// writeNow writes the lease. An error is that the work ends.
func (s *saver) writeNow() error {
	if s.oneByOne {
		s.held.Activity.BeginWrite()
		defer s.held.Activity.EndWrite()
	}
	return s.store(s.held.UntilDrained)
}

// saveIfDue begins a write of the lease if that is urgent or due. If the batches are handled one by one, the next batch
// is handled during the write, and the batch after that waits: so a crash has at most two batches redelivered. But an
// urgent write, which counts a failure, ends before the next batch.
func (d *Dispatcher) saveIfDue(urgent bool) {
	d.mu.Lock()
	due, first := d.isDue(), d.storing
	d.mu.Unlock()
	switch {
	case urgent && first:
		d.saver.writeNow() // or the work ends
	case due && first:
		d.saver.Wait()
		d.mu.Lock()
		due = d.isDue() // the write that has ended may have covered enough
		d.mu.Unlock()
		if due {
			d.saver.Write()
		}
	case urgent || due:
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
	switch {
	case b.IsConfirmed():
	case d.engine.IsFrozen():
		d.mu.Unlock()
		return fmt.Errorf("%w: its range was split", feed.ErrLeaseLost)
	case d.givenUp: // the batch may have a later change of the same key, or include the abandoned batch
		d.mu.Unlock()
		return fmt.Errorf("%w: batches of it were abandoned, so it is given up", feed.ErrLeaseLost)
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

// handout is a call of the handler with a batch.
type handout struct {
	d           *Dispatcher
	of          *delivery.Batch
	isAbandoned bool
}

// abandon is [feed.Batch.Abandon]. The changes are no longer in memory, so the next owner reads them again.
func (h *handout) abandon() {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	h.isAbandoned = true
	h.giveUpIfAbandoned()
}

// giveUpIfAbandoned gives the lease up if the batch is abandoned, and has handled changes.
func (h *handout) giveUpIfAbandoned() {
	if h.isAbandoned && slices.ContainsFunc(h.of.Changes, (*delivery.Change).IsUnconfirmed) {
		h.d.givenUp = true
		h.d.held.Stop(instance.Ending{Why: feed.ReasonUnconfirmed})
	}
}

// Pending returns how many changes are done and not stored, and when they must be stored at the latest; 0 is never.
func (d *Dispatcher) Pending() (changes int, every time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.engine.Counts().Unsaved, d.in.Options.CheckpointEvery
}
