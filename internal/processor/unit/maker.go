package unit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/keyspace"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/parallel"
	"github.com/millrace/changefeed/internal/processor/records"
)

// maker makes leases while this instance holds the lock.
type maker struct {
	unit  *Unit
	in    *instance.Instance
	hold  *hold
	start feed.Start    // where the leases begin
	trust time.Duration // how long earlier owners of the ranges may trust their leases; 0 if there were none
}

// coverHoles creates leases for holes in the key space, and ends at the first failure.
func (m maker) coverHoles(ctx context.Context, holes []feed.Range) error {
	partitions, err := m.in.Source.Partitions(ctx)
	if err != nil {
		return err
	}
	parts := keyspace.CutAt(holes, m.unit.leaseRanges(partitions))
	creating, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	parallel.Each(creating, len(parts), atOnce, func(i int) {
		if err := m.insistOn(creating, parts[i]); err != nil {
			fail(fmt.Errorf("create lease %s: %w", parts[i], err))
		}
	})
	return context.Cause(creating)
}

// insistOn creates a lease at the pace that the store allows, retries a few times, and returns the last error.
func (m maker) insistOn(ctx context.Context, part feed.Range) error {
	rng := m.in.Random("create " + part.String())
	for failures := 1; ; failures++ {
		err := m.in.Paced(ctx, rng, part.String(), func() error {
			asking, cancel := context.WithTimeout(ctx, createTime)
			defer cancel()
			return m.createLease(asking, part)
		})
		gone := err == nil || hopeless(err) || failures == createAttempts
		if gone || pause.For(ctx, m.in.Backoff(rng, failures)) != nil {
			return err
		}
	}
}

// createAttempts is the number of attempts that take about ten seconds with the default pauses.
const createAttempts = 7

// createLease creates a free lease whose position is fixed before the first read, so that every change from now on is
// delivered, even if there is no checkpoint yet.
func (m maker) createLease(ctx context.Context, part feed.Range) error {
	at, err := m.unit.resolveStart(ctx, part, m.start)
	if err != nil {
		return err
	}
	lease := feed.Record{
		Kind: feed.KindLease, Version: 1, Token: part.String(), Range: part,
		Position: at, Mode: m.in.Options.Mode, Timestamp: instance.Timestamp(),
		Properties: map[string]string{notes.GenerationProperty: notes.PlainNumber(0)},
	}
	records.SetDue(&lease, m.hold.endOfLock())
	records.SetProperty(&lease, notes.MakerProperty, m.hold.maker)
	if m.trust > 0 { // the next owner's number must be higher than those of earlier owners
		lease.Properties[notes.TermProperty] = notes.PlainNumber(m.in.View.Now().UnixMilli())
		// A lease that another instance has made, somebody has taken and somebody has deleted since two listings were
		// compared is seen in neither. Its owner has written it no later than now.
		lease.Fence = m.in.View.Now().Add(m.trust + records.ClockGrain)
	}
	got, err := m.noteWhetherLate(m.in.View.CreateAnew(ctx, lease))
	if lostRace(err) {
		got, err = m.adoptExisting(ctx, lease)
	}
	if err == nil {
		m.in.View.Put(got)
	}
	return err
}

// noteWhetherLate notes whether a write may still arrive: after a failed write, only a lost race proves the opposite.
func (m maker) noteWhetherLate(got feed.Record, err error) (feed.Record, error) {
	if err != nil && !lostRace(err) {
		m.hold.unanswered.Store(true)
	}
	return got, err
}

func lostRace(err error) bool {
	return errors.Is(err, feed.ErrConflict) || errors.Is(err, feed.ErrNotFound)
}

// adoptExisting returns the existing lease instead of the new lease. If the create of that lease was late,
// adoptExisting makes a valid lease of it now, with the position and the notes that its maker knew, and without an
// owner. An [feed.ErrConflict] means a lost race.
func (m maker) adoptExisting(ctx context.Context, lease feed.Record) (feed.Record, error) {
	if err := m.in.View.List(ctx, time.Now()); err != nil {
		return lease, err
	}
	for _, old := range m.in.View.Kind(feed.KindLease) {
		switch {
		case old.Token != lease.Token:
		case !records.IsLate(old):
			return old, nil
		default:
			adopted := old
			adopted.Owner, adopted.Epoch, adopted.Expiration, adopted.State = "", "", 0, feed.StateLive
			adopted.Timestamp = lease.Timestamp
			adopted.Fence = slices.MaxFunc([]time.Time{old.Fence, lease.Fence}, time.Time.Compare)
			records.SetDue(&adopted, m.hold.endOfLock())
			records.SetProperty(&adopted, notes.MakerProperty, m.hold.maker)
			records.KeepTerm(&adopted, lease)
			if got, err := m.noteWhetherLate(m.in.Store.Update(ctx, adopted)); !errors.Is(err, feed.ErrNotFound) {
				return got, err
			}
		}
	}
	return lease, fmt.Errorf("%w: %s was there, and is not", feed.ErrConflict, lease.Token)
}
