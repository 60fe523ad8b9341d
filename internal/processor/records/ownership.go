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

// OwnerOf is the process that the lease belongs to.
func OwnerOf(l feed.Record) balance.Owner { return balance.Owner{Instance: l.Owner, Epoch: l.Epoch} }

// IsExpired reports whether the owner has been silent for too long by the store's clock.
func IsExpired(l feed.Record, now time.Time, expiration time.Duration) bool {
	return now.After(expiryOf(l, expiration))
}

// expiryOf is the last moment, by the store's clock, at which the lease is its owner's.
func expiryOf(l feed.Record, expiration time.Duration) time.Time {
	return l.Updated.Add(max(expiration, l.Expiration) + ClockGrain)
}

// TakeableAt is when another owner may take the lease.
func TakeableAt(l feed.Record, expiration time.Duration) time.Time {
	if l.Free() {
		return l.Fence
	}
	return expiryOf(l, expiration)
}

// TermOf is the number of the lease's owner.
func TermOf(l feed.Record) int64 { return notes.Number(l.Properties, notes.TermProperty) }

// BeginTerm makes the lease a new owner's.
func BeginTerm(l *feed.Record) {
	SetProperty(l, notes.DueProperty, "")
	SetProperty(l, notes.MakerProperty, "")
	SetProperty(l, notes.TermProperty, notes.PlainNumber(TermOf(*l)+1))
}

// SetProperty changes a property of this copy of the record alone; an empty text removes it.
func SetProperty(l *feed.Record, name, text string) {
	l.Properties = notes.Set(l.Properties, name, text)
}

// ClockGrain covers stores that keep whole seconds: a record written at 10.9 s says 10.
const ClockGrain = time.Second
