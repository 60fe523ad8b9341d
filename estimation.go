package changefeed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/pause"
	"github.com/millrace/changefeed/internal/processor/parallel"
	"github.com/millrace/changefeed/internal/processor/records"
)

// Estimation is the state of a unit at a time, as an estimator sees the unit.
type Estimation struct {
	At     time.Time // when the leases were listed, by the clock of the lease store
	Leases []Lag

	// Total adds up the leases, except those whose range another lease has (Err is an [feed.ErrOverlap]). The Lease of
	// the total is empty. The Err says why the total is unknown: the lag of a lease is unknown, or keys have no lease
	// ([feed.ErrHole]), as in a unit that has not begun; the other fields then describe the other leases. Watermark is
	// the earliest of all leases, also of those that have nothing to do, and zero if any is unknown. Pace.CatchUp is
	// that of the slowest lease. If two leases that work cover the same keys, their changes count twice: the total is
	// Shared then.
	Total Lag

	Cost feed.Cost // of this estimate
}

// Pace is how fast the changes of a lease are handled, between two estimates.
type Pace struct {
	// PerSecond is the number of handled changes a second: the changes that the feed shows between the two positions.
	// Versions that were overwritten since do not count.
	PerSecond float64
	// Exact says that PerSecond counts changes. If Exact is false, PerSecond is a distance in LSNs, which counts the
	// transactions of the whole partition.
	Exact bool
	// CatchUp is the time until nothing is pending, if changes go on to be written and handled as between the two
	// estimates; [Never] if Pending does not fall.
	CatchUp time.Duration
}

// Never is the [Pace].CatchUp of a lease whose pending changes do not become fewer.
const Never time.Duration = math.MaxInt64

// settled is how long after its commit time a store shows a change at the latest, and how much earlier the commit time
// of a later change may be: times may be whole seconds, clocks of servers differ, and a write may wait for a disk.
const settled = 5 * time.Second

// ownerSilence is how long an owner may be silent if the lease does not say: the default of Options.Expiration.
const ownerSilence = time.Minute

// Estimator measures a unit again and again, and so knows how fast the unit is. The zero value is ready. Estimates at
// the same time are compared with the same earlier estimate.
type Estimator struct {
	last atomic.Value // map[string]seenLag, by the ids of the leases
}

// seenLag is the lag of a lease in the estimate before.
type seenLag struct {
	Lag
	at    time.Time
	still time.Time // since when the oldest pending change is the same
}

// Measure measures the lag of every lease of a unit as [Estimate] does. From the second call on, a lease has a Pace: if
// the source counts, that takes another count for each lease whose position has moved. Sources whose calls cost
// something are best measured every ten seconds or less often.
func (e *Estimator) Measure(ctx context.Context, source feed.Source, leases feed.LeaseStore) (Estimation, error) {
	var cost feed.Meter
	ctx = feed.WithMeter(ctx, &cost)
	foreign := foreignLeases{LeaseStore: leases, errs: map[string]error{}}
	u := measuredUnit{view: records.NewView(&foreign, source), meter: newMeter(source)}
	if err := u.view.List(ctx, time.Now()); err != nil {
		return Estimation{}, err
	}
	now := time.Now()
	est := Estimation{At: u.view.Now()}
	u.at, u.works, u.pauses = est.At, isAtWork(u.view), u.view.Pauses()
	u.origin, _ = u.view.Origin()
	good, bad := u.view.Placed()
	all := slices.Concat(good, bad)
	last, _ := e.last.Load().(map[string]seenLag)
	lags := make([]seenLag, len(all))
	parallel.Each(ctx, len(all), measuredAtOnce, func(i int) {
		parts := owed(all[i], good) // a lease in the format of another processor can be measured too
		lags[i] = u.compareLease(ctx, last, all[i], parts, foreign.errs[all[i].ID], now)
	})
	seen := make(map[string]seenLag, len(good))
	for i, lag := range lags {
		if lag.at.IsZero() { // ctx has ended before its turn
			lag.Lag = Lag{Lease: all[i].Lease(), Err: context.Cause(ctx)}
		} else if lag.Known() && all[i].Err == nil {
			seen[all[i].ID] = lag
		}
		est.Leases = append(est.Leases, lag.Lag)
	}
	e.last.Store(seen)
	est.Total, est.Cost = totalOf(est.Leases), cost.Cost()
	return est, context.Cause(ctx)
}

// WatchLag measures the lag of a unit at once, and then each time after a pause; 0 is a pause of 5 s. If an estimate
// fails, WatchLag yields the error and tries again after the pause: end the loop if the error does not pass, as an
// [feed.ErrNotFound] does not. WatchLag ends when ctx ends, which is not yielded as an error.
//
// From the second estimate of a lease on, the lease has a [Pace]; see [Estimator.Measure] for the cost.
func WatchLag(ctx context.Context, source feed.Source, leases feed.LeaseStore,
	every time.Duration,
) iter.Seq2[Estimation, error] {
	if every <= 0 {
		every = defaultPoll
	}
	return func(yield func(Estimation, error) bool) {
		var e Estimator
		for {
			est, err := e.Measure(ctx, source, leases)
			if ctx.Err() != nil || !yield(est, err) || pause.For(ctx, every) != nil {
				return
			}
		}
	}
}

// WatchLag is the function [WatchLag] for the unit of this processor: for all leases of the unit, whichever instance
// owns them.
func (p *Processor) WatchLag(ctx context.Context, every time.Duration) iter.Seq2[Estimation, error] {
	return WatchLag(ctx, p.source, p.leases, every)
}

// foreignLeases is a lease store whose leases of other kinds of processors count as valid, because range, owner,
// position and mode of such a lease are valid. foreignLeases keeps their errors, by their ids.
type foreignLeases struct {
	feed.LeaseStore
	errs map[string]error
}

// List lists the records.
func (s *foreignLeases) List(ctx context.Context) ([]feed.Record, time.Time, error) {
	all, now, err := s.LeaseStore.List(ctx)
	for i := range all {
		if r := &all[i]; r.Kind == feed.KindLease && errors.Is(r.Err, feed.ErrForeignLease) &&
			(r.Token != "" || !r.Range.Empty()) { // else nothing of it could be read, and no estimate knows its range
			s.errs[r.ID], r.Err = r.Err, nil
		}
	}
	return all, now, err
}

// isAtWork reports whether an instance of the unit runs, or may run as the owner of a lease.
func isAtWork(v *records.View) bool {
	now := v.Now()
	return len(v.Where(func(_ string, r feed.Record) bool {
		isOwner := r.Kind == feed.KindHost || r.Kind == feed.KindLease && !r.Free()
		return isOwner && r.Err == nil && r.State != feed.StateRetired && !isSilent(r, now)
	})) > 0
}

// isSilent reports whether the owner of a record has been silent for too long.
func isSilent(l feed.Record, now time.Time) bool {
	return records.IsExpired(l, now, cmp.Or(l.Expiration, ownerSilence))
}

// measuredUnit is a unit during an estimate.
type measuredUnit struct {
	*meter
	view   *records.View
	at     time.Time // by the clock of the lease store
	works  bool      // an instance runs
	pauses []feed.Range
	origin feed.Start
}

// measureLease measures a lease; foreign is why the document is a lease of another kind of processor.
func (u *measuredUnit) measureLease(ctx context.Context, lease feed.Record, parts []feed.Range, foreign error) Lag {
	if records.HasNoStart(lease) {
		lease.Position.Start = u.origin
	}
	lag := Lag{Lease: lease.Lease(), Exact: true}
	heldSince, heldKnown, err := u.addLag(ctx, &lag, parts)
	lag.measured = err == nil && (lease.Err == nil || errors.Is(lease.Err, feed.ErrOverlap))
	lag.Err = cmp.Or(lease.Err, err, foreign)
	lag.Exact = lag.Exact && lag.measured
	if lag.Known() && heldKnown {
		lag.Watermark = u.watermarkOf(lag, heldSince)
	}
	lag.Stuck = u.stuckBecause(lease, lag)
	return lag
}

// addLag adds the pending changes of a lease in parts of its range, and of keys with positions of their own.
func (u *measuredUnit) addLag(ctx context.Context, lag *Lag, parts []feed.Range) (heldSince time.Time, heldKnown bool,
	err error,
) {
	for _, part := range parts {
		err = cmp.Or(err, u.measureRange(ctx, lag, part))
	}
	heldSince, heldKnown, keysErr := u.addKeys(ctx, lag)
	return heldSince, heldKnown, cmp.Or(err, keysErr)
}

// watermarkOf returns the time before which a lease has handled everything; zero if it is unknown.
func (u *measuredUnit) watermarkOf(lag Lag, heldSince time.Time) time.Time {
	if lag.untimed {
		return time.Time{}
	}
	mark := u.at
	if !lag.Oldest.IsZero() && lag.Oldest.Before(mark) {
		mark = lag.Oldest
	}
	mark = mark.Add(-settled).Truncate(time.Second)
	if !heldSince.IsZero() && heldSince.Before(mark) {
		mark = heldSince
	}
	return mark
}

// stuckErrors are the errors of leases that nobody works on.
var stuckErrors = []struct {
	err  error
	word feed.Stuck
}{
	{feed.ErrAhead, feed.StuckAhead},
	{feed.ErrTooOld, feed.StuckTooOld},
	{feed.ErrNoStart, feed.StuckNoStart},
	{feed.ErrBadLease, feed.StuckBroken},
}

// stuckBecause returns why nobody handles the pending changes of a lease, according to its document and the others.
func (u *measuredUnit) stuckBecause(lease feed.Record, lag Lag) (why []feed.Stuck) {
	if lag.Known() && lag.Pending == 0 {
		return nil
	}
	if !lag.Known() {
		for _, s := range stuckErrors {
			if errors.Is(lag.Err, s.err) {
				return []feed.Stuck{s.word}
			}
		}
	}
	switch {
	case lease.State != feed.StateLive && !lease.Free() && !isSilent(lease, u.at): // the lease is being split
	case records.IsPaused(lease, u.pauses):
		why = append(why, feed.StuckPaused)
		if lease.Free() && !u.works { // the end of the pause alone does not help
			why = append(why, feed.StuckStopped)
		}
	case lease.Free() && u.works:
		why = append(why, feed.StuckFree)
	case lease.Free():
		why = append(why, feed.StuckStopped)
	case isSilent(lease, u.at):
		why = append(why, feed.StuckExpired)
	case hasOutage(lease):
		why = append(why, feed.StuckOutage)
	}
	if lease.Attempts > 0 {
		why = append(why, feed.StuckFailing)
	}
	return why
}

// hasOutage reports whether the owner of a lease sees an outage. Without an owner of ours the note may be outdated.
func hasOutage(lease feed.Record) bool {
	return lease.Epoch != "" && !notes.ReadOutage(lease.Properties[notes.OutageProperty]).IsZero()
}

// isAsStillAs reports whether the oldest pending change of a lease is the same as before. With keys that are set aside,
// the position moves past changes that are pending.
func (s seenLag) isAsStillAs(before seenLag) bool {
	return s.Pending > 0 && before.Pending > 0 && s.Oldest.Equal(before.Oldest) &&
		(s.Lease.Position == before.Lease.Position || s.SetAside > 0)
}

// paceSince returns how fast a lease was between two estimates; nil if that is unknown.
func (u *measuredUnit) paceSince(ctx context.Context, before, now seenLag, parts []feed.Range) *Pace {
	spent := now.at.Sub(before.at).Seconds()
	handled, exact, known := u.countHandled(ctx, before.Lag, now.Lag, parts)
	if !known || spent <= 0 || now.Shared != before.Shared {
		return nil
	}
	p := &Pace{PerSecond: float64(handled) / spent, Exact: exact, CatchUp: Never}
	falls := float64(before.Pending-now.Pending) / spent
	if left := float64(now.Pending) / falls; now.Pending == 0 {
		p.CatchUp = 0
	} else if falls > 0 && left < Never.Seconds() {
		p.CatchUp = time.Duration(left * float64(time.Second))
	}
	return p
}

// countHandled returns how many changes a lease has handled between two estimates. If the source counts, this is how
// many would be pending now at the earlier position, less those that are pending.
func (u *measuredUnit) countHandled(ctx context.Context, before, now Lag, parts []feed.Range) (n int64, exact,
	known bool,
) {
	switch {
	case before.Lease.Range != now.Lease.Range || before.Lease.State != now.Lease.State:
		return 0, false, false
	case before.Lease.Position == now.Lease.Position && before.SetAside == 0 && now.SetAside == 0:
		return 0, before.Exact && now.Exact, true
	case !u.counts.Load():
		from, ok := records.TokenLSN(u.source, before.Lease.Position.Token)
		to, also := records.TokenLSN(u.source, now.Lease.Position.Token)
		return to - from, false, ok && also && to >= from
	}
	again := Lag{Lease: before.Lease, Exact: true}
	_, _, err := u.addLag(ctx, &again, parts)
	n = again.Pending - now.Pending
	return n, again.Exact && now.Exact, err == nil && n >= 0 // an operator may have moved the position back
}

// totalOf adds lags up.
func totalOf(lags []Lag) Lag {
	t := Lag{Exact: true, Pace: &Pace{Exact: true}}
	open := []feed.Record{}
	counted := 0
	for i := range lags {
		l := &lags[i]
		if errors.Is(l.Err, feed.ErrOverlap) {
			continue
		}
		open = append(open, feed.Record{Range: l.Lease.Range, State: l.Lease.State})
		t.Stuck = append(t.Stuck, l.Stuck...)
		if !l.Known() {
			t.Err = cmp.Or(t.Err, fmt.Errorf("lease %s: %w", l.Lease.Token, l.Err))
			continue
		}
		t.addLag(*l, counted == 0)
		counted++
	}
	slices.Sort(t.Stuck)
	t.Stuck = slices.Compact(t.Stuck)
	for _, hole := range records.Holes(feed.FullRange(), open) {
		t.Err = cmp.Or(t.Err, fmt.Errorf("%w: %s", feed.ErrHole, hole))
	}
	if t.Err != nil {
		t.Watermark, t.Pace, t.Exact = time.Time{}, nil, false
	}
	if overlap(open) {
		t.Exact, t.Shared = false, true
	}
	return t
}

// addLag adds a known lag to a total.
func (l *Lag) addLag(o Lag, first bool) {
	l.addPart(o)
	l.Held, l.SetAside = l.Held+o.Held, l.SetAside+o.SetAside
	switch {
	case first:
		l.Watermark = o.Watermark
	case o.Watermark.Before(l.Watermark): // zero is before all others
		l.Watermark = o.Watermark
	}
	if l.Pace == nil || o.Pace == nil {
		l.Pace = nil
		return
	}
	l.Pace.PerSecond += o.Pace.PerSecond
	l.Pace.Exact = l.Pace.Exact && o.Pace.Exact
	l.Pace.CatchUp = max(l.Pace.CatchUp, o.Pace.CatchUp)
}

// overlap reports whether two leases that work cover the same keys.
func overlap(leases []feed.Record) bool {
	live := slices.DeleteFunc(slices.Clone(leases), func(l feed.Record) bool {
		return l.State != feed.StateLive || l.Range.Empty()
	})
	slices.SortFunc(live, func(a, b feed.Record) int { return strings.Compare(a.Range.Min, b.Range.Min) })
	end := ""
	for _, l := range live {
		if l.Range.Min < end {
			return true
		}
		end = max(end, l.Range.Max)
	}
	return false
}
