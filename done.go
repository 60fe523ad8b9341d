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

// note has a record say what is done and held, beside the position that it says.
func (d *dispatcher) note(l *Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.here == "" { // nothing is known yet but what the last owner has noted
		return
	}
	done := notes.Done{At: l.Position.Token, Partition: d.here}
	done.Through, done.Open = d.lanes.Ledger.Done(notes.MaxOpen)
	done.Suspect = d.caution.suspect
	held := d.heldNote()
	held.At = l.Position.Token
	for name, text := range map[string]string{notes.DoneProperty: done.String(), notes.HeldProperty: held.String()} {
		if l.Properties[name] != text {
			l.setProperty(name, text)
		}
	}
}

// heldNote is which keys are held, and since when.
func (d *dispatcher) heldNote() notes.Held {
	n := notes.Held{Partition: d.here, Keys: slices.Sorted(maps.Keys(d.held))}
	for _, key := range n.Keys {
		n.Since = append(n.Since, d.held[key])
	}
	return n
}

// hold has the changes of a key parked that come after an LSN, which is that of the first of it that has
// failed; 0 is unknown.
func (d *dispatcher) hold(key string, since int64) {
	if known, held := d.held[key]; !held || since < known {
		d.held[key] = since
	}
	d.lanes.Hold(key)
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
	held, err := notes.ReadHeld(l.Properties[notes.HeldProperty], l.Position.Token, l.Range.Min, l.Range.Max, partitions)
	d.dropped(notes.HeldProperty, err)
	mine := map[string]int64{}
	for i, key := range held.Keys {
		if d.mayHave(ctx, key) {
			mine[key] = held.Since[i]
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.here = notes.Name(l.Range.Min, l.Range.Max, partitions)
	d.lanes.Ledger.Restore(done.Through, done.Open)
	for key, since := range mine {
		d.hold(key, since)
	}
	d.caution.inherit(done.Suspect)
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
	if d.r.opts.Concurrency == 1 && !d.r.opts.hasPolicy() && d.lease.Properties[notes.DoneProperty] == "" && d.lease.Properties[notes.HeldProperty] == "" {
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

// caution is the care after owners whose process has ended, maybe by a change that was in their handler.
type caution struct { // guarded by dispatcher.mu
	*tenure
	keeper  *keeper
	lanes   *laneSet
	former  *notes.Suspect // what was in the handler when the last owner ended; nil if that is not known
	crashed *notes.Suspect // the same, if it is to be parked and is not yet in the lanes
	since   time.Time      // when the care began
	of      *laneBatch     // in the handler now, if it is suspected
	suspect *notes.Suspect // what the lease says of it
	marked  bool           // the lease may name a suspect
}

// errCrashed is why a change is parked that was alone in the handler each time the process ended.
var errCrashed = errors.New("the process ended while the handler was at it")

// inherit has the lanes treat with care what may have ended the last owner: one batch at a time, and
// half as many changes as were in the handler then. A change that was alone there is parked.
func (c *caution) inherit(s *notes.Suspect) {
	o := c.r.opts
	if !o.hasPolicy() || c.lease.Attempts == 0 {
		return
	}
	c.former, c.since = s, time.Now()
	c.lanes.Careful(math.MaxInt)
	switch {
	case s == nil || !s.Alone || o.MaxAttempts == 0 || s.Attempts < o.MaxAttempts:
	case s.Changes > 1:
		c.lanes.Careful(s.Changes / 2)
	case o.DeadLetters != nil:
		c.crashed = s
	}
}

// added looks for what may have ended the last owner among changes that have just come into the lanes.
func (c *caution) added() {
	if c.former != nil {
		c.lanes.Blame(c.former.LSN, c.former.Attempts)
	}
	if s := c.crashed; s != nil && c.lanes.ParkChange(func(l *laneChange) bool { return l.LSN == s.LSN && c.letterID(l) == s.Letter }, s.Attempts, errCrashed) {
		c.crashed = nil
	}
}

// blindCare is how long there is care after an owner that has ended and said nothing of what was in
// its handler. Its successors come further each time, so what ends them is met within it at last.
const blindCare = 5 * time.Second

// relax ends the care when what was in the handler is done or, if that is not known, after a while.
func (c *caution) relax() {
	first := c.lanes.Ledger.First()
	switch {
	case !c.lanes.IsCareful():
	case c.former == nil && time.Since(c.since) < blindCare:
	case c.former != nil && first != nil && first.LSN <= c.former.To:
	default:
		c.lanes.Careful(0)
	}
}

// crashes is how many owners have ended while a change was in the handler that a batch begins
// with, as far as that is known.
func (c *caution) crashes(b *laneBatch) int {
	lsn := b.Changes[0].LSN
	switch s := c.former; {
	case s != nil && s.LSN <= lsn && lsn <= s.To:
		return s.Attempts
	case s == nil && c.lanes.Ledger.IsOldest(b):
		return c.lease.Attempts
	}
	return 0
}

// handing notes that a batch may end the process, if one has done that before or if it has failed. It reports
// whether the lease must be written first, which must not blame another one any more either.
func (c *caution) handing(b *laneBatch) (write bool) {
	careful := c.lanes.IsCareful()
	if b.Redriven || !c.r.opts.hasPolicy() || !careful && (b.Failures == 0 || !c.lanes.Ledger.IsOldest(b)) {
		write, c.marked = c.marked && c.of == nil, false
		return write
	}
	attempts := b.Failures + 1
	if careful {
		attempts = max(b.Failures, c.crashes(b)) + 1
	}
	first, last := b.Changes[0], b.Changes[len(b.Changes)-1]
	c.of, c.suspect = b, &notes.Suspect{
		LSN: first.LSN, Letter: c.letterID(first), To: last.LSN, Changes: len(b.Changes), Attempts: attempts,
		Alone: careful || c.r.opts.Concurrency == 1,
	}
	c.keeper.move(func(p *leaseProgress) { p.Blame(attempts, b.Failing) })
	c.marked = true
	return true
}

// returned notes that a batch has not ended the process.
func (c *caution) returned(b *laneBatch) {
	if c.of == b {
		c.of, c.suspect = nil, nil
	}
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
	failures, failing := d.lanes.Ledger.Oldest()
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
	d.lanes.Ledger.Confirm(b)
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
