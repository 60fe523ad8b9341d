package records

import (
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/balance"
)

// IsKnownState reports whether this version knows the state; see [feed.State].
func IsKnownState(s feed.State) bool {
	return s == feed.StateLive || s == feed.StateSplitting || s == feed.StateRetired
}

// IsForeign reports whether the owner is another kind of processor.
func IsForeign(l feed.Record) bool { return !l.Free() && l.Epoch == "" }

// OwnerOf returns the owner of the lease.
func OwnerOf(l feed.Record) balance.Owner { return balance.Owner{Instance: l.Owner, Epoch: l.Epoch} }

// IsExpired reports whether the owner has been silent for too long by the store's clock.
func IsExpired(l feed.Record, now time.Time, expiration time.Duration) bool {
	return now.After(expiryOf(l, expiration))
}

// expiryOf returns the last moment, by the store's clock, at which the lease belongs to its owner.
func expiryOf(l feed.Record, expiration time.Duration) time.Time {
	return l.Updated.Add(max(expiration, l.Expiration) + ClockGrain)
}

// TakeableAt returns when another owner may take the lease.
func TakeableAt(l feed.Record, expiration time.Duration) time.Time {
	if l.Free() {
		return l.Fence
	}
	return expiryOf(l, expiration)
}

// TermOf returns the number of the lease's owner.
func TermOf(l feed.Record) int64 { return notes.Number(l.Properties, notes.TermProperty) }

// GiveTo prepares the lease for being handed over to another instance, or to none.
func GiveTo(l *feed.Record, to balance.Owner) {
	l.Owner, l.Epoch = to.Instance, to.Epoch
	given := ""
	if to != (balance.Owner{}) {
		given = notes.PlainNumber(TermOf(*l))
	}
	SetProperty(l, notes.GivenProperty, given)
}

// IsUnbegun reports whether a lease was handed over to its owner, and the owner has not begun. An owner begins with a
// write of the next term, also one of an older version.
func IsUnbegun(l feed.Record) bool {
	given := l.Properties[notes.GivenProperty]
	return l.State == feed.StateLive && !l.Free() && given != "" && given == notes.PlainNumber(TermOf(l))
}

// BeginTerm prepares the lease for a new owner.
func BeginTerm(l *feed.Record) {
	SetProperty(l, notes.GivenProperty, "")
	SetProperty(l, notes.DueProperty, "")
	SetProperty(l, notes.MakerProperty, "")
	SetProperty(l, notes.TermProperty, notes.PlainNumber(TermOf(*l)+1))
}

// KeepTerm keeps the number of a lease that is made anew from going back: the number of a new lease is a time, and the
// clock of a store may be set back.
func KeepTerm(l *feed.Record, old feed.Record) {
	if n := TermOf(old); n > TermOf(*l) {
		SetProperty(l, notes.TermProperty, notes.PlainNumber(n))
	}
}

// SetProperty changes a property of this copy of the record only; an empty text removes the property.
func SetProperty(l *feed.Record, name, text string) {
	l.Properties = notes.Set(l.Properties, name, text)
}

// ClockGrain is for stores that keep whole seconds: a record written at 10.9 s says 10.
const ClockGrain = time.Second
