package changefeed

import (
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/balance"
	"github.com/millrace/changefeed/internal/notes"
)

// isKnownState reports whether this version knows the state; see [feed.State].
func isKnownState(s feed.State) bool {
	return s == feed.StateLive || s == feed.StateSplitting || s == feed.StateRetired
}

// isForeign reports whether the owner is another kind of processor.
func isForeign(l feed.Record) bool { return !l.Free() && l.Epoch == "" }

// ownerOf is the process that the lease belongs to.
func ownerOf(l feed.Record) balance.Owner { return balance.Owner{Instance: l.Owner, Epoch: l.Epoch} }

// isExpired reports whether the owner has been silent for too long by the store's clock.
func isExpired(l feed.Record, now time.Time, expiration time.Duration) bool {
	return now.After(expiryOf(l, expiration))
}

// expiryOf is the last moment, by the store's clock, at which the lease is its owner's.
func expiryOf(l feed.Record, expiration time.Duration) time.Time {
	return l.Updated.Add(max(expiration, l.Expiration) + clockGrain)
}

// termOf is the number of the lease's owner.
func termOf(l feed.Record) int64 { return notes.Number(l.Properties, notes.TermProperty) }

// beginTerm makes the lease a new owner's.
func beginTerm(l *feed.Record) {
	setProperty(l, notes.DueProperty, "")
	setProperty(l, notes.TermProperty, notes.PlainNumber(termOf(*l)+1))
}

// setProperty changes a property of this copy of the record alone; an empty text removes it.
func setProperty(l *feed.Record, name, text string) {
	l.Properties = notes.Set(l.Properties, name, text)
}

// takeableAt is when another owner may take the lease.
func takeableAt(l feed.Record, expiration time.Duration) time.Time {
	if l.Free() {
		return l.Fence
	}
	return expiryOf(l, expiration)
}

// clockGrain covers stores that keep whole seconds: a record written at 10.9 s says 10.
const clockGrain = time.Second
