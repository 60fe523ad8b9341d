package admin

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/keyspace"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/records"
	"github.com/millrace/changefeed/internal/sentence"
)

// State says whether anybody works on a lease, as a word for programs. A state that this version does not know is the
// word in the document.
type State string

// The states of a lease. The document of a lease contains only the last three and live.
const (
	StateLive      State = "live"
	StateSilent    State = "silent"    // the owner has been silent for longer than an owner at work
	StateExpired   State = "expired"   // the owner has been silent for too long: others may take the lease
	StateFree      State = "free"      // no owner, though instances run
	StateStopped   State = "stopped"   // no owner and no pause, and no instance of the unit runs
	StatePaused    State = "paused"    // no owner, and nobody may take the lease: see [Unit.Pause]
	StateBroken    State = "broken"    // the document is no lease, so nobody works on it
	StateHole      State = "hole"      // of an [Explanation]: keys that no lease covers
	StateSplitting State = "splitting" // other leases are about to replace it, with or without an owner
	StateRetired   State = "retired"   // replaced by other leases, or created too late and counted as deleted
)

// Lease is the present state of a lease of the unit. The record has the token, the range, the owner and the position.
type Lease struct {
	// Record is the stored record, without the range if an old lease does not store the range and nobody knows the
	// range. The State is retired if the lease counts as deleted, because it was created too late.
	feed.Record

	State  State
	Since  time.Time     // since when the lease has no owner at work, by the store's clock; zero if there is an owner
	Silent time.Duration // since the last write

	Lag     *changefeed.Lag // nil if unknown, and of a lease that others have replaced
	Unknown error           // why Lag is unknown
	Stuck   []feed.Stuck    // why nobody handles the pending changes; empty if somebody does, or if there are none

	Held         []string         // partition keys whose changes are parked until they are released
	SetAside     []string         // partition keys that fail, and that are read again by key
	FailingSince time.Time        // since when changes fail, by the owner's clock; zero if none does
	Outage       time.Time        // since when the owner sees an outage, by the owner's clock; zero without an outage
	Slow         []feed.SlowBatch // batches in the handler for much longer than usual; times by the store's clock

	Pause    *Request // the request that pauses the lease; nil if there is none
	IsDefied bool     // the owner has not obeyed the pause yet
	// IsAbandoned says that the owner has been silent for too long, and that no instance of the unit runs.
	IsAbandoned bool

	Overlaps []string     // the ids of leases that cover some of the same keys
	Parts    []feed.Range // of a lease that is being split: the ranges of the leases that replace it
	Missing  []feed.Range // of these parts: those without a lease yet

	Notes []string // remarks for the operator
}

// noteFree is the note of a free lease.
const noteFree = "free: nobody works on it"

func (l *Lease) note(format string, args ...any) {
	l.Notes = append(l.Notes, fmt.Sprintf(format, args...))
}

// InHand is how long the slowest batch of the lease has been in the handler, if that is much longer than usual;
// otherwise 0.
func (l *Lease) InHand(now time.Time) (longest time.Duration) {
	for _, b := range l.Slow {
		longest = max(longest, now.Sub(b.Since))
	}
	return longest
}

// newLease returns a lease as described by the record alone.
func newLease(record feed.Record, now time.Time) Lease {
	if records.IsLate(record) {
		record.State = feed.StateRetired
	}
	l := Lease{
		Record: record, State: State(record.State.String()), Silent: max(0, now.Sub(record.Updated)),
		Held: HeldKeys(record),
	}
	for _, key := range l.keysAside() {
		l.SetAside = append(l.SetAside, key.Key)
	}
	switch {
	case record.Err != nil && !errors.Is(record.Err, feed.ErrForeignLease):
		l.State = StateBroken
	case l.State.isComputed(): // of a later version, which means something else by the word
		l.State = "later " + l.State
	}
	return l
}

// describe adds the known facts about a lease, without the lag.
func (l *Lease) describe(of *Listing) {
	now, record := of.At, l.Record
	l.noteOwner(of)
	if record.State == feed.StateSplitting && l.joinedInto() != "" {
		l.note("it is being joined with a neighbouring lease into %s", l.joinedInto())
	} else if record.State == feed.StateSplitting {
		l.note("it is being replaced by leases of its parts, because its partition was split, or to have more leases")
	}
	if record.Fence.After(now) {
		l.note("its new owner begins in %v, when the last one must have stopped",
			sentence.Exact(record.Fence.Sub(now).Round(time.Second)))
	}
	if record.Attempts > 0 {
		l.note("the batch after its position has failed %s", sentence.Count(record.Attempts, "time"))
	}
	if n := len(l.Held); n > 0 {
		l.note("partition keys held: %d, %s: see changefeed dlq list, or free one with changefeed dlq release "+
			"--key KEY", n, sentence.FirstOf(l.Held))
	}
	if n := len(l.SetAside); n > 0 {
		l.note("partition keys set aside, to be read again: %d", n)
	}
	if since := outageOf(record); !since.IsZero() && !l.isOverdue() {
		l.Outage = since.UTC()
		l.note("outage since %s", sentence.Clock(since, now))
	}
}

// breakBecause makes the lease a document that is no valid lease.
func (l *Lease) breakBecause(err error) {
	l.Err, l.Unknown, l.State, l.Since = err, err, StateBroken, time.Time{}
	l.Notes = slices.DeleteFunc(l.Notes, func(note string) bool { return note == noteFree })
	l.note("%v", err)
}

// isComputed reports whether a state is computed, so that no document of this version has it.
func (s State) isComputed() bool {
	switch s {
	case StateSilent, StateExpired, StateFree, StateStopped, StatePaused, StateBroken, StateHole:
		return true
	}
	return false
}

// isLost reports whether the source does not have the changes after the position.
func (l *Lease) isLost() bool {
	return slices.ContainsFunc(l.Stuck, func(why feed.Stuck) bool {
		return why == feed.StuckAhead || why == feed.StuckTooOld || why == feed.StuckNoStart
	})
}

// isForeign reports whether a valid lease belongs to a processor of another make.
func (l *Lease) isForeign() bool { return l.State != StateBroken && l.Owner != "" && l.Epoch == "" }

// HeldKeys returns the partition keys whose changes are parked until they are released, from a lease.
func HeldKeys(lease feed.Record) []string {
	// an outdated note has no keys
	held, _ := notes.ReadHeld(lease.Properties[notes.HeldProperty], notes.Place{Position: lease.Position.Token})
	return held.Keys
}

// keysAside returns the partition keys that are read again by key; an outdated note has none.
func (l *Lease) keysAside() []notes.AsideKey {
	aside, _ := notes.ReadAside(l.Properties[notes.AsideProperty], notes.Place{Position: l.Position.Token})
	return aside.Keys
}

// joinedInto returns the range of the lease that is to replace this lease and a neighbouring lease; empty if there is
// none.
func (l *Lease) joinedInto() string {
	joining, _ := notes.ReadJoining(l.Properties[notes.JoiningProperty])
	return joining.Into
}

// addFailing adds since when changes fail.
func (l *Lease) addFailing() {
	for _, run := range l.triedRuns() {
		if at := run.FailingSince(); !at.IsZero() && (l.FailingSince.IsZero() || at.Before(l.FailingSince)) {
			l.FailingSince = at
		}
	}
}

// triedRuns returns how often the handler has received the changes that are not done. The partitions of the source are
// not known here, and nobody compares the LSNs with others.
func (l *Lease) triedRuns() []notes.Run {
	var done notes.Done
	var aside notes.Aside
	at := l.Position.Token
	text := cmp.Or(l.Properties[notes.DoneProperty], l.Properties[notes.FailingProperty])
	if json.Unmarshal([]byte(text), &done) != nil || done.At != at {
		done.Tried = nil
	}
	runs := done.Tried
	if json.Unmarshal([]byte(l.Properties[notes.AsideProperty]), &aside) == nil && aside.At == at {
		for _, key := range aside.Keys {
			runs = append(runs, key.Tried...)
		}
	}
	return runs
}

// outageOf returns since when the owner of a lease sees an outage; zero if there is none. If a lease has no owner of
// ours, the property may be outdated.
func outageOf(lease feed.Record) time.Time {
	if lease.Epoch == "" {
		return time.Time{}
	}
	return notes.ReadOutage(lease.Properties[notes.OutageProperty])
}

// waitingText says how many changes wait for the next instance; if the number is unknown, another note says why.
func (l *Lease) waitingText() string {
	switch {
	case l.Lag == nil:
		return ""
	case l.Lag.Pending == 0 && len(l.Held) > 0:
		return ", nothing is waiting but the changes of held keys, in dead letters"
	case l.Lag.Pending == 0:
		return ", nothing is waiting"
	case l.Lag.Pending == 1:
		return ", " + markOf(l.Lag) + "1 change is waiting"
	}
	return fmt.Sprintf(", %s%d changes are waiting", markOf(l.Lag), l.Lag.Pending)
}

// markOf returns the mark before a lag that is not an exact count.
func markOf(lag *changefeed.Lag) string {
	switch {
	case lag.Exact:
		return ""
	case lag.Shared:
		return "≤"
	}
	return "~"
}

// addParts adds the parts of the leases that are being split.
func (l *Listing) addParts() {
	for i := range l.Leases {
		lease := &l.Leases[i]
		if lease.Record.State != feed.StateSplitting {
			continue
		}
		parts, ok := keyspace.Split(lease.Range, lease.Properties[notes.PartsProperty])
		if !ok {
			continue
		}
		for _, part := range parts {
			lease.Parts = append(lease.Parts, part)
			if !slices.ContainsFunc(l.Leases, func(other Lease) bool {
				return other.Range == part && other.Record.State != feed.StateRetired
			}) {
				lease.Missing = append(lease.Missing, part)
			}
		}
	}
}
