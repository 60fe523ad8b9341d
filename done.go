package changefeed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/millrace/changefeed/internal/lanes"
	"github.com/millrace/changefeed/internal/notes"
)

// What a lease says of the changes in the lanes
//
// The position says up to where all is done. What is done after it and which keys are held are
// beside it in notes: internal/notes says what they are worth to another owner.

// suspicion is what is in the handler, if it has failed before.
type suspicion struct {
	notes.Suspect
	of *laneBatch
}

// errCrashed is why a change is parked that was alone in the handler each time the process ended.
var errCrashed = errors.New("the process ended while the handler was at it")

// note has a record say what is done and held, beside the position that it says.
func (d *dispatcher) note(l *Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.here == "" { // nothing is known yet but what the last owner has noted
		return
	}
	done := notes.Done{At: l.Position.Token, Partition: d.here}
	done.Through, done.Open = d.lanes.Done(notes.MaxOpen)
	if d.suspect.of != nil {
		done.Suspect = &d.suspect.Suspect
	}
	held := notes.Held{At: l.Position.Token, Keys: slices.Sorted(maps.Keys(d.held))}
	for name, text := range map[string]string{notes.DoneProperty: done.String(), notes.HeldProperty: held.String()} {
		if l.Properties[name] != text {
			l.setProperty(name, text)
		}
	}
}

// restore goes on from what the last owner has noted. Where several partitions have the range, that is for the
// children.
func (d *dispatcher) restore(ctx context.Context) (ending, error) {
	partitions, err := d.partitions(ctx)
	if err != nil {
		return ending{}, err
	}
	l := d.lease
	if partitions != nil && notes.Name(l.Range.Min, l.Range.Max, partitions) == notes.Unknown {
		return ending{why: ReasonSplit}, nil
	}
	done, err := notes.ReadDone(l.Properties[notes.DoneProperty], l.Position.Token, l.Range.Min, l.Range.Max, partitions)
	d.dropped(notes.DoneProperty, err)
	held, err := notes.ReadHeld(l.Properties[notes.HeldProperty], l.Position.Token)
	d.dropped(notes.HeldProperty, err)
	held.Keys = slices.DeleteFunc(held.Keys, func(key string) bool { return !d.mayHave(ctx, key) })
	d.mu.Lock()
	defer d.mu.Unlock()
	d.here = notes.Name(l.Range.Min, l.Range.Max, partitions)
	d.lanes.Restore(done.Through, done.Open)
	for _, key := range held.Keys {
		d.held[key] = true
		d.lanes.Hold(key)
	}
	d.beware(done.Suspect)
	return ending{}, nil
}

// mayHave reports whether a key may be in the lease's range: after a split only one of the
// children has it.
func (d *dispatcher) mayHave(ctx context.Context, key string) bool {
	locator, ok := d.r.source.(Locator)
	if !ok {
		return true
	}
	place, err := locator.Locate(ctx, PartitionKey(key))
	return err != nil || d.lease.Range.Holds(place)
}

// partitions lists the partitions if there is anything that depends on them.
func (d *dispatcher) partitions(ctx context.Context) (all []notes.Partition, err error) {
	if d.r.opts.Concurrency == 1 && !d.r.opts.hasPolicy() && d.lease.Properties[notes.DoneProperty] == "" {
		return nil, nil
	}
	partitions, err := d.r.source.Partitions(ctx)
	for _, p := range partitions {
		all = append(all, notes.Partition{ID: p.ID, Min: p.Range.Min, Max: p.Range.Max, Parents: p.Parents})
	}
	return all, err
}

// dropped reports a note that could not be read, or does not hold any more.
func (d *dispatcher) dropped(name string, err error) {
	switch {
	case err == nil:
	case errors.Is(err, notes.ErrMoved):
		d.raise(OriginLeaseStore, fmt.Errorf("%w: property %s is dropped", ErrMoved, name))
	default:
		d.raise(OriginLeaseStore, fmt.Errorf("%w: its property %s is dropped: %w", ErrBadLease, name, err))
	}
}

// beware has the lanes treat with care what may have ended the last owner: one batch at a time, and
// half as many changes as were in the handler then. A change that was alone there is parked.
func (d *dispatcher) beware(s *notes.Suspect) {
	o := d.r.opts
	if !o.hasPolicy() || d.lease.Attempts == 0 {
		return
	}
	d.former, d.wary = s, time.Now()
	d.lanes.Careful(math.MaxInt)
	switch {
	case s == nil || !s.Alone || o.MaxAttempts == 0 || s.Attempts < o.MaxAttempts:
	case s.Changes > 1:
		d.lanes.Careful(s.Changes / 2)
	case o.DeadLetters != nil:
		d.crashed = s
	}
}

// caution is how long there is care after an owner that has ended and said nothing of what was in
// its handler. Its successors come further each time, so what ends them is met within it at last.
const caution = 5 * time.Second

// relax ends the care when what was in the handler is done or, if that is not known, after a while.
func (d *dispatcher) relax() {
	first := d.lanes.First()
	switch {
	case !d.lanes.IsCareful():
	case d.former == nil && time.Since(d.wary) < caution:
	case d.former != nil && first != nil && first.LSN <= d.former.To:
	default:
		d.lanes.Trust()
	}
}

// crashes is how many owners have ended while a change was in the handler that a batch begins
// with, as far as that is known.
func (d *dispatcher) crashes(b *laneBatch) int {
	lsn := b.Changes[0].LSN
	switch s := d.former; {
	case s != nil && s.LSN <= lsn && lsn <= s.To:
		return s.Attempts
	case s == nil && d.lanes.IsOldest(b):
		return d.lease.Attempts
	}
	return 0
}

// suspectOf notes that a batch may end the process, if one has done that before or if it has failed. It reports
// whether the lease must be written first, which must not blame another one any more either.
func (d *dispatcher) suspectOf(b *laneBatch) (write bool) {
	careful := d.lanes.IsCareful()
	if b.Redriven || !d.r.opts.hasPolicy() || !careful && (b.Failures == 0 || !d.lanes.IsOldest(b)) {
		write, d.marked = d.marked && d.suspect.of == nil, false
		return write
	}
	attempts := b.Failures + 1
	if careful {
		attempts = max(b.Failures, d.crashes(b)) + 1
	}
	first, last := b.Changes[0], b.Changes[len(b.Changes)-1]
	d.suspect = suspicion{of: b, Suspect: notes.Suspect{
		LSN: first.LSN, Letter: d.letterID(first), To: last.LSN, Changes: len(b.Changes), Attempts: attempts,
		Alone: careful || d.r.opts.Concurrency == 1,
	}}
	d.keeper.move(func(p *leaseProgress) { p.Blame(attempts, b.Failing) })
	d.marked = true
	return true
}

// turn notes which pages are handled by now, and has the lease written when it is due.
func (d *dispatcher) turn(pages ...*lanes.Page[Change, *lanePage]) {
	due := false
	for _, p := range pages {
		if p.Of == nil || p.Of.finished || !p.Handled() {
			continue
		}
		p.Of.finished = true
		d.keeper.move(func(progress *leaseProgress) {
			progress.Finish(p.Of.on)
			due = due || progress.Due(time.Now())
		})
	}
	if last := d.confirmed(); last != nil { // by another owner, or by nobody because nothing was left to handle
		d.keeper.move(func(progress *leaseProgress) { progress.Checkpoint(last.Of.on) })
		d.unconfirmed = last.Of.on
		due = true
	}
	if o := d.r.opts; !o.Manual && o.CheckpointItems == 0 {
		d.saver.Changed()
	}
	if due {
		d.saver.Write()
	}
}

// blame notes how often the oldest batch has failed, and has that written.
func (d *dispatcher) blame(failed bool) {
	failures, failing := d.lanes.Oldest()
	changed := false
	d.keeper.move(func(p *leaseProgress) { changed = p.Blame(failures, failing) })
	if changed && failed {
		d.saver.Write()
	}
}

// storeGap is how often the lease is written for what is done after a gap.
const storeGap = time.Second

// store writes the lease, and notes the checkpoint that nobody waits for as confirmed by that.
func (d *dispatcher) store() error {
	d.mu.Lock()
	on := d.unconfirmed
	d.unconfirmed = nil
	d.mu.Unlock()
	err := d.keeper.store(d.untilDrained)
	if err == nil && on != nil {
		d.keeper.move(func(p *leaseProgress) { p.Confirm(on) })
	}
	return err
}

// checkpoint is [Batch.Checkpoint] of a batch that came from the lanes.
func (d *dispatcher) checkpoint(ctx context.Context, b *laneBatch) error {
	d.mu.Lock()
	d.lanes.Confirm(b)
	last := d.confirmed()
	d.mu.Unlock()
	if last == nil { // others before it are not done yet
		return d.keeper.store(ctx)
	}
	return d.keeper.checkpoint(ctx, last.Of.on)
}

// confirmed takes off the first pages all of whose changes are confirmed, and returns the last of them.
func (d *dispatcher) confirmed() (last *lanes.Page[Change, *lanePage]) {
	for len(d.pages) > 0 && d.pages[0].Confirmed() {
		last, d.pages = d.pages[0], d.pages[1:]
	}
	return last
}
