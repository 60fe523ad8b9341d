package changefeed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/fold"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/service"
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

// begun is when a unit without a marker began: now, or when the first lease was made of
// those that are there from a creation that was interrupted.
func (r *run) begun() time.Time {
	at := r.view.Now()
	for _, lease := range r.view.kind(feed.KindLease) {
		if read := lease.Updated.Add(-createTime); read.Before(at) {
			at = read
		}
	}
	return at
}

// record adds to the marker's properties where the unit begins, if it begins at a time of
// the store.
func (r *run) record(start feed.Start, now time.Time, properties map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, properties)
	all[notes.OptionProperty] = notes.PlainTime(cmp.Or(start.Given(), start.String()))
	if start.IsNow() && r.opts.Mode == feed.LatestVersion {
		start = feed.FromTime(now.Add(-clockGrain)) // stores keep whole seconds
	}
	all[notes.OriginProperty] = notes.PlainTime(start.String())
	return all
}

// origin is where the unit began, if its marker records that.
func (v *view) origin() (feed.Start, bool) {
	info, _ := v.marker()
	start, err := feed.ParseStart(notes.TimeOf(info.Properties[notes.OriginProperty]))
	return start, err == nil
}

// marker is the unit's marker, if its leases have been created.
func (v *view) marker() (feed.Record, bool) {
	for _, info := range v.kind(feed.KindInfo) {
		if info.Err == nil {
			return info, true
		}
	}
	return feed.Record{}, false
}

// recorded is where a lease that is lost must begin again: where the unit began, else
// where nothing is skipped that the mode can still give.
func (r *run) recorded() feed.Start {
	if r.opts.Mode == feed.AllVersionsAndDeletes {
		return feed.FromNow()
	}
	if start, ok := r.view.origin(); ok {
		return start
	}
	return feed.FromBeginning()
}

// firstStart is where a unit without a marker begins: where Options.Start says, else
// where the leases say that are there from a creation that was interrupted. A start that
// is relative to now counts as it was then, not as it is now.
func (r *run) firstStart() (feed.Start, error) {
	relative := r.opts.Start.Ago() > 0
	if !r.opts.Start.IsZero() && !relative {
		return r.opts.Start, nil
	}
	for _, lease := range r.view.kind(feed.KindLease) {
		if start := lease.Position.Start; lease.Err == nil && !start.IsZero() && (!relative || isOurs(lease)) {
			return start.AsAgo(r.opts.Start.Ago()), nil
		}
	}
	if relative {
		return r.opts.Start, nil
	}
	return feed.Start{}, r.checkPlaced()
}

// checkStart refuses a start that the unit would ignore. The start that the unit began with
// is welcome, because programs set it at every run. A unit that another kind of processor
// made has none on record, and gets ours.
func (r *run) checkStart(ctx context.Context, info feed.Record) (done bool, err error) {
	given, began := r.opts.Start.Given(), notes.TimeOf(info.Properties[notes.OptionProperty])
	_, known := r.view.origin()
	switch {
	case !known && given == "":
		return true, r.checkPlaced()
	case given == "" || given == began:
		return true, nil
	case known:
		return true, &feed.StartError{Given: given, Began: began, Since: info.Updated}
	}
	info.Properties = r.record(r.opts.Start, r.view.Now(), info.Properties)
	got, err := r.store.Update(ctx, info)
	if errors.Is(err, feed.ErrConflict) || errors.Is(err, feed.ErrNotFound) {
		return false, nil // another instance records its own, or the unit begins anew
	}
	if err != nil {
		return false, fmt.Errorf("record start: %w", err)
	}
	r.view.put(got)
	return true, nil
}

// checkForeign refuses a unit that we could not work on in full, because ranges whose leases
// others keep in a form that we do not write would stand still.
func (r *run) checkForeign() error {
	foreign := r.view.leasesWhere(func(lease feed.Record) bool { return errors.Is(lease.Err, feed.ErrForeignLease) })
	if len(foreign) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w; use another processor name, from the time of the oldest change that is still pending there, so that some changes come again and none is lost; or delete these leases",
		fold.Names(ids(foreign)), foreign[0].Err)
}

// checkPlaced refuses leases of which nobody says where they begin.
func (r *run) checkPlaced() error {
	if open := r.view.leasesWhere(hasNoStart); len(open) > 0 {
		return &feed.StartError{Leases: ids(open)}
	}
	return nil
}

// hasNoStart reports whether a lease does not say where it begins.
func hasNoStart(l feed.Record) bool {
	return l.Err == nil && l.State != feed.StateRetired && l.Position.Token == "" && l.Position.Start.IsZero()
}

// ids are the ids of leases.
func ids(leases []feed.Record) (list []string) {
	for _, lease := range leases {
		list = append(list, lease.ID)
	}
	return list
}

// placed lists the leases that can be worked on, and those that cannot: besides the bad
// documents, leases of which nobody says where they begin.
func (v *view) placed() (good, bad []feed.Record) {
	good, bad = v.leases()
	if _, known := v.origin(); known {
		return good, bad
	}
	good = slices.DeleteFunc(good, func(lease feed.Record) bool {
		open := hasNoStart(lease)
		if open {
			lease.Err = &feed.StartError{Leases: []string{lease.ID}}
			bad = append(bad, lease)
		}
		return open
	})
	return good, bad
}

// place is the position of a start, as a token where the feed gives one, because a processor
// of another kind would begin a lease without a token at a start of its own.
func (r *run) place(ctx context.Context, part feed.Range, start feed.Start) (feed.Position, error) {
	at := feed.Position{Start: start.AsAgo(0)}
	if start.IsNow() {
		at.Start = feed.Start{}
	}
	page, err := r.source.Read(ctx, part, at, feed.ReadOptions{Mode: r.opts.Mode, MaxItems: 1})
	if err != nil {
		return at, fmt.Errorf("read position of %v: %w", start, err)
	}
	return startOfPage(page, at), nil
}

// startOfPage is the position that a page was read from, as a token. Where tokens are LSNs in
// quotes, as the service's are, the token before the first change is known; otherwise the
// position stays as it was.
func startOfPage(p feed.Page, from feed.Position) feed.Position {
	if len(p.Changes) == 0 {
		return p.Next
	}
	first, last := p.Changes[0].LSN, p.Changes[len(p.Changes)-1].LSN
	if p.Next.Token != service.Token(last) {
		return from
	}
	return feed.Position{Token: service.Token(first - 1), Start: from.Start}
}

// anchor fixes where a lease without a token begins, before anything of it is handled.
func (w *worker) anchor() ending {
	at := feed.Position{Start: w.lease.Position.Start}
	if at.Start.IsNow() {
		at.Start = w.r.recorded()
	}
	w.dispatcher.beginAt(at)
	page, e := w.read()
	switch e.why {
	case "":
		if at = startOfPage(page, at); len(page.Changes) == 0 { // so what an owner before has failed with is not what comes
			w.dispatcher.pass(at, 0, false)
		}
	case feed.ReasonSplit: // the leases of the parts begin there
	default:
		return e
	}
	w.dispatcher.beginAt(at)
	if err := w.keeper.store(w.untilDrained); err != nil {
		return w.ending()
	}
	return e
}

// announce says where the unit begins that this instance has made.
func (r *run) announce(ctx context.Context, unit *feed.NewUnit) {
	leases, _ := r.view.leases()
	unit.Leases, unit.Passed = len(leases), r.passedOver(ctx, unit.Start, leases)
	r.began.Store(unit)
	r.hooks.Begun(*unit)
}

// countTime bounds the count of what a new unit passes over, because the unit waits for it.
const countTime = 10 * time.Second

// passedOver counts the changes before the positions of the leases of a new unit; nil if that is not known.
func (r *run) passedOver(ctx context.Context, start feed.Start, leases []feed.Record) *int64 {
	if start.IsBeginning() {
		return new(int64)
	}
	counter, ok := r.source.(feed.Counter)
	if !ok || r.opts.Mode != feed.LatestVersion {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	all, err := counter.Pending(ctx, feed.FullRange(), feed.Position{Start: feed.FromBeginning()}, feed.ReadOptions{})
	for _, lease := range leases {
		if err == nil {
			var after feed.Backlog
			after, err = counter.Pending(ctx, lease.Range, lease.Position, feed.ReadOptions{})
			all.Items -= after.Items
		}
	}
	if err != nil {
		return nil
	}
	return new(max(0, all.Items))
}
