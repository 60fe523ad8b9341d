package records

import (
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// What operators ask of whole leases

// IsMarkedPaused reports whether a lease has the mark of a pause: nobody may take it.
func IsMarkedPaused(l feed.Record) bool { return l.Properties[notes.PausedProperty] != "" }

// MarkPaused marks a lease as paused.
func MarkPaused(l *feed.Record, since time.Time) {
	SetProperty(l, notes.PausedProperty, notes.Paused(since))
}

// PausesAsked returns the pauses for which operators have asked, and which are not over.
func (v *View) PausesAsked() (all []feed.Pause) {
	for _, q := range v.Kind(feed.KindRequest) {
		if c, err := notes.ReadControl(q.Properties); err == nil && c.Action == notes.Pause &&
			q.State == feed.StateLive {
			all = append(all, feed.Pause{
				Range: feed.Range{Min: c.Min, Max: c.Max}, By: c.By, Reason: c.Why, Since: q.Updated,
			})
		}
	}
	return all
}

// Pauses returns the ranges that operators have paused.
func (v *View) Pauses() (ranges []feed.Range) {
	for _, p := range v.PausesAsked() {
		ranges = append(ranges, p.Range)
	}
	return ranges
}

// IsPaused reports whether nothing of a lease may be delivered. A splitting lease delivers nothing in any case, and
// its owner goes on until the leases of the parts exist.
func IsPaused(l feed.Record, pauses []feed.Range) bool {
	if l.State != feed.StateLive {
		return false
	}
	if IsMarkedPaused(l) {
		return true
	}
	return slices.ContainsFunc(pauses, l.Range.Overlaps)
}

// HasOldMark returns whether a lease has the mark of a pause that is not among the ranges of the pauses.
func HasOldMark(pauses []feed.Range) func(feed.Record) bool {
	return func(l feed.Record) bool {
		return IsMarkedPaused(l) && !slices.ContainsFunc(pauses, l.Range.Overlaps)
	}
}

// LastReset returns the last reset of a lease.
func LastReset(l feed.Record) notes.LastReset {
	return notes.ReadLastReset(l.Properties[notes.ResetProperty])
}

// ResetTo makes a lease without an owner that continues at a position, as if it had never been read from there. If
// another call has reset the lease since by was chosen, the number is higher than that of the other call: see package
// rank. A write that is repeated keeps its number.
func ResetTo(l *feed.Record, at feed.Position, by notes.LastReset) {
	if old := LastReset(*l); old.Caller == by.Caller {
		by.On = max(by.On, old.On)
	} else {
		by.On = max(by.On, old.On+1)
	}
	l.Position, l.Attempts, l.Owner, l.Epoch = at, 0, "", ""
	for _, note := range notes.AboutChanges() {
		SetProperty(l, note, "")
	}
	SetProperty(l, notes.ResetProperty, by.String())
}

// PositionOf returns the position of a request.
func PositionOf(to notes.Target) (at feed.Position, err error) {
	at.Token = to.Token
	if to.Start != "" {
		if at.Start, err = feed.ParseStart(notes.TimeOf(to.Start)); err != nil {
			return at, fmt.Errorf("start of the request is %q: %w", to.Start, err)
		}
	}
	if at == (feed.Position{}) {
		return at, fmt.Errorf("the request has no position")
	}
	return at, nil
}

// AsideFrom returns the position from which a key of a lease is read that is set aside. A replay has no start: changes
// from before the start of the lease come again.
func AsideFrom(lease feed.Position, k notes.AsideKey) feed.Position {
	if k.Start == notes.NoStart {
		return feed.At(k.From)
	}
	return feed.Position{Token: k.From, Start: lease.Start}
}

// SetAsideFrom is the inverse of [AsideFrom].
func SetAsideFrom(lease feed.Position, k *notes.AsideKey, at feed.Position) {
	k.From, k.Start = at.Token, ""
	if at.Start.IsZero() && !lease.Start.IsZero() {
		k.Start = notes.NoStart
	}
}

// TargetOf returns a position in the form of a request.
func TargetOf(at feed.Position) notes.Target {
	to := notes.Target{Token: at.Token}
	if !at.Start.IsZero() {
		to.Start = notes.PlainTime(at.Start.String())
	}
	return to
}
