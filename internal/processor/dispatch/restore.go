package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/delivery"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/records"
)

// Restore goes on from the notes of the last owner. If several partitions have the range, that is for the children.
func (d *Dispatcher) Restore(ctx context.Context, crashed bool) (instance.Ending, error) {
	reader := noteReader{d.in, d.held}
	partitions, err := reader.partitions(ctx)
	if err != nil {
		return instance.Ending{}, err
	}
	l := d.held.Lease
	if partitions != nil && notes.Name(l.Range.Min, l.Range.Max, partitions) == notes.Unknown {
		return instance.Ending{Why: feed.ReasonSplit}, nil
	}
	n, suspect, moved, err := reader.read(ctx, partitions)
	if err != nil {
		return instance.Ending{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if partitions != nil {
		d.here = notes.Name(l.Range.Min, l.Range.Max, partitions)
	}
	// After a merge the first change after the position may be another change.
	if n.First = d.engine.Attempts(); moved {
		n.First = 0
	}
	d.engine.Restore(n, time.Now())
	for _, k := range n.Aside {
		d.asides.stored = append(d.asides.stored, k.Key)
	}
	if d.phase == begun {
		d.phase = open
	}
	if crashed || suspect != nil {
		d.engine.Tell(delivery.OwnerCrashed{Suspect: suspect}, time.Now())
	}
	return instance.Ending{}, nil
}

// hadOutage reports whether the last owner of a lease saw an outage that had not ended.
func hadOutage(l feed.Record) bool {
	return !notes.ReadOutage(l.Properties[notes.OutageProperty]).IsZero()
}

// noteReader reads the notes of a lease's last owner.
type noteReader struct {
	in   *instance.Instance
	held *instance.Held
}

// read reads the notes, without the keys that are now in other leases. A suspect was called alone when the last owner
// ended. moved: the note of single changes is about another position or partition.
func (r noteReader) read(ctx context.Context, partitions []notes.Partition) (n delivery.Notes, suspect *notes.Suspect,
	moved bool, err error,
) {
	l := r.held.Lease
	lsn, _ := records.TokenLSN(r.in.Source, l.Position.Token)
	in := notes.Place{Position: l.Position.Token, LSN: lsn, Min: l.Range.Min, Max: l.Range.Max, Partitions: partitions}
	done, err := notes.ReadDone(l.Properties[notes.DoneProperty], in)
	r.reportDropped(notes.DoneProperty, err)
	moved = errors.Is(err, notes.ErrMoved)
	held, err := notes.ReadHeld(l.Properties[notes.HeldProperty], in)
	r.reportDropped(notes.HeldProperty, err)
	aside, err := notes.ReadAside(l.Properties[notes.AsideProperty], in)
	r.reportDropped(notes.AsideProperty, err)
	n = delivery.Notes{Through: done.Through, Open: done.Open, Tried: done.Tried}
	n.Outage = hadOutage(l)
	skips, err := notes.ReadSkips(l.Properties[notes.SkipsProperty], in)
	r.reportDropped(notes.SkipsProperty, err)
	for _, c := range skips.Changes {
		mine, err := r.mayHave(ctx, c.Key)
		if err != nil {
			return n, nil, moved, err
		}
		if mine {
			n.Skips = append(n.Skips, c)
		}
	}
	for i, key := range held.Keys {
		mine, err := r.mayHave(ctx, key)
		if err != nil {
			return n, nil, moved, err
		}
		if mine {
			n.Held = append(n.Held, notes.HeldKey{Key: key, Since: held.Since[i]})
		}
	}
	for _, k := range aside.Keys {
		mine, err := r.mayHave(ctx, k.Key)
		if err != nil {
			return n, nil, moved, err
		}
		if mine {
			n.Aside = append(n.Aside, delivery.Aside{
				AsideKey: k,
				From:     records.AsideFrom(l.Position, k),
			})
		}
	}
	for _, of := range aside.Recalls {
		mine, err := r.mayHave(ctx, of.Key)
		if err != nil {
			return n, nil, moved, err
		}
		if mine {
			n.Recalls = append(n.Recalls, of)
		}
	}
	return n, done.Suspect, moved, nil
}

// mayHave reports whether a key may be in the lease's range: after a split only one of the children has it.
func (r noteReader) mayHave(ctx context.Context, key string) (bool, error) {
	locator, ok := r.in.Source.(feed.Locator)
	if !ok {
		return true, nil
	}
	place, err := locator.Locate(ctx, feed.PartitionKey(key))
	if errors.Is(err, feed.ErrBadRequest) { // an invalid key, so no lease has it
		r.held.Raise(feed.OriginLeaseStore, fmt.Errorf("%w: it names the key %s: %w", feed.ErrBadLease, key, err))
		return false, nil
	}
	return err == nil && r.held.Lease.Range.Holds(place), err
}

// partitions lists the partitions if there is anything that depends on them.
func (r noteReader) partitions(ctx context.Context) (all []notes.Partition, err error) {
	p := r.held.Lease.Properties
	if r.in.Options.Concurrency == 1 && !r.in.Options.HasPolicy() && p[notes.DoneProperty] == "" &&
		p[notes.HeldProperty] == "" && p[notes.AsideProperty] == "" && p[notes.SkipsProperty] == "" {
		return nil, nil
	}
	return records.Noted(ctx, r.in.Source)
}

// reportDropped reports a note that could not be read, or does not hold any more.
func (r noteReader) reportDropped(name string, err error) {
	switch {
	case err == nil:
	case errors.Is(err, notes.ErrMoved):
		r.held.Raise(feed.OriginLeaseStore, fmt.Errorf("%w: property %s is dropped", feed.ErrMoved, name))
	default:
		r.held.Raise(feed.OriginLeaseStore, fmt.Errorf("%w: its property %s is dropped: %w", feed.ErrBadLease, name,
			err))
	}
}
