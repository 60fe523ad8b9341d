package dispatch

import (
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/delivery"
	"github.com/millrace/changefeed/internal/processor/records"
)

// The notes of a lease about its changes
//
// The position says up to where all is done. Notes beside the position say which later changes are done, how often a
// change was tried, and which keys are held or set aside: internal/notes says when they count for another owner.

// Mark is the content of a write of the lease: so many changes for the first time, all that was confirmed by hand up to
// a mark, and whether a batch is named that may end the process.
type Mark struct {
	changes, marks int
	names          bool
	aside          []string // keys that are named as set aside
}

// Fill puts the position and the notes into a record.
func (d *Dispatcher) Fill(l *feed.Record) Mark {
	d.mu.Lock()
	defer d.mu.Unlock()
	l.Position, l.Attempts = d.engine.Position().(feed.Position), d.engine.Attempts()
	names, named := true, d.asides.stored
	if d.here != "" { // otherwise only the notes of the last owner are known
		at, n := l.Position.Token, d.engine.Notes()
		names = n.Suspect != nil
		done := notes.Done{
			At: at, Partition: d.here, Through: n.Through, Open: n.Open, Tried: n.Tried,
			Suspect: n.Suspect,
		}
		held := notes.Held{At: at, Partition: d.here}
		for _, h := range n.Held {
			held.Keys, held.Since = append(held.Keys, h.Key), append(held.Since, h.Since)
		}
		aside := notes.Aside{At: at, Partition: d.here, Recalls: n.Recalls}
		named = nil
		for _, k := range n.Aside {
			records.SetAsideFrom(l.Position, &k.AsideKey, k.From.(feed.Position))
			aside.Keys = append(aside.Keys, k.AsideKey)
			named = append(named, k.Key)
		}
		skips := notes.Skips{Partition: d.here, Changes: n.Skips}
		for name, text := range map[string]string{
			notes.DoneProperty: done.String(), notes.HeldProperty: held.String(),
			notes.AsideProperty: aside.String(), notes.SkipsProperty: skips.String(),
		} {
			if l.Properties[name] != text {
				records.SetProperty(l, name, text)
			}
		}
	}
	d.failures.fill(l, d.here != "", d.engine)
	outage, _ := d.in.Breaker.Open()
	if outage := notes.Outage(outage.Since); l.Properties[notes.OutageProperty] != outage {
		records.SetProperty(l, notes.OutageProperty, outage)
	}
	return Mark{d.engine.Counts().Unsaved, d.marks, names, named}
}

// Written notes that a write of the lease is stored.
func (d *Dispatcher) Written(m Mark) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stored = max(d.stored, m.marks)
	if d.asides = (asideNote{stored: m.aside}); d.asides.isOutdated(d) { // since the write was begun
		notify(d.news)
	}
	d.engine.Tell(delivery.LeaseStored{Changes: m.changes, NamesNone: !m.names}, time.Now())
	if m.changes > 0 {
		d.saved = time.Now()
	}
}

// BeginAt sets where reading begins.
func (d *Dispatcher) BeginAt(at feed.Position) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.engine.Begin(at)
}

// Freeze ends the moves of the position: the children of the lease begin there.
func (d *Dispatcher) Freeze() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.engine.Freeze()
}

// ReadFrom is where the next page begins.
func (d *Dispatcher) ReadFrom() feed.Position {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.engine.ReadFrom().(feed.Position)
}

// Settled is where the next page begins, if everything before is done and there is nothing else to remember.
func Settled(d *Dispatcher) (at feed.Position, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.engine.Share(d.in.Shared.Load()) // an idle lease has not heard that another kind of processor has left
	return d.engine.ReadFrom().(feed.Position), !d.running && !d.storing && d.engine.IsSettled()
}

// Pass moves on after a page without wanted changes, and writes the lease if that is due. Omitted changes count only
// with a read that finds nothing, because in a backlog there may be thousands of such pages.
func (d *Dispatcher) Pass(next feed.Position, omitted int, atEnd bool) (counted bool) {
	d.mu.Lock()
	d.engine.Tell(delivery.FeedPassed{Next: next, AtEnd: atEnd}, time.Now())
	counted = atEnd && d.engine.Omit(omitted)
	due := d.isDue()
	if d.asides.isOutdated(d) {
		notify(d.news)
	}
	d.mu.Unlock()
	if due {
		d.store(d.held.UntilDrained) // or the work ends
	}
	return counted
}
