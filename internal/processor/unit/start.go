package unit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/fold"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/instance"
	"github.com/millrace/changefeed/internal/processor/records"
)

// Where a lease without a position begins
//
// Our own leases have a token from the first moment. So these rules concern leases of another kind of processor that
// has not read from them yet. Such a lease begins
//
//	1  at the start that the lease itself records; if there is none,
//	2  at the unit's start in the marker; if there is none,
//	3  at Options.Start, which is then recorded in the marker
//
// If there is none of these, no instance works on the lease: Run returns [feed.ErrNoStart] if there is such a lease at
// the start, and leaves a later one alone and reports it. A start from now is never assumed, because changes written
// while no processor worked would be skipped. The position is stored before the first change is handled.

// beganAt returns when a unit without a marker began: now or, if an interrupted creation has left leases, when the
// first of these was made.
func (u *Unit) beganAt() time.Time {
	at := u.in.View.Now()
	for _, lease := range u.in.View.Kind(feed.KindLease) {
		if read := lease.Updated.Add(-createTime); read.Before(at) {
			at = read
		}
	}
	return at
}

// recordStart adds the unit's start to the marker's properties. If the unit begins from now, recordStart stores a time
// of the store instead.
func (u *Unit) recordStart(start feed.Start, now time.Time, properties map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, properties)
	all[notes.OptionProperty] = notes.PlainTime(cmp.Or(start.Given(), start.String()))
	if start.IsNow() && u.in.Options.Mode == feed.LatestVersion {
		start = feed.FromTime(now.Add(-records.ClockGrain)) // stores keep whole seconds
	}
	all[notes.OriginProperty] = notes.PlainTime(start.String())
	return all
}

// firstStart returns where a unit without a marker begins: at Options.Start; if that is not set, at the start of the
// leases from an interrupted creation. A start relative to now means the time of that creation, not the present time.
func (u *Unit) firstStart() (feed.Start, error) {
	relative := u.in.Options.Start.Ago() > 0
	if !u.in.Options.Start.IsZero() && !relative {
		return u.in.Options.Start, nil
	}
	for _, lease := range u.in.View.Kind(feed.KindLease) {
		if start := lease.Position.Start; lease.Err == nil && !start.IsZero() && (!relative || records.IsOurs(lease)) {
			return start.AsAgo(u.in.Options.Start.Ago()), nil
		}
	}
	if relative {
		return u.in.Options.Start, nil
	}
	return feed.Start{}, u.checkPlaced()
}

// checkStart refuses a start without effect. The start with which the unit began is accepted, because programs set it
// at every run. A unit of another kind of processor has no recorded start, and records ours.
func (u *Unit) checkStart(ctx context.Context, info feed.Record) (done bool, err error) {
	given, began := u.in.Options.Start.Given(), notes.TimeOf(info.Properties[notes.OptionProperty])
	_, known := u.in.View.Origin()
	switch {
	case !known && given == "":
		return true, u.checkPlaced()
	case given == "" || given == began:
		return true, nil
	case known:
		return true, &feed.StartError{Given: given, Began: began, Since: info.Updated}
	}
	info.Properties = u.recordStart(u.in.Options.Start, u.in.View.Now(), info.Properties)
	got, err := u.in.Store.Update(ctx, info)
	if errors.Is(err, feed.ErrConflict) || errors.Is(err, feed.ErrNotFound) {
		return false, nil // another instance records a start, or the unit begins anew
	}
	if err != nil {
		return false, fmt.Errorf("record start: %w", err)
	}
	u.in.View.Put(got)
	return true, nil
}

// checkForeign refuses a unit with leases in a form that this processor does not write, because the ranges of these
// leases would make no progress.
func (u *Unit) checkForeign() error {
	foreign := u.in.View.LeasesWhere(func(lease feed.Record) bool { return errors.Is(lease.Err, feed.ErrForeignLease) })
	if len(foreign) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w; use another processor name, from the time of the oldest change that is still pending "+
		"there, so that some changes come again and none is lost; or delete these leases",
		fold.Names(records.IDs(foreign)), foreign[0].Err)
}

// checkPlaced refuses leases without a known start.
func (u *Unit) checkPlaced() error {
	if open := u.in.View.LeasesWhere(records.HasNoStart); len(open) > 0 {
		return &feed.StartError{Leases: records.IDs(open)}
	}
	return nil
}

// resolveStart returns the position of a start, as a token if the feed has one, because another kind of processor would
// begin a lease without a token at another start.
func (u *Unit) resolveStart(ctx context.Context, part feed.Range, start feed.Start) (feed.Position, error) {
	at := feed.Position{Start: start.AsAgo(0)}
	if start.IsNow() {
		at.Start = feed.Start{}
	}
	page, err := u.in.Source.Read(ctx, part, at, feed.ReadOptions{Mode: u.in.Options.Mode, MaxItems: 1})
	if err != nil {
		return at, fmt.Errorf("read position of %v: %w", start, err)
	}
	return instance.StartOfPage(u.in.Source, page, at), nil
}
