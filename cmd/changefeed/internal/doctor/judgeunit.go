package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/feed"
)

// The judgement of units: of their leases, their instances, their lag and their dead letters.

// The limits between the verdicts.
const (
	attemptsFail = 5  // of a batch
	waitedWarn   = 30 // seconds
)

// nameOf returns the name of a unit for people.
func nameOf(u *unit.Unit) string { return u.Processor + " on " + u.Container }

// A flaw is a kind of rows that are not as they should be.
type flaw struct {
	verdict Verdict
	is      func(r *unit.Row) bool
	what    string // after the number and the names of the rows
	next    string
}

// isState returns a condition about the state of a lease.
func isState(state string) func(*unit.Row) bool {
	return func(r *unit.Row) bool { return r.Kind == unit.KindLease && r.State == state }
}

// isForeign reports whether a valid lease belongs to a processor of another make.
func isForeign(r *unit.Row) bool {
	return r.Kind == unit.KindLease && r.State != unit.StateBroken && r.Owner != "" && r.Epoch == ""
}

// flawsOf returns the flaws that leases of a unit may have, the worst first. If instances are at work, they mend some.
func flawsOf(u *unit.Unit) []flaw {
	hole := "start an instance, which makes the missing leases"
	expired, v := "start an instance: nobody else works on these leases", Fail
	if u.IsAtWork() {
		hole = "instances mend that within a minute: if the hole stays, read their log"
		expired, v = "other instances take over: if they do not within a minute, read their log", Warn
	}
	return append(failuresOf(hole), warningsOf(v, expired)...)
}

// failuresOf returns the flaws that are failures; hole is what to do about a hole.
func failuresOf(hole string) []flaw {
	return []flaw{
		{
			Fail, func(r *unit.Row) bool { return r.Kind == unit.KindHole },
			"no lease covers these keys, so nobody handles their changes", hole,
		},
		{
			Fail, func(r *unit.Row) bool { return len(r.Overlaps) > 0 },
			"they cover the same keys, whose changes are handled twice",
			"if they still overlap in a minute, delete the one that is behind: see changefeed leases",
		},
		{
			Fail, isState(unit.StateBroken), "the document is no valid lease, so nobody works on it",
			"see changefeed leases, and delete the document: instances make the lease again",
		},
		{
			Fail, func(r *unit.Row) bool { return r.Outage != "" },
			"the handler lacks what it needs, so nothing is handled",
			"mend what the handler needs, such as a database: the log of the owner names the error",
		},
		{
			Fail, func(r *unit.Row) bool { return r.Kind == unit.KindLease && r.Attempts >= attemptsFail },
			fmt.Sprintf("the batch has failed %d times or more; without concurrency all other keys wait", attemptsFail),
			"read the log of the owner; with dead letters a processor goes on: see changefeed help run",
		},
	}
}

// warningsOf returns the other flaws; v is the verdict on expired leases, and expired is what to do about them.
func warningsOf(v Verdict, expired string) []flaw {
	return []flaw{
		{
			Warn, func(r *unit.Row) bool { return r.InHand != nil },
			"a batch is in the handler for much longer than usual",
			"see what the handler of the owner waits for: it may hang",
		},
		{v, isState(unit.StateExpired), "its owner has been silent for too long", expired},
		{
			Warn, isState(unit.StateSilent), "its owner is late",
			"see whether the owner hangs; others take over when the lease expires",
		},
		{
			Warn, func(r *unit.Row) bool {
				return r.Kind == unit.KindLease && r.Attempts > 0 && r.Attempts < attemptsFail
			}, "the batch has failed, and is retried", "read the log of the owner",
		},
		{
			Warn, isForeign, "owned by a processor of another make",
			"see that its other processors have the same handler",
		},
		{Warn, isState(unit.StatePaused), "paused", "changefeed leases resume ends that"},
		{Warn, isState(unit.StateFree), "free, and instances run", "if it stays free, read the log of an instance"},
		{Warn, isState(feed.StateRetired.String()), "replaced by others, and left", "delete the document"},
		{
			Warn, func(r *unit.Row) bool { return r.IsDefiant }, "paused, and the owner has not obeyed yet",
			"look whether the owner runs and belongs to this version: whoever takes the lease after it obeys",
		},
		{
			Warn, func(r *unit.Row) bool { return r.Kind == unit.KindDocument || r.IsDamaged() },
			"a document of the unit that cannot be read",
			"see changefeed leases: a later version may have written it",
		},
	}
}

// judgeLeases judges the leases of a unit: a finding for each kind of flaw, or one that all is well.
func judgeLeases(u *unit.Unit) (found []Finding) {
	for _, flaw := range flawsOf(u) {
		var names []string
		for i := range u.Rows {
			if r := &u.Rows[i]; flaw.is(r) {
				names = append(names, labelOf(r))
			}
		}
		if len(names) > 0 {
			found = append(found, bad("leases", nameOf(u), flaw.verdict, flaw.next, "%s: %s", some(names), flaw.what))
		}
	}
	if len(found) > 0 {
		return found
	}
	sum := u.Sums()
	return []Finding{good("leases", nameOf(u), "%s, without a hole or an overlap", terminal.Count(sum.Leases, "lease"))}
}

// labelOf returns the name of a row in a finding.
func labelOf(r *unit.Row) string {
	switch {
	case r.Kind == unit.KindHole:
		return "hole " + r.Range
	case r.Kind == unit.KindDocument || r.IsDamaged():
		return r.ID
	case r.Owner != "":
		return "lease " + r.Lease + " of " + r.Owner
	}
	return "lease " + r.Lease
}

// judgeLag judges how far a unit is behind.
func judgeLag(u *unit.Unit) Finding {
	const check = "lag"
	sum := u.Sums()
	if !sum.Known {
		f := unknown(check, nameOf(u), whyUnknown(u), "mend the leases first: see changefeed leases")
		if sum.Lag > 0 {
			f.Found = sum.Behind() + "; the rest is " + f.Found
		}
		return f
	}
	if sum.Waited <= waitedWarn {
		return good(check, nameOf(u), "%s", sum.Behind())
	}
	next := "start an instance"
	switch {
	case slices.ContainsFunc(u.Rows, func(r unit.Row) bool { return r.State == unit.StatePaused }):
		next = "changefeed leases resume ends the pause"
	case u.IsAtWork():
		next = "see whether the lag falls: else the handler is too slow, fails, or there are too few leases"
	}
	return bad(check, nameOf(u), Warn, next, "%s", sum.Behind())
}

// whyUnknown returns why the lag of a unit is unknown.
func whyUnknown(u *unit.Unit) string {
	for _, r := range u.Rows {
		if r.Kind == unit.KindHole {
			return "no lease covers " + r.Range
		}
		if r.Kind == unit.KindLease && r.Lag == nil && len(r.Notes) > 0 {
			return "lease " + r.Lease + ": " + strings.TrimPrefix(r.Notes[len(r.Notes)-1], "lag unknown: ")
		}
	}
	return "a lease cannot be counted"
}

// judgeInstances judges the instances of a unit.
func judgeInstances(u *unit.Unit) (found []Finding) {
	const check = "instances"
	var running, gone, idle []string
	for i := range u.Rows {
		r := &u.Rows[i]
		if r.Kind != unit.KindInstance {
			continue
		}
		switch r.Presence() {
		case unit.Running:
			running = append(running, r.Lease)
			found = append(found, skewOfInstance(u, r)...)
			if !ownsLease(u, r.Lease) {
				idle = append(idle, r.Lease)
			}
		case unit.Gone:
			gone = append(gone, r.Lease)
		case unit.Ended: // in order
		}
	}
	about := nameOf(u)
	if len(gone) > 0 {
		found = append(found, bad(check, about, Warn, "see why they have ended: others take over their leases",
			"gone without an end: %s", some(gone)))
	}
	for _, w := range u.Warnings {
		if w.Word == unit.WarnDiffer {
			found = append(found, bad(check, about, Warn, "after an upgrade, stop the old ones; if two handlers share the "+
				"name by mistake, give one another name: each change goes to one of them", "%s", w.Text))
		}
	}
	sum := u.Sums()
	switch {
	case len(running) == 0 && u.IsAtWork():
		found = append(found, unknown(check, about, "the leases have owners, which write no presence",
			"ask the processors of another make themselves"))
	case len(running) == 0:
		found = append(found, bad(check, about, Warn, "start one, or delete the unit with changefeed leases --delete "+
			u.Processor+" if nobody needs the unit", "no instance runs, %s", sum.Behind()))
	case len(idle) > 0:
		found = append(found, bad(check, about, Warn, "stop them, split the partition, or cut leases finer",
			"%d of %d are idle, with %s: %s", len(idle), len(running), terminal.Count(sum.Leases, "lease"),
			some(idle)))
	default:
		found = append(found, good(check, about, "%s: %s", terminal.Count(len(running), "instance"), some(running)))
	}
	return found
}

// ownsLease reports whether an instance owns a lease of its unit.
func ownsLease(u *unit.Unit, instance string) bool {
	return slices.ContainsFunc(u.Rows, func(r unit.Row) bool {
		isOwner := r.Owner == instance || r.Owner != "" && strings.HasPrefix(instance, r.Owner+"/")
		return r.Kind == unit.KindLease && isOwner
	})
}

// skewOfInstance returns a finding if the clock of an instance is wrong.
func skewOfInstance(u *unit.Unit, r *unit.Row) []Finding {
	skew, known := r.Skew()
	if !known {
		return nil
	}
	f := judgeSkew("clock", nameOf(u), "the clock of "+r.Lease, skew)
	if f.Verdict == OK {
		return nil
	}
	return []Finding{f}
}

// judgeHeld judges the partition keys of a unit that are held.
func judgeHeld(u *unit.Unit) Finding {
	const check = "held"
	held, aside := 0, 0
	var names []string
	for _, r := range u.Rows {
		held, aside = held+r.Held, aside+r.SetAside
		names = append(names, r.HeldKeys...)
	}
	switch {
	case held > 0:
		return bad(check, nameOf(u), Warn, "changefeed dlq retry handles their letters again, changefeed dlq "+
			"release frees a key without that", "changes of %s wait: %s", terminal.Count(held, "key"), some(names))
	case aside > 0:
		return bad(check, nameOf(u), Warn, "read the log of the owners", "%s fail, and are retried apart",
			terminal.Count(aside, "key"))
	}
	return good(check, nameOf(u), "no key is held")
}

// judgeLetters judges the dead letters of a unit by their disposition; full means that there are more.
func judgeLetters(about, box string, count map[feed.Disposition]int, full bool) Finding {
	const check = "letters"
	total, parts := 0, []string{}
	for d, n := range count {
		total += n
		parts = append(parts, fmt.Sprintf("%d %s", n, d))
	}
	if total == 0 {
		return good(check, about, "no dead letter in %s", box)
	}
	slices.Sort(parts)
	atLeast := ""
	if full {
		atLeast = "at least "
	}
	return bad(check, about, Warn, "see changefeed dlq list, then changefeed dlq retry or changefeed dlq drop", "%s%s in %s: %s",
		atLeast, terminal.Count(total, "dead letter"), box, strings.Join(parts, ", "))
}

// judgeStrays judges the documents of a lease container that belong to no unit here.
func judgeStrays(container string, u *unit.Unit) (found []Finding) {
	var leases, others []string
	for _, r := range u.Rows {
		if r.Lease != "" {
			leases = append(leases, r.ID)
		} else {
			others = append(others, r.ID)
		}
	}
	if len(leases) > 0 {
		found = append(found, bad("strays", container, Warn, "look from the address of their processors; if the "+
			"container was dropped and made again, its old positions mean nothing: delete these documents",
			"leases of a container that is not here: %s", some(leases)))
	}
	if len(others) > 0 {
		found = append(found, bad("strays", container, Warn, "keep other documents elsewhere, because everything here "+
			"is read for leases", "documents that are no leases: %s", some(others)))
	}
	return found
}

// judgeNames finds units on one container whose names look alike, because a mistyped name makes a new unit, which
// handles everything a second time.
func judgeNames(units []unit.Unit) (found []Finding) {
	for i := range units {
		for j := range units[:i] {
			a, b := &units[j], &units[i]
			if !a.IsAlike(b) {
				continue
			}
			found = append(found, bad("names", b.Container, Warn, "if one name is mistyped, stop its instances and "+
				"delete the unit with changefeed leases --delete NAME", "%s and %s are two units, and each handles every change", a.Processor,
				b.Processor))
		}
	}
	return found
}
