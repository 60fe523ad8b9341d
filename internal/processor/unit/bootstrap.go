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

// How the leases of a unit are made
//
// One instance makes all leases, under the lock (see lock.go), and makes the marker last; the other instances wait for
// the marker. If a bootstrap is interrupted, the next instance with the lock begins again and makes the same leases,
// because the grid depends only on the partitions. Later holes are filled in the same way.

// bootstrap makes the unit's leases if they are missing, and compares them with the options. bootstrap retries as long
// as a retry can help.
func (u *Unit) bootstrap(ctx context.Context) error {
	rng := u.in.Random("bootstrap")
	for failures := 1; ; failures++ {
		done, err := u.tryBootstrap(ctx)
		switch {
		case done || err != nil && hopeless(err):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil && u.isLockAbandoned():
			err = errAbandoned
		}
		u.in.Report(ctx, feed.OriginBalancer, "", err)
		if err := pause.For(ctx, u.in.Backoff(rng, failures)); err != nil {
			return err
		}
	}
}

var errAbandoned = fmt.Errorf("an instance has ended while it made the leases of the unit: this one goes on %v after its "+
	"last sign of life", lockTime)

// hopeless reports whether an error lasts until a person makes a container, grants a right or changes the request, so
// that a retry cannot help.
func hopeless(err error) bool {
	return errors.Is(err, feed.ErrNotFound) || errors.Is(err, feed.ErrForbidden) || errors.Is(err, feed.ErrBadRequest)
}

// tryBootstrap makes one attempt. done means ready or, with an error, refused for good. While another instance creates
// the leases, done is false and there is no error.
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

// makeUnit makes the leases and the marker of the unit. makeUnit returns nil if another instance was faster, or if the
// unit is not new.
func (u *Unit) makeUnit(ctx context.Context, h *hold) (*feed.NewUnit, error) {
	if err := u.removeOverlapping(ctx); err != nil {
		return nil, err
	}
	atWork := len(u.in.View.LeasesWhere(func(lease feed.Record) bool { return !records.IsUntouched(lease) })) > 0
	// Judge the leases again under the lock, because other instances may have made some since the earlier listing.
	start, err := u.firstStart()
	if err != nil {
		return nil, err
	}
	began := u.recordStart(start, u.beganAt(), nil) // before any change written while the leases are made
	if err := (maker{unit: u, in: u.in, hold: h, start: start}).coverHoles(ctx, u.holes()); err != nil {
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

// checkMode refuses leases of the other mode, because their positions have another meaning.
func (u *Unit) checkMode() error {
	other := u.in.View.LeasesWhere(func(lease feed.Record) bool {
		return lease.Err == nil && lease.Mode != u.in.Options.Mode
	})
	if len(other) == 0 {
		return nil
	}
	return fmt.Errorf("%w: lease %s was made for %s, Options.Mode is %s: use another processor name, or delete "+
		"its leases",
		feed.ErrModeChanged, other[0].ID, other[0].Mode, u.in.Options.Mode)
}

// leaseRanges returns the partitions, cut so finely that there are MinLeases ranges. The result is the same each time,
// so that an interrupted creation continues with the same parts.
func (u *Unit) leaseRanges(partitions []feed.Partition) (cells []feed.Range) {
	finer := (u.in.Options.MinLeases + len(partitions) - 1) / max(1, len(partitions))
	for _, partition := range partitions {
		cells = append(cells, partition.Range.Cut(finer)...)
	}
	return cells
}

// createRecord creates a record at the pace that the store allows; asked is the time of the last request.
func (u *Unit) createRecord(ctx context.Context, record feed.Record) (got feed.Record, asked time.Time, err error) {
	err = u.in.Paced(ctx, u.in.Random("create "+string(record.Kind)), record.Token, func() error {
		asked, record.Timestamp = time.Now(), instance.Timestamp()
		got, err = u.in.Store.Create(ctx, record)
		return err
	})
	return got, asked, err
}
