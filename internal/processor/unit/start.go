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
// Leases that we create have a token from the first, so this is about those that another
// kind of processor made and has not read from yet. Whoever made the lease, it begins
//
//	1  from the start that it records itself, else
//	2  from where its unit began, as the marker records it, else
//	3  from Options.Start, which is then recorded in the marker
//
// and without any of these it is not worked on: Run returns [feed.ErrNoStart] when there is
// such a lease at the start, and leaves a later one alone and reports it. From now is never
// assumed: changes written while nobody worked would be skipped. The position is stored
// before the first change is handled.

// beganAt is when a unit without a marker began: now, or when the first lease was made of
// those that are there from a creation that was interrupted.
func (u *Unit) beganAt() time.Time {
	at := u.in.View.Now()
	for _, lease := range u.in.View.Kind(feed.KindLease) {
		if read := lease.Updated.Add(-createTime); read.Before(at) {
			at = read
		}
	}
	return at
}

// recordStart adds to the marker's properties where the unit begins, if it begins at a time of
// the store.
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

// firstStart is where a unit without a marker begins: where Options.Start says, else
// where the leases say that are there from a creation that was interrupted. A start that
// is relative to now counts as it was then, not as it is now.
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

// checkStart refuses a start that the unit would ignore. The start that the unit began with
// is welcome, because programs set it at every run. A unit that another kind of processor
// made has none on record, and gets ours.
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
		return false, nil // another instance records its own, or the unit begins anew
	}
	if err != nil {
		return false, fmt.Errorf("record start: %w", err)
	}
	u.in.View.Put(got)
	return true, nil
}

// checkForeign refuses a unit that we could not work on in full, because ranges whose leases
// others keep in a form that we do not write would stand still.
func (u *Unit) checkForeign() error {
	foreign := u.in.View.LeasesWhere(func(lease feed.Record) bool { return errors.Is(lease.Err, feed.ErrForeignLease) })
	if len(foreign) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w; use another processor name, from the time of the oldest change that is still pending there, so that some changes come again and none is lost; or delete these leases",
		fold.Names(records.IDs(foreign)), foreign[0].Err)
}

// checkPlaced refuses leases of which nobody says where they begin.
func (u *Unit) checkPlaced() error {
	if open := u.in.View.LeasesWhere(records.HasNoStart); len(open) > 0 {
		return &feed.StartError{Leases: records.IDs(open)}
	}
	return nil
}

// resolveStart is the position of a start, as a token where the feed gives one, because a processor
// of another kind would begin a lease without a token at a start of its own.
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
