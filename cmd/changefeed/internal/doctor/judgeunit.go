package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/feed"
)

// The judgement of units: of their leases, their instances, their lag and their dead letters.

// waitedWarn is how long a change may wait before that is a warning.
const waitedWarn = 30 * time.Second

// nameOf returns the name of a unit for people.
func nameOf(u *unit.Unit) string { return u.Processor + " on " + u.Container }

// judgedApart are the findings that other checks than that of the leases judge.
var judgedApart = []admin.Word{
	admin.WordStopped, admin.WordHeld, admin.WordAside, admin.WordUnknown, admin.WordDiffer, admin.WordIdle,
}

// judgeLeases judges the leases of a unit: a finding for each kind of flaw, the worst first, or one that all is well.
func judgeLeases(u *unit.Unit) (found []Finding) {
	var kinds []admin.Finding // the first of each kind
	names := map[string][]string{}
	for _, f := range u.Listing().Findings() {
		if slices.Contains(judgedApart, f.Word) {
			continue
		}
		if names[f.Means] == nil {
			kinds = append(kinds, f)
		}
		names[f.Means] = append(names[f.Means], labelOf(f))
	}
	slices.SortStableFunc(kinds, func(a, b admin.Finding) int { return cmp.Compare(b.Grade, a.Grade) })
	for _, f := range kinds {
		found = append(found, bad("leases", nameOf(u), verdictOf(f.Grade), u.Commands.Complete(f.Next), "%s: %s",
			some(names[f.Means]), f.Means))
	}
	if len(found) > 0 {
		return found
	}
	sum := u.Listing().Sum()
	return []Finding{good("leases", nameOf(u), "%s, without a hole or an overlap", terminal.Count(sum.Leases, "lease"))}
}

// verdictOf returns the verdict on a finding.
func verdictOf(g admin.Grade) Verdict {
	if g == admin.GradeFailure {
		return Fail
	}
	return Warn
}

// labelOf returns the name of what a finding is about.
func labelOf(f admin.Finding) string {
	switch {
	case f.ID == "":
		return "hole " + f.Range.String()
	case f.Kind != feed.KindLease:
		return f.ID
	case f.Owner != "":
		return "lease " + f.Token + " of " + f.Owner
	}
	return "lease " + f.Token
}

// judgeLag judges how far a unit is behind.
func judgeLag(u *unit.Unit) Finding {
	const check = "lag"
	sum := u.Listing().Sum()
	if !sum.Known {
		f := unknown(check, nameOf(u), whyUnknown(u),
			u.Commands.Complete("mend the leases first: see changefeed leases"))
		if sum.Pending > 0 {
			f.Found = sum.Behind() + "; the rest is " + f.Found
		}
		return f
	}
	if sum.Oldest <= waitedWarn && !sum.Timed {
		return unknown(check, nameOf(u), sum.Behind(),
			u.Commands.Complete("see with changefeed leases whether the lag falls"))
	}
	if sum.Oldest <= waitedWarn {
		return good(check, nameOf(u), "%s", sum.Behind())
	}
	next := "start an instance"
	switch {
	case slices.ContainsFunc(u.Rows, func(r unit.Row) bool { return r.State == string(admin.StatePaused) }):
		next = u.Commands.Complete("changefeed leases resume ends the pause")
	case u.Listing().IsAtWork():
		next = "see whether the lag falls: else the handler is too slow, fails, or there are too few leases"
	}
	return bad(check, nameOf(u), Warn, next, "%s", sum.Behind())
}

// whyUnknown returns why the lag of a unit is unknown.
func whyUnknown(u *unit.Unit) string {
	l := u.Listing()
	if len(l.Holes) > 0 {
		return "no lease covers " + l.Holes[0].Range.String()
	}
	for _, lease := range l.Leases {
		if lease.Unknown != nil {
			return fmt.Sprintf("lease %s: %v", lease.Token, lease.Unknown)
		}
	}
	return "a lease cannot be counted"
}

// judgeInstances judges the instances of a unit.
func judgeInstances(u *unit.Unit) (found []Finding) {
	const check = "instances"
	var running, gone []string
	for _, i := range u.Listing().Instances {
		switch i.Presence {
		case admin.Running:
			running = append(running, i.Token)
			found = append(found, skewOfInstance(u, &i)...)
		case admin.Gone:
			gone = append(gone, i.Token)
		case admin.Ended: // in order
		}
	}
	about := nameOf(u)
	if len(gone) > 0 {
		next := "see why they have ended: nobody takes over their leases"
		if len(running) > 0 {
			next = "see why they have ended: others take over their leases"
		}
		found = append(found, bad(check, about, Warn, next, "gone without an end: %s", some(gone)))
	}
	for _, f := range u.Listing().Findings() {
		if f.Word == admin.WordDiffer {
			found = append(found, bad(check, about, Warn, f.Next, "%s", f.Text))
		}
	}
	sum := u.Listing().Sum()
	idle, _ := u.Listing().Idle()
	switch {
	case len(running) == 0 && u.Listing().IsAtWork():
		found = append(found, unknown(check, about, "the leases have owners, which write no presence",
			"look at the log of those processors"))
	case len(running) == 0:
		found = append(found, bad(check, about, Warn, u.Commands.Complete(
			"start an instance, or delete the unit with changefeed leases delete if nobody needs the unit"),
			"no instance runs, %s", sum.Behind()))
	case len(idle) > 0:
		found = append(found, bad(check, about, Warn, "stop them, split the partition, or cut leases finer",
			"%d of %d are idle, with %s: %s", len(idle), len(running), terminal.Count(sum.Leases, "lease"),
			some(idle)))
	default:
		found = append(found, good(check, about, "%s: %s", terminal.Count(len(running), "instance"), some(running)))
	}
	return found
}

// skewOfInstance returns a finding if the clock of an instance is wrong.
func skewOfInstance(u *unit.Unit, i *admin.Instance) []Finding {
	skew, known := i.Skew()
	if !known {
		return nil
	}
	f := judgeSkew("clock", nameOf(u), "the clock of "+i.Token, skew)
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
		next := "changefeed dlq retry --all handles their letters again, changefeed dlq release --key KEY frees a key " +
			"without that"
		return bad(check, nameOf(u), Warn, u.Commands.Complete(next, names...), "changes of %s wait: %s",
			terminal.Count(held, "key"), some(names))
	case aside > 0:
		return bad(check, nameOf(u), Warn, "read the log of the owners", "%s fail, and are retried apart",
			terminal.Count(aside, "key"))
	}
	return good(check, nameOf(u), "no key is held")
}

// judgeLetters judges the dead letters of a unit by their disposition; full means that there are more. The commands are
// those about the letters in the box.
func judgeLetters(about, box string, commands unit.Commands, count map[feed.Disposition]int, full bool) Finding {
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
	next := "see changefeed dlq list, then changefeed dlq retry --all or changefeed dlq drop --all"
	return bad(check, about, Warn, commands.Complete(next), "%s%s in %s: %s", atLeast,
		terminal.Count(total, "dead letter"), box, strings.Join(parts, ", "))
}

// judgeStrays judges the documents of a lease container that belong to no unit here. address is that of the container.
func judgeStrays(container, address string, u *unit.Unit) (found []Finding) {
	var leases, others, names []string
	deleted := map[string][]string{} // by the name of the unit
	for _, r := range u.Rows {
		switch name := r.Stray.Deleted; {
		case name != "":
			if deleted[name] == nil {
				names = append(names, name)
			}
			deleted[name] = append(deleted[name], r.ID)
		case r.Stray.Prefix != "":
			leases = append(leases, r.ID)
		default:
			others = append(others, r.ID)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		commands := unit.Commands{Leases: address, Name: name}
		advice := commands.Complete("if its instances have stopped, remove the records with changefeed leases gc")
		found = append(found, bad("strays", container, Warn, advice,
			"records of unit %s on a container that does not exist any more: %s", name, some(deleted[name])))
	}
	if len(leases) > 0 {
		found = append(found, bad("strays", container, Warn, "look from the address of their processors; if the "+
			"container was dropped, its old positions mean nothing: delete these documents",
			"records of units on a container that is not here: %s", some(leases)))
	}
	if len(others) > 0 {
		found = append(found, bad("strays", container, Warn, "keep other documents elsewhere, because everything here "+
			"is read for leases", "documents that are no leases: %s", some(others)))
	}
	return found
}

// judgeNames finds units on one container whose names look alike, because a mistyped name makes a new unit, which
// handles everything a second time.
func judgeNames(leases string, units []unit.Unit) (found []Finding) {
	for i := range units {
		for j := range units[:i] {
			a, b := &units[j], &units[i]
			if !a.IsAlike(b) {
				continue
			}
			commands := unit.Commands{Leases: leases, Name: "NAME"}
			found = append(found, bad("names", b.Container, Warn, commands.Complete("if one name is mistyped, stop "+
				"its instances and delete the unit with changefeed leases delete; if both are meant, say so with "+
				"--intended"),
				"%s and %s are two units, and each handles every change", a.Processor, b.Processor))
		}
	}
	return found
}
