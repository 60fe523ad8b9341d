package admin

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/records"
)

// create makes the leases of a unit, and the marker last, so that no instance takes the unit for whole too early.
// Leases that an earlier call has made stay.
func (u *Unit) create(ctx context.Context, v *records.View, s *Snapshot, places []placed) ([]Step, error) {
	missing, err := u.planRestore(ctx, v, s, places)
	if err != nil {
		return nil, err
	}
	var steps []Step
	for _, lease := range missing {
		steps = append(steps, Step{Action: ActionReset, Lease: lease.Lease(), To: lease.Position})
	}
	if u.options.DryRun {
		return steps, nil
	}
	err = u.createLeases(ctx, v, missing, steps)
	if err == nil {
		mode, _ := s.mode() // plan has checked it
		err = u.createMarker(ctx, mode)
	}
	return steps, u.record(ctx, ActionRestore, feed.FullRange(), steps, err)
}

// createLeases makes leases, and says which steps are done.
func (u *Unit) createLeases(ctx context.Context, v *records.View, missing []feed.Record, steps []Step) error {
	for i, lease := range missing {
		stamp(&lease)
		_, err := v.CreateAnew(ctx, lease)
		if errors.Is(err, feed.ErrConflict) {
			return fmt.Errorf("%w: lease %s has been made meanwhile: another restore makes this unit, or an instance has "+
				"started: wait until it is done, look at the leases, and restore again", feed.ErrConflict, lease.Token)
		}
		if err != nil {
			return fmt.Errorf("create lease %s: %w", lease.Token, err)
		}
		steps[i].Done = true
	}
	return nil
}

// planRestore returns the leases that are missing. The leases that are there must be those that an earlier call has
// made. A retired lease counts as deleted.
func (u *Unit) planRestore(ctx context.Context, v *records.View, s *Snapshot, places []placed) (missing []feed.Record,
	err error,
) {
	if named, ok := u.leases.(interface{ Prefix() string }); ok && s.Container != "" {
		if of := containerOf(feed.Record{ID: named.Prefix() + ".."}); of != s.Container {
			return nil, fmt.Errorf("%w: the snapshot is of container %s, and the unit reads %s: its positions mean "+
				"nothing there", feed.ErrBadRequest, s.Container, of)
		}
	}
	mode, err := s.mode()
	if err != nil {
		return nil, err
	}
	there := map[string]feed.Record{}
	for _, lease := range v.Kind(feed.KindLease) {
		if lease.State != feed.StateRetired {
			there[lease.Token] = lease
		}
	}
	for _, p := range places {
		lease := feed.Record{
			Kind: feed.KindLease, Version: 1, Token: p.of.String(), Range: p.of, Position: p.at, Mode: mode,
			Properties: map[string]string{notes.GenerationProperty: notes.PlainNumber(0)},
		}
		old, made := there[lease.Token]
		delete(there, lease.Token)
		sameStart := p.at.Token != "" || old.Position.Start == p.at.Start // a place with a token has no start
		if made && (old.Position.Token != p.at.Token || !sameStart || old.Mode != mode) {
			return nil,
				fmt.Errorf("%w: lease %s is there at %s, and the snapshot has %s: delete the leases of the unit, "+
					"or take another name", feed.ErrConflict, old.ID, old.Position, p.at)
		}
		if made {
			continue
		}
		if err := u.readable(ctx, lease); err != nil {
			return nil, err
		}
		missing = append(missing, lease)
	}
	for _, other := range there {
		return nil,
			fmt.Errorf("%w: lease %s is there, and not in the snapshot: delete the leases of the unit, or take "+
				"another name", feed.ErrConflict, other.ID)
	}
	return missing, nil
}

// createMarker makes the marker of the unit, unless there is a marker from earlier leases of the unit.
func (u *Unit) createMarker(ctx context.Context, mode feed.Mode) error {
	start := feed.FromBeginning()
	if mode == feed.AllVersionsAndDeletes { // such a feed has no beginning
		start = feed.FromNow()
	}
	info := feed.Record{Kind: feed.KindInfo, Properties: map[string]string{
		notes.OptionProperty: start.String(), notes.OriginProperty: start.String(),
	}}
	stamp(&info)
	if _, err := u.leases.Create(ctx, info); err != nil && !errors.Is(err, feed.ErrConflict) {
		return fmt.Errorf("create the marker of the unit: %w", err)
	}
	return nil
}

// readable reads from the position of a lease or, if the range has been split since, of a part of the range.
func (u *Unit) readable(ctx context.Context, lease feed.Record) error {
	page, err := u.source.Read(ctx, lease.Range, lease.Position, feed.ReadOptions{Mode: lease.Mode, MaxItems: 1})
	if errors.Is(err, feed.ErrGone) {
		err = u.readPart(ctx, lease, lease.Position)
	}
	if err == nil {
		err = aheadError(page)
	}
	if err != nil {
		return fmt.Errorf("lease %s: read position %s: %w", lease.Token, lease.Position, err)
	}
	return nil
}
