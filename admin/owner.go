package admin

import (
	"cmp"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/processor/records"
	"github.com/millrace/changefeed/internal/sentence"
)

// Whether a lease has an owner at work, and who may take it otherwise. A lease that is being split, cut or joined needs
// an owner as a live lease does, although its state says only that.

// defaultSilence is how long an owner may be silent if the lease does not say: the default of the processor's options.
const defaultSilence = defaultExpiration

// How long a working owner may be silent, in hundredths. An owner that has just made a checkpoint may pass over a beat
// if its next renewal comes before 45 hundredths of the expiration. The presence of an instance lasts 2.5 renewals, and
// no longer than the leases: so a shorter presence tells the time between two renewals, of which 1.6 are 64 hundredths
// of the presence. Of other owners it is only known that they give a lease up after 90 hundredths of the expiration.
const (
	usualOfExpiration = 45
	usualOfPresence   = 64
	trustOfExpiration = 90
)

// allowed is how long the owner of the lease may be silent before others take the lease.
func (l *Lease) allowed() time.Duration { return cmp.Or(l.Expiration, defaultSilence) }

// isOverdue reports whether the owner has been silent for longer than an owner may be, also during a split.
func (l *Lease) isOverdue() bool { return l.State == StateExpired || l.Silent > l.allowed() }

// isAtWork reports whether the owner of the lease may run.
func (l *Lease) isAtWork() bool {
	return l.Owner != "" && l.Record.State != feed.StateRetired && l.State != StateBroken && !l.isOverdue()
}

// usualSilence is how long the owner of a lease may be silent while it works as it should.
func (l *Listing) usualSilence(lease *Lease) time.Duration {
	allowed := lease.allowed()
	for i := range l.Instances {
		host := &l.Instances[i]
		if shown := host.Expiration; host.owns(lease) && 0 < shown && shown < allowed {
			return max(allowed*usualOfExpiration/100, shown*usualOfPresence/100)
		}
	}
	return allowed * trustOfExpiration / 100
}

// standing returns how a lease is because of its owner or without one, also if the lease is being split or joined. Of a
// lease with an owner at work, and of other leases, this is the state.
func (l *Listing) standing(lease *Lease) State {
	if lease.State != StateSplitting {
		return lease.State
	}
	return cmp.Or(l.unowned(lease), lease.State)
}

// unowned returns the state of a live lease whose owner does not work, or may not; empty if its owner works.
func (l *Listing) unowned(lease *Lease) State {
	switch {
	case lease.Free() && records.IsMarkedPaused(lease.Record):
		return StatePaused
	case lease.Free() && l.IsAtWork():
		return StateFree
	case lease.Free():
		return StateStopped
	case lease.isOverdue():
		return StateExpired
	case lease.Silent > l.usualSilence(lease):
		return StateSilent
	}
	return ""
}

// hasOthers reports whether an instance other than the owner of a lease runs, or may run, and so may take the lease.
func (l *Listing) hasOthers(than *Lease) bool {
	return slices.ContainsFunc(l.Instances, func(i Instance) bool {
		return i.Presence == Running && !i.isOwner(than)
	}) || slices.ContainsFunc(l.Leases, func(lease Lease) bool {
		return lease.isAtWork() && (lease.Owner != than.Owner || lease.Epoch != than.Epoch)
	})
}

// noteOwner says whether the lease has an owner who works.
func (l *Lease) noteOwner(of *Listing) {
	if l.Err != nil {
		l.note("%v", l.Err)
	}
	switch {
	case l.State == StateBroken:
	case l.isLate():
		l.note("created too late, so it counts as deleted: instances remove it, or use it if no other lease has its keys")
	case l.Record.State == feed.StateRetired:
		l.note("replaced by others, and left because it could not be deleted: delete it")
	case !records.IsKnownState(l.Record.State):
		l.note("its state %q belongs to a later version", l.Record.State)
	default:
		l.noteStanding(of)
	}
}

// noteStanding says how a live lease, or one that is being split or joined, is because of its owner.
func (l *Lease) noteStanding(of *Listing) {
	state, quiet := of.unowned(l), l.Silent.Round(time.Second)
	switch state {
	case StatePaused:
		l.Since = notes.PausedSince(l.Properties[notes.PausedProperty])
		l.note("paused since %s: changefeed leases resume ends that", sentence.Clock(l.Since, of.At))
	case StateFree, StateStopped: // [Listing.markStopped] decides, when all leases are described
		state, l.Since = StateFree, l.Updated
		l.note(noteFree)
	case StateExpired:
		l.Since = l.Updated.Add(l.allowed())
		l.note("expired: its owner has been silent for %s, %s are allowed", sentence.Exact(quiet),
			sentence.Exact(l.allowed()))
	case StateSilent:
		l.Since = l.Updated
		if of.hasOthers(l) {
			l.note("its owner has been silent for %v: others take over in %s", sentence.Exact(quiet),
				sentence.Exact((l.allowed() - l.Silent).Round(time.Second)))
		} else {
			l.note("its owner has been silent for %v, and no other instance runs to take over", sentence.Exact(quiet))
		}
	default:
		if l.Epoch == "" {
			l.note("owned by a processor of another make")
		}
		return
	}
	if l.Record.State == feed.StateLive {
		l.State = state
	}
}

// isLate reports whether the lease was created too late, and counts as deleted.
func (l *Lease) isLate() bool { return records.IsLate(l.Record) }

// markStopped marks the free leases of a unit as stopped if the instances have ended, and says which changes wait for
// the next instance. If the unit works, a free lease is another matter: an instance should have taken the lease. If the
// instances were killed, their leases have owners still.
func (l *Listing) markStopped() {
	if l.IsAtWork() {
		return
	}
	for i := range l.Leases {
		lease := &l.Leases[i]
		lease.IsAbandoned = lease.Owner != "" && lease.isOverdue() && lease.Record.State != feed.StateRetired &&
			lease.State != StateBroken
		if lease.State == StateFree {
			lease.State = StateStopped
		}
		if at := slices.Index(lease.Notes, noteFree); at >= 0 {
			lease.Notes[at] = "stopped: no instance runs" + lease.waitingText()
		}
	}
}
