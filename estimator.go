package changefeed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Lag is how far one lease is behind its range.
type Lag struct {
	Lease   Lease
	Pending int64     // changes that are not checkpointed yet
	Exact   bool      // Pending counts changes; else it is a distance in LSNs, which counts transactions
	Oldest  time.Time // commit time of the oldest pending change; zero when there is none
	Err     error     // why the lag is not known, or why the document is not a lease to work on
}

// Age is how long the oldest pending change has waited at the time of now, 0 when
// nothing is pending.
func (l Lag) Age(now time.Time) time.Duration {
	if l.Oldest.IsZero() {
		return 0
	}
	return max(0, now.Sub(l.Oldest))
}

// Estimate tells the lag of every lease of a unit, without taking part in it. It is
// right before the first checkpoint, because a lease knows where it begins, and after a
// split that no instance has seen yet, because it then asks all partitions of the range.
// What cannot be told of one lease is in its Err and does not spoil the others.
func Estimate(ctx context.Context, source Source, leases LeaseStore) ([]Lag, error) {
	v := newView(leases, source)
	if err := v.list(ctx, time.Now()); err != nil {
		return nil, err
	}
	good, bad := v.placed()
	origin, _ := v.origin()
	lags := make([]Lag, 0, len(good)+len(bad))
	for _, l := range slices.Concat(good, bad) {
		if l.unplaced() {
			l.Position.Start = origin
		}
		lag := Lag{Lease: l, Err: l.Err}
		for _, part := range owed(l, good) { // a lease of another dialect can be measured all the same
			lag.Err = cmp.Or(lag.Err, lag.measure(ctx, source, part))
		}
		lags = append(lags, lag)
	}
	return lags, context.Cause(ctx)
}

// owed is the part of a lease's range that it alone accounts for: what a lease that is
// splitting has been replaced in already counts for its children.
func owed(l Lease, all []Lease) []Range {
	switch {
	case l.Range.Empty():
		return nil
	case l.State == StateLive:
		return []Range{l.Range}
	}
	return holes(l.Range, slices.DeleteFunc(slices.Clone(all), func(o Lease) bool { return o.ID == l.ID }))
}

// measure adds the backlog of one range.
func (l *Lag) measure(ctx context.Context, source Source, r Range) error {
	if counter, ok := source.(Counter); ok {
		b, err := counter.Pending(ctx, r, l.Lease.Position, ReadOptions{Mode: l.Lease.Mode})
		l.Exact = err == nil
		l.count(b)
		return err
	}
	err := l.add(ctx, source, r)
	if !errors.Is(err, ErrGone) {
		return err
	}
	partitions, err := source.Partitions(ctx)
	if err != nil {
		return fmt.Errorf("list partitions: %w", err)
	}
	for _, part := range cutAt([]Range{r}, rangesOf(partitions)) {
		if err := l.add(ctx, source, part); err != nil {
			return err
		}
	}
	return nil
}

// add reads the first pending change of a range and adds its distance from the head.
func (l *Lag) add(ctx context.Context, source Source, r Range) error {
	page, err := source.Read(ctx, r, l.Lease.Position, ReadOptions{Mode: l.Lease.Mode, MaxItems: 1})
	if err != nil || len(page.Changes) == 0 {
		return err
	}
	first := page.Changes[0]
	l.count(Backlog{Items: max(int64(len(page.Changes)), page.Head-first.LSN+1), Oldest: first.Time})
	return nil
}

func (l *Lag) count(b Backlog) {
	l.Pending += b.Items
	if l.Oldest.IsZero() || !b.Oldest.IsZero() && b.Oldest.Before(l.Oldest) {
		l.Oldest = b.Oldest
	}
}
