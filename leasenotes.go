package changefeed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/delivery"
	"github.com/millrace/changefeed/internal/notes"
)

// What a lease says of its changes
//
// The position says up to where all is done. What is done after the position, how often a change was tried, and which
// keys are held or set aside stands beside it in notes: internal/notes says what they are worth to another owner.

// mark is what a write of the lease stores: so many changes for the first time, all that was confirmed by hand up to a mark,
// and whether a batch is named that may end the process.
type mark struct {
	changes, marks int
	names          bool
}

// fill puts into a record what the lease is to say.
func (d *dispatcher) fill(l *feed.Record) mark {
	d.mu.Lock()
	defer d.mu.Unlock()
	l.Position, l.Attempts = d.engine.Position().(feed.Position), d.engine.Attempts()
	if d.here != "" { // otherwise nothing is known yet but what the last owner has noted
		at, n := l.Position.Token, d.engine.Notes()
		done := notes.Done{At: at, Partition: d.here, Through: n.Through, Open: n.Open, Tried: n.Tried, Suspect: n.Suspect}
		held := notes.Held{At: at, Partition: d.here}
		for _, h := range n.Held {
			held.Keys, held.Since = append(held.Keys, h.Key), append(held.Since, h.Since)
		}
		aside := notes.Aside{At: at, Partition: d.here, Recalls: n.Recalls}
		for _, k := range n.Aside {
			k.AsideKey.From = k.From.(feed.Position).Token
			aside.Keys = append(aside.Keys, k.AsideKey)
		}
		for name, text := range map[string]string{notes.DoneProperty: done.String(), notes.HeldProperty: held.String(), notes.AsideProperty: aside.String()} {
			if l.Properties[name] != text {
				setProperty(l, name, text)
			}
		}
	}
	outage, _ := d.r.breaker.Open()
	if outage := notes.Outage(outage.Since); l.Properties[notes.OutageProperty] != outage {
		setProperty(l, notes.OutageProperty, outage)
	}
	return mark{d.engine.Unsaved(), d.marks, d.here == "" || d.engine.NamesBatch()}
}

// written notes that a write of the lease is stored.
func (d *dispatcher) written(m mark) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stored = max(d.stored, m.marks)
	if !m.names {
		d.engine.NamedNone()
	}
	if m.changes > 0 {
		d.engine.Saved(m.changes)
		d.saved = time.Now()
	}
}

// beginAt sets where reading begins.
func (d *dispatcher) beginAt(at feed.Position) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.engine.Begin(at)
}

// freeze ends the moves of the position: the children of the lease begin there.
func (d *dispatcher) freeze() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.engine.Freeze()
}

// readFrom is where the next page begins.
func (d *dispatcher) readFrom() feed.Position {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.engine.ReadFrom().(feed.Position)
}

// pass moves on after a page of which nothing was wanted, and has the lease written if that is due. What was omitted
// counts only with a read that finds nothing, because in a backlog there may be thousands of such pages.
func (d *dispatcher) pass(next feed.Position, omitted int, atEnd bool) (counted bool) {
	d.mu.Lock()
	d.engine.Pass(next, time.Now())
	counted = atEnd && d.engine.Omit(omitted)
	due := d.isDue()
	d.mu.Unlock()
	if due {
		d.keeper.store(d.untilDrained) // or the work ends
	}
	return counted
}

// pending is what is done and not stored, and when it is to be stored at the latest; 0 is never.
func (d *dispatcher) pending() (changes int, every time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.engine.Unsaved(), d.r.opts.CheckpointEvery
}

// restore goes on from what the last owner has noted. If several partitions have the range, that is for the children.
func (d *dispatcher) restore(ctx context.Context) (ending, error) {
	partitions, err := d.partitions(ctx)
	if err != nil {
		return ending{}, err
	}
	l := d.lease
	if partitions != nil && notes.Name(l.Range.Min, l.Range.Max, partitions) == notes.Unknown {
		return ending{why: feed.ReasonSplit}, nil
	}
	in := notes.Place{Position: l.Position.Token, Min: l.Range.Min, Max: l.Range.Max, Partitions: partitions}
	done, err := notes.ReadDone(l.Properties[notes.DoneProperty], in)
	d.dropped(notes.DoneProperty, err)
	held, err := notes.ReadHeld(l.Properties[notes.HeldProperty], in)
	d.dropped(notes.HeldProperty, err)
	aside, err := notes.ReadAside(l.Properties[notes.AsideProperty], in)
	d.dropped(notes.AsideProperty, err)
	n := delivery.Notes{Through: done.Through, Open: done.Open, Tried: done.Tried}
	n.Outage = !notes.ReadOutage(l.Properties[notes.OutageProperty]).IsZero()
	for i, key := range held.Keys {
		mine, err := d.mayHave(ctx, key)
		if err != nil {
			return ending{}, err
		}
		if mine {
			n.Held = append(n.Held, notes.HeldKey{Key: key, Since: held.Since[i]})
		}
	}
	for _, k := range aside.Keys {
		mine, err := d.mayHave(ctx, k.Key)
		if err != nil {
			return ending{}, err
		}
		if mine {
			n.Aside = append(n.Aside, delivery.Aside{AsideKey: k, From: feed.Position{Token: k.From, Start: l.Position.Start}})
		}
	}
	for _, of := range aside.Recalls {
		mine, err := d.mayHave(ctx, of.Key)
		if err != nil {
			return ending{}, err
		}
		if mine {
			n.Recalls = append(n.Recalls, of)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if partitions != nil {
		d.here = notes.Name(l.Range.Min, l.Range.Max, partitions)
	}
	n.First = d.engine.Attempts()
	d.engine.Restore(n, time.Now())
	d.restored = true
	if d.crashed || done.Suspect != nil {
		d.engine.Inherit(done.Suspect, time.Now())
	}
	return ending{}, nil
}

// mayHave reports whether a key may be in the lease's range: after a split only one of the children has it.
func (t *tenure) mayHave(ctx context.Context, key string) (bool, error) {
	locator, ok := t.r.source.(feed.Locator)
	if !ok {
		return true, nil
	}
	place, err := locator.Locate(ctx, feed.PartitionKey(key))
	if errors.Is(err, feed.ErrBadRequest) { // it is none, so no lease has it
		t.raise(feed.OriginLeaseStore, fmt.Errorf("%w: it names the key %s: %w", feed.ErrBadLease, key, err))
		return false, nil
	}
	return err == nil && t.lease.Range.Holds(place), err
}

// partitions lists the partitions if there is anything that depends on them.
func (t *tenure) partitions(ctx context.Context) (all []notes.Partition, err error) {
	p := t.lease.Properties
	if t.r.opts.Concurrency == 1 && !t.r.opts.hasPolicy() && p[notes.DoneProperty] == "" && p[notes.HeldProperty] == "" && p[notes.AsideProperty] == "" {
		return nil, nil
	}
	return noted(ctx, t.r.source)
}

// noted lists the partitions of a source as notes name them.
func noted(ctx context.Context, source feed.Source) (all []notes.Partition, err error) {
	partitions, err := source.Partitions(ctx)
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
		d.raise(feed.OriginLeaseStore, fmt.Errorf("%w: property %s is dropped", feed.ErrMoved, name))
	default:
		d.raise(feed.OriginLeaseStore, fmt.Errorf("%w: its property %s is dropped: %w", feed.ErrBadLease, name, err))
	}
}
