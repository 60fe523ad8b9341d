package changefeed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/keyspace"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/parallel"
	"github.com/millrace/changefeed/internal/pause"
)

// How the leases of a unit come about
//
// One instance makes all of them, under the lock (see lock.go), and the marker last;
// the others wait for the marker. A bootstrap that was cut short is begun again by
// whoever gets the lock next, and makes the same leases, because the grid depends on
// the partitions alone. A hole that is found later is filled in the same way.

// bootstrap makes sure that the unit's leases exist and fit the options, trying again
// for as long as that can help.
func (r *run) bootstrap(ctx context.Context) error {
	rng := r.random("bootstrap")
	for failures := 1; ; failures++ {
		done, err := r.tryBootstrap(ctx)
		switch {
		case done || err != nil && hopeless(err):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		r.report(ctx, feed.OriginBalancer, "", err)
		if err := pause.For(ctx, r.backoff(rng, failures)); err != nil {
			return err
		}
	}
}

// hopeless reports whether an error lasts until somebody makes a container, grants a right
// or changes the request, so that trying again cannot help.
func hopeless(err error) bool {
	return errors.Is(err, feed.ErrNotFound) || errors.Is(err, feed.ErrForbidden) || errors.Is(err, feed.ErrBadRequest)
}

// tryBootstrap reports whether the unit is ready, or refused for good: then there is an
// error too. While another instance creates the leases, done is false without an error.
func (r *run) tryBootstrap(ctx context.Context) (done bool, err error) {
	if err := r.view.list(ctx, time.Now()); err != nil {
		return false, err
	}
	if err := cmp.Or(r.checkForeign(), r.checkMode()); err != nil {
		return true, err
	}
	if info, made := r.view.marker(); made {
		return r.checkStart(ctx, info)
	}
	if _, err := r.firstStart(); err != nil {
		return true, err
	}
	var made *feed.NewUnit
	done, err = r.locked(ctx, func(ctx context.Context, h *hold) (err error) {
		made, err = r.makeUnit(ctx, h)
		return err
	})
	if made != nil {
		r.announce(ctx, made)
	}
	return done, err
}

// makeUnit makes the leases of the unit, and its marker. It returns nil if another instance was faster,
// or the unit is not new.
func (r *run) makeUnit(ctx context.Context, h *hold) (*feed.NewUnit, error) {
	if err := r.untangle(ctx); err != nil {
		return nil, err
	}
	found := r.view.leasesWhere(func(feed.Record) bool { return true })
	atWork := slices.ContainsFunc(found, func(lease feed.Record) bool { return !isUntouched(lease) })
	// The leases are judged again under the lock: others may have been made since
	// the listing before it.
	start, err := r.firstStart()
	if err != nil {
		return nil, err
	}
	began := r.record(start, r.begun(), nil) // before any change that is written while the leases are made
	if err := (maker{run: r, hold: h, start: start}).cover(ctx); err != nil {
		return nil, err
	}
	switch {
	case atWork: // only the marker is new
		began[notes.RepairedProperty] = "yes"
	case len(found) > 0: // of this unit, or of the one before whose marker somebody has deleted
		oldest := slices.MinFunc(found, func(a, b feed.Record) int { return a.Updated.Compare(b.Updated) })
		began[notes.FoundProperty] = notes.PlainTime(oldest.Updated.UTC().Format(time.RFC3339Nano))
	}
	info := feed.Record{Kind: feed.KindInfo, Timestamp: timestamp(), Properties: began}
	got, _, err := r.create(ctx, info)
	if errors.Is(err, feed.ErrConflict) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r.view.put(got)
	if atWork {
		return nil, nil
	}
	return &feed.NewUnit{Start: start}, nil
}

// checkMode refuses leases of the other mode: their positions mean something else.
func (r *run) checkMode() error {
	other := r.view.leasesWhere(func(lease feed.Record) bool { return lease.Err == nil && lease.Mode != r.opts.Mode })
	if len(other) == 0 {
		return nil
	}
	return fmt.Errorf("%w: lease %s was made for %s, Options.Mode is %s: use another processor name, or delete its leases",
		feed.ErrModeChanged, other[0].ID, other[0].Mode, r.opts.Mode)
}

// maker makes leases, while this instance has the lock.
type maker struct {
	*run
	*hold
	start feed.Start // where they begin
	fence time.Time  // of their first owners, if set
}

// cover creates leases for the parts of the key space without one, and ends at the first failure.
func (m maker) cover(ctx context.Context) error {
	partitions, err := m.source.Partitions(ctx)
	if err != nil {
		return err
	}
	parts := keyspace.CutAt(m.holes(), m.grid(partitions))
	creating, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	parallel.Each(creating, len(parts), atOnce, func(i int) {
		if err := m.insistOn(creating, parts[i]); err != nil {
			fail(fmt.Errorf("create lease %s: %w", parts[i], err))
		}
	})
	return context.Cause(creating)
}

// grid is the partitions, cut so finely that there are MinLeases. It is the same each
// time, so that a creation that was interrupted goes on with the same parts.
func (r *run) grid(partitions []feed.Partition) (cells []feed.Range) {
	finer := (r.opts.MinLeases + len(partitions) - 1) / max(1, len(partitions))
	for _, partition := range partitions {
		cells = append(cells, partition.Range.Cut(finer)...)
	}
	return cells
}

// insistOn creates a lease at the pace that the store allows, tries a few times, and returns the last error.
func (m maker) insistOn(ctx context.Context, part feed.Range) error {
	rng := m.random("create " + part.String())
	for failures := 1; ; failures++ {
		err := m.paced(ctx, rng, part.String(), func() error {
			asking, cancel := context.WithTimeout(ctx, createTime)
			defer cancel()
			return m.createLease(asking, part)
		})
		gone := err == nil || hopeless(err) || failures == createAttempts
		if gone || pause.For(ctx, m.backoff(rng, failures)) != nil {
			return err
		}
	}
}

// create creates a record at the pace that the store allows, by a request sent at asked.
func (r *run) create(ctx context.Context, record feed.Record) (got feed.Record, asked time.Time, err error) {
	err = r.paced(ctx, r.random("create "+string(record.Kind)), record.Token, func() error {
		asked, record.Timestamp = time.Now(), timestamp()
		got, err = r.store.Create(ctx, record)
		return err
	})
	return got, asked, err
}

// createAttempts are as many as take about ten seconds with the default pauses.
const createAttempts = 7

// createLease creates a free lease whose position is fixed before the first read, so that
// every change from here on is delivered, whatever happens before the first checkpoint.
func (m maker) createLease(ctx context.Context, part feed.Range) error {
	at, err := m.place(ctx, part, m.start)
	if err != nil {
		return err
	}
	lease := feed.Record{
		Kind: feed.KindLease, Version: 1, Token: part.String(), Range: part,
		Position: at, Mode: m.opts.Mode, Fence: m.fence, Timestamp: timestamp(),
		Properties: map[string]string{notes.GenerationProperty: notes.PlainNumber(0)},
	}
	setProperty(&lease, notes.DueProperty, notes.Due{By: m.due(), Sent: lease.Timestamp}.String())
	if !m.fence.IsZero() { // its range had owners before, and the next one's number must be higher than theirs
		lease.Properties[notes.TermProperty] = notes.PlainNumber(m.view.Now().UnixMilli())
	}
	got, err := m.noted(m.createAnew(ctx, lease))
	if lostRace(err) {
		got, err = m.adopt(ctx, lease)
	}
	if err == nil {
		m.view.put(got)
	}
	return err
}

// noted notes whether a write may still arrive: unless it is stored, only a lost race says that it does not.
func (m maker) noted(got feed.Record, err error) (feed.Record, error) {
	if err != nil && !lostRace(err) {
		m.unanswered.Store(true)
	}
	return got, err
}

func lostRace(err error) bool {
	return errors.Is(err, feed.ErrConflict) || errors.Is(err, feed.ErrNotFound)
}

// adopt gives the lease that is there in the place of a new one. If its create was late, it becomes
// a lease now, where it was to begin. An [feed.ErrConflict] is a lost race.
func (m maker) adopt(ctx context.Context, lease feed.Record) (feed.Record, error) {
	if err := m.view.list(ctx, time.Now()); err != nil {
		return lease, err
	}
	for _, old := range m.view.kind(feed.KindLease) {
		switch {
		case old.Token != lease.Token:
		case !isLate(old):
			return old, nil
		default:
			lease.ID, lease.ETag, lease.Raw, lease.Position = old.ID, old.ETag, old.Raw, old.Position
			if got, err := m.noted(m.store.Update(ctx, lease)); !errors.Is(err, feed.ErrNotFound) {
				return got, err
			}
		}
	}
	return lease, fmt.Errorf("%w: %s was there, and is not", feed.ErrConflict, lease.Token)
}

// createAnew creates a lease. Where the right to delete is missing, a retired lease of that
// range may be in the way. It is nobody's, and every write of its owners had an older ETag,
// so making it live again is the same as a delete and a create.
func (r *run) createAnew(ctx context.Context, lease feed.Record) (feed.Record, error) {
	got, err := r.store.Create(ctx, lease)
	if !errors.Is(err, feed.ErrConflict) {
		return got, err
	}
	for _, old := range r.view.kind(feed.KindLease) {
		if old.Token == lease.Token && old.State == feed.StateRetired && isOurs(old) && !isLate(old) {
			lease.ID, lease.ETag, lease.Raw = old.ID, old.ETag, old.Raw
			return r.store.Update(ctx, lease)
		}
	}
	return got, err
}
