package unit

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/variants"
)

// silence is how long an owner may be silent if the lease does not say: the default of [changefeed.Options].
const silence = time.Minute

// The states of a lease without a working owner, or with an owner that may not work; records do not contain these
// states.
const (
	StateFree    = "free"
	StateStopped = "stopped" // free, and no instance of the unit runs
	StateExpired = "expired"
	StateSilent  = "silent" // for longer than an owner at work is
	StateBroken  = "broken" // the document is no lease
	StatePaused  = "paused" // free, and nobody may take it: see package admin
)

// noteFree is the note of a free lease.
const noteFree = "free: nobody works on it"

// usual is how long a working owner may be silent with the defaults of [changefeed.Options], in hundredths of the
// expiration: half as long again as between two renewals.
const usual = 45

// noteUnowned sets the state of a live lease whose owner does not work, or may not. Other states say more.
func (r *Row) noteUnowned(state string) {
	if r.record.State == feed.StateLive {
		r.State = state
	}
}

// describe makes the row of a record, with the notes that need no other record.
func describe(record feed.Record, now time.Time) Row {
	r := Row{
		Kind: KindLease, ID: record.ID, Lease: record.Token, Owner: record.Owner, Epoch: record.Epoch,
		Position: record.Position.String(),
		Mode:     record.Mode.String(), State: record.State.String(), Attempts: record.Attempts,
		Held: len(Held(record)), HeldKeys: Held(record), SetAside: len(setAside(record)),
		Silent: max(0, now.Sub(record.Updated).Seconds()), record: record,
	}
	if record.Position == (feed.Position{}) {
		r.Position = "" // of another kind of processor, and not read yet
	}
	quiet := now.Sub(record.Updated)
	allowed := cmp.Or(record.Expiration, silence)
	r.noteOwner(now, quiet, allowed)
	joining, isJoining := notes.ReadJoining(record.Properties[notes.JoiningProperty])
	switch {
	case record.State != feed.StateSplitting:
	case isJoining:
		r.note("it is being joined with a neighbouring lease into %s", joining.Into)
	default:
		r.note("its partition was split: its owner makes the leases that replace it")
	}
	if record.Fence.After(now) {
		r.note("its new owner begins in %v, when the last one must have stopped",
			record.Fence.Sub(now).Round(time.Second))
	}
	if record.Attempts > 0 {
		r.note("the batch after its position has failed %s", terminal.Count(record.Attempts, "time"))
	}
	if r.Held > 0 {
		r.note("partition keys held: %d, %s: see changefeed dlq list, or free one with changefeed dlq release "+
			"--key KEY", r.Held, firstOf(r.HeldKeys))
	}
	if r.SetAside > 0 {
		r.note("partition keys set aside, to be read again: %d", r.SetAside)
	}
	if since := outage(record); !since.IsZero() && quiet <= allowed {
		r.Outage = since.UTC().Format(time.RFC3339)
		r.note("outage since %s", clock(since, now))
	}
	return r
}

// noteOwner says whether a lease has an owner who works, who has been silent for some time; allowed is how long an
// owner may be silent.
func (r *Row) noteOwner(now time.Time, quiet, allowed time.Duration) {
	record := r.record
	switch {
	case record.Err != nil:
		r.note("%v", record.Err)
		if record.Kind == feed.KindLease {
			r.State = StateBroken
		}
	case record.Kind != feed.KindLease:
	case record.State == feed.StateRetired:
		r.note("replaced by others, and left because it could not be deleted: delete it")
	case record.State != feed.StateLive && record.State != feed.StateSplitting:
		r.note("its state %q belongs to a later version", record.State)
	case record.Free() && record.Properties[notes.PausedProperty] != "":
		r.noteUnowned(StatePaused)
		r.note("paused since %s: changefeed leases resume ends that",
			clock(notes.PausedSince(record.Properties[notes.PausedProperty]), now))
	case record.Free():
		r.noteUnowned(StateFree)
		r.note(noteFree)
	case quiet > allowed:
		r.noteUnowned(StateExpired)
		r.note("expired: its owner has been silent for %v, %v are allowed", quiet.Round(time.Second), allowed)
	case quiet > allowed*usual/100:
		r.noteUnowned(StateSilent)
		r.note("its owner has been silent for %v: others take over in %v", quiet.Round(time.Second),
			(allowed - quiet).Round(time.Second))
	case record.Epoch == "":
		r.note("owned by a processor of another make")
	}
}

// describeInstance makes the row the row of an instance.
func (r *Row) describeInstance(now time.Time) {
	r.Kind = KindInstance
	if v, known := variants.Read(r.record); known {
		r.Runs = &v
	}
	quiet := now.Sub(r.record.Updated).Round(time.Second)
	switch {
	case r.record.State == feed.StateRetired:
		r.gone = true
		r.note("stopped %v ago", quiet)
	case now.Sub(r.record.Updated) > cmp.Or(r.record.Expiration, silence):
		r.gone = true
		r.note("gone: it has shown no life for %v", quiet)
	}
}

// A Presence is how an instance is.
type Presence string

// The values of a Presence.
const (
	Running Presence = "running"
	Ended   Presence = "stopped"
	Gone    Presence = "gone" // it has shown no life for too long, and has not stopped
)

// Presence returns how the instance of a row is.
func (r *Row) Presence() Presence {
	switch {
	case !r.gone:
		return Running
	case r.record.State == feed.StateRetired:
		return Ended
	}
	return Gone
}

// Skew returns by how much the clock of the store is ahead of that of the record's writer. The time that the record was
// on its way is a part of that. If the writer's clock is not in the record, known is false.
func (r *Row) Skew() (skew time.Duration, known bool) {
	if r.record.Timestamp.IsZero() || r.record.Updated.IsZero() {
		return 0, false
	}
	return r.record.Updated.Sub(r.record.Timestamp), true
}

// IsAtWork reports whether an instance of the unit runs, or may run as the owner of a lease.
func (u *Unit) IsAtWork() bool {
	return slices.ContainsFunc(u.Rows, func(r Row) bool { return r.isAtWork() })
}

// isAtWork reports whether a row describes a running instance, or a lease whose owner may run.
func (r *Row) isAtWork() bool {
	switch r.Kind {
	case KindInstance:
		return !r.gone
	case KindLease:
		return r.Owner != "" && r.record.State != feed.StateRetired && r.State != StateExpired &&
			r.State != StateBroken
	}
	return false
}

// breakBecause makes the row that of a document which is no valid lease.
func (r *Row) breakBecause(err error) {
	r.record.Err, r.State = err, StateBroken
	r.Notes = slices.DeleteFunc(r.Notes, func(note string) bool { return note == noteFree })
	r.note("%v", err)
}

// IsDamaged reports whether a record other than a lease cannot be read.
func (r *Row) IsDamaged() bool { return r.Kind != KindLease && r.record.Err != nil }

// pauseOf returns the request that pauses a lease, if there is one.
func (u *Unit) pauseOf(lease *Row) (c notes.Control, found bool) {
	for i := range u.Rows {
		r := &u.Rows[i]
		c, err := notes.ReadControl(r.record.Properties)
		if r.Kind == KindRequest && err == nil && c.Action == notes.Pause && r.State == asked &&
			lease.record.Range.Overlaps(feed.Range{Min: c.Min, Max: c.Max}) {
			return c, true
		}
	}
	return c, false
}

// markDefiant marks the leases whose owners have not obeyed a pause.
func (u *Unit) markDefiant() {
	for i := range u.Rows {
		r := &u.Rows[i]
		if r.Kind == KindLease && r.Owner != "" && r.record.State == feed.StateLive && r.State != StateBroken {
			_, r.IsDefiant = u.pauseOf(r)
		}
	}
}

// noteEnded marks the free leases of a unit as stopped if the instances have ended, and says which changes wait for the
// next instance. If the unit works, a free lease is another matter: an instance should have taken the lease. If the
// instances were killed, their leases have owners still.
func (u *Unit) noteEnded() {
	if u.IsAtWork() {
		return
	}
	for i := range u.Rows {
		r := &u.Rows[i]
		if r.Kind == KindLease {
			r.gone = r.State == StateExpired
		}
		if r.Kind != KindLease || r.State != StateFree {
			continue
		}
		r.State = StateStopped
		r.Notes[slices.Index(r.Notes, noteFree)] = "stopped: no instance runs" + r.waitingText()
	}
}

// waitingText says how many changes wait for the next instance; if the number is unknown, another note says why.
func (r *Row) waitingText() string {
	switch {
	case r.Lag == nil:
		return ""
	case *r.Lag == 0:
		return ", nothing is waiting"
	case *r.Lag == 1:
		return ", " + mark(r.Exact, r.Shared) + "1 change is waiting"
	}
	return fmt.Sprintf(", %s%d changes are waiting", mark(r.Exact, r.Shared), *r.Lag)
}
