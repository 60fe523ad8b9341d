package unit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/records"
)

// How the leases of a unit come about
//
// One instance makes all of them, under the lock (see lock.go), and the marker last;
// the others wait for the marker. A bootstrap that was cut short is begun again by
// whoever gets the lock next, and makes the same leases, because the grid depends on
// the partitions alone. A hole that is found later is filled in the same way.

// bootstrap makes sure that the unit's leases exist and fit the options, trying again
// for as long as that can help.
func (u *Unit) bootstrap(ctx context.Context) error {
	rng := u.in.Random("bootstrap")
	for failures := 1; ; failures++ {
		done, err := u.tryBootstrap(ctx)
		switch {
		case done || err != nil && hopeless(err):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		u.in.Report(ctx, feed.OriginBalancer, "", err)
		if err := pause.For(ctx, u.in.Backoff(rng, failures)); err != nil {
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
func (u *Unit) tryBootstrap(ctx context.Context) (done bool, err error) {
	if err := u.in.View.List(ctx, time.Now()); err != nil {
		return false, err
	}
	if err := cmp.Or(u.checkForeign(), u.checkMode()); err != nil {
		return true, err
	}
	if info, made := u.in.View.Marker(); made {
		return u.checkStart(ctx, info)
	}
	if _, err := u.firstStart(); err != nil {
		return true, err
	}
	var made *feed.NewUnit
	done, err = u.withLock(ctx, func(ctx context.Context, h *hold) (err error) {
		made, err = u.makeUnit(ctx, h)
		return err
	})
	if made != nil {
		u.announceNewUnit(ctx, made)
	}
	return done, err
}

// makeUnit makes the leases of the unit, and its marker. It returns nil if another instance was faster,
// or the unit is not new.
func (u *Unit) makeUnit(ctx context.Context, h *hold) (*feed.NewUnit, error) {
	if err := u.removeOverlapping(ctx); err != nil {
		return nil, err
	}
	atWork := len(u.in.View.LeasesWhere(func(lease feed.Record) bool { return !records.IsUntouched(lease) })) > 0
	// The leases are judged again under the lock: others may have been made since
	// the listing before it.
	start, err := u.firstStart()
	if err != nil {
		return nil, err
	}
	began := u.recordStart(start, u.beganAt(), nil) // before any change that is written while the leases are made
	if err := (maker{unit: u, in: u.in, hold: h, start: start}).coverHoles(ctx); err != nil {
		return nil, err
	}
	if atWork { // only the marker is new
		began[notes.RepairedProperty] = "yes"
	}
	began[notes.MakersProperty] = strings.Join(u.in.View.Makers(), " ")
	info := feed.Record{Kind: feed.KindInfo, Timestamp: instance.Timestamp(), Properties: began}
	got, _, err := u.createRecord(ctx, info)
	if errors.Is(err, feed.ErrConflict) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	u.in.View.Put(got)
	if atWork {
		return nil, nil
	}
	return &feed.NewUnit{Start: start, Mode: u.in.Options.Mode}, nil
}

// checkMode refuses leases of the other mode: their positions mean something else.
func (u *Unit) checkMode() error {
	other := u.in.View.LeasesWhere(func(lease feed.Record) bool { return lease.Err == nil && lease.Mode != u.in.Options.Mode })
	if len(other) == 0 {
		return nil
	}
	return fmt.Errorf("%w: lease %s was made for %s, Options.Mode is %s: use another processor name, or delete its leases",
		feed.ErrModeChanged, other[0].ID, other[0].Mode, u.in.Options.Mode)
}

// leaseRanges is the partitions, cut so finely that there are MinLeases. It is the same each
// time, so that a creation that was interrupted goes on with the same parts.
func (u *Unit) leaseRanges(partitions []feed.Partition) (cells []feed.Range) {
	finer := (u.in.Options.MinLeases + len(partitions) - 1) / max(1, len(partitions))
	for _, partition := range partitions {
		cells = append(cells, partition.Range.Cut(finer)...)
	}
	return cells
}

// createRecord creates a record at the pace that the store allows, by a request sent at asked.
func (u *Unit) createRecord(ctx context.Context, record feed.Record) (got feed.Record, asked time.Time, err error) {
	err = u.in.Paced(ctx, u.in.Random("create "+string(record.Kind)), record.Token, func() error {
		asked, record.Timestamp = time.Now(), instance.Timestamp()
		got, err = u.in.Store.Create(ctx, record)
		return err
	})
	return got, asked, err
}
