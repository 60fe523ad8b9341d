package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/sentence"
)

// Explanation explains a lease, or keys without a lease, in sentences for an operator who was woken up.
type Explanation struct {
	Lease *Lease     // nil for keys without a lease
	Range feed.Range // empty if unknown
	State State      // that of the lease, or [StateHole]
	Facts []string   // facts
	Next  []string   // next steps; never empty

	// History lists the actions on the lease, or on a range with keys of the lease, oldest first: see [Unit.History].
	History []Entry
}

// Explain explains the lease with a token or a range, such as "05C1-0BF3": the facts of [Unit.List] about the lease,
// the actions in the history, and the next steps. Explain returns a single explanation. For an empty token, Explain
// explains all leases and the keys without a lease, by their ranges.
//
// The sentences name the commands with which an operator acts. If the history cannot be read, the explanations leave it
// out.
//
// Errors: [feed.ErrNotFound] for an unknown token, whose text names the leases, and those of [Unit.List].
func (u *Unit) Explain(ctx context.Context, token string) ([]Explanation, error) {
	l, records, err := survey(ctx, u)
	if err != nil {
		return nil, err
	}
	past, _ := entriesIn(records)
	l.countNeeded(ctx, u.source)
	all := l.Explain(past)
	if token == "" {
		return all, nil
	}
	var known []string
	for _, x := range all {
		if x.Lease == nil {
			known = append(known, x.Range.String())
		} else {
			known = append(known, x.Lease.Token)
		}
	}
	all = slices.DeleteFunc(all, func(x Explanation) bool {
		return x.Range.String() != token && (x.Lease == nil || x.Lease.Token != token)
	})
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: the unit has no lease %s: want one of %s", feed.ErrNotFound, token,
			cmp.Or(strings.Join(known, ", "), "none, because it has no leases"))
	}
	return all, nil
}

// Explain explains the leases of a listing, and the keys without a lease, by their ranges; past is the history of the
// unit.
func (l *Listing) Explain(past []Entry) (all []Explanation) {
	for i := range l.Leases {
		all = append(all, explainer{l, &l.Leases[i], past}.explain())
	}
	for _, h := range l.Holes {
		all = append(all, Explanation{
			Range: h.Range, State: StateHole, Facts: []string{sentence.Capital(h.Notes[0])},
			Next: []string{adviceOnHole.of(l.IsAtWork())}, History: entriesOf(h.Range, past),
		})
	}
	slices.SortStableFunc(all, func(a, b Explanation) int { return compareRanges(a.Range, b.Range) })
	return all
}

// entriesOf returns the lines of a history about keys of a range.
func entriesOf(r feed.Range, past []Entry) (some []Entry) {
	for _, e := range past {
		if e.Range.Overlaps(r) {
			some = append(some, e)
		}
	}
	return some
}

// explainer explains a lease of a unit.
type explainer struct {
	unit *Listing
	*Lease
	past []Entry
}

// explain returns the explanation.
func (e explainer) explain() Explanation {
	x := Explanation{Lease: e.Lease, Range: e.Range, State: e.State, History: entriesOf(e.Range, e.past)}
	x.Facts = append(x.Facts, e.whoOwns(), e.whereItIs())
	for _, note := range e.Notes {
		if note != noteFree {
			x.Facts = append(x.Facts, sentence.Capital(note))
		}
	}
	for _, fact := range []string{
		e.whoPaused(), e.whoReset(), e.replacement(), e.failingSince(), e.holesBeside(), e.whyNotJoined(),
	} {
		if fact != "" {
			x.Facts = append(x.Facts, fact)
		}
	}
	if x.Next = e.next(); len(x.Next) == 0 {
		x.Next = []string{"Nothing: the owner is at work."}
	}
	return x
}

// now returns the time of the store.
func (e explainer) now() time.Time { return e.unit.At }

// whoOwns says who has the lease, and until when.
func (e explainer) whoOwns() string {
	instances := 0
	for _, i := range e.unit.Instances {
		if i.Presence == Running {
			instances++
		}
	}
	runs := "no instance of the unit is at work."
	switch {
	case instances == 1:
		runs = "1 instance of the unit is at work."
	case instances > 1:
		runs = sentence.Count(instances, "instance") + " of the unit are at work."
	}
	if e.Free() {
		return fmt.Sprintf("Nobody owns the lease, which was last written at %s, %s ago; %s",
			sentence.Clock(e.Updated, e.now()), sentence.Duration(e.Silent), runs)
	}
	until := e.Updated.Add(e.allowed())
	switch {
	case e.State == StateRetired || e.State == StateBroken:
		return fmt.Sprintf("The lease names %s as its owner, and was last written at %s, %s ago.", e.Owner,
			sentence.Clock(e.Updated, e.now()), sentence.Duration(e.Silent))
	case e.isOverdue():
		return fmt.Sprintf("%s owned the lease until %s, and wrote it last at %s; %s", e.Owner,
			sentence.Clock(until, e.now()), sentence.Clock(e.Updated, e.now()), runs)
	}
	if !e.unit.hasOthers(e.Lease) {
		return fmt.Sprintf("%s owns the lease, and wrote it %s ago. No other instance runs to take the lease if it stays "+
			"silent.", e.Owner, sentence.Duration(e.Silent))
	}
	return fmt.Sprintf("%s owns the lease, and wrote it %s ago. If it stays silent, others take the lease at %s.",
		e.Owner, sentence.Duration(e.Silent), sentence.Clock(until, e.now()))
}

// whereItIs says the position, and the changes after the position.
func (e explainer) whereItIs() string {
	at := "The lease has no position yet"
	if e.Position != (feed.Position{}) {
		at = "The lease is at position " + e.Position.String()
	}
	switch {
	case e.Lag == nil:
		return at + "; how many changes come after it is unknown."
	case e.Lag.Pending == 0:
		return at + ", and no change comes after it."
	}
	wait := "wait"
	if e.Lag.Pending == 1 {
		wait = "waits"
	}
	return fmt.Sprintf("%s, and %s%s %s after it, the oldest %s.", at, markOf(e.Lag),
		sentence.Count(e.Lag.Pending, "change"), wait, sentence.Waited(e.Lag.Age(e.now())))
}

// whoPaused says who has paused the lease, and why.
func (e explainer) whoPaused() string {
	if e.Pause == nil {
		return ""
	}
	return fmt.Sprintf("%s has paused %s%s.", cmp.Or(sentence.OneLine(e.Pause.By), "Somebody"), e.Pause.Of,
		because(e.Pause.Reason))
}

// pausedBy says who has paused a lease, and why, if that is known.
func pausedBy(q *Request) string {
	if q == nil || q.By == "" {
		return ""
	}
	return " by " + sentence.OneLine(q.By) + because(q.Reason)
}

// because returns the reason of an action, if there is a reason.
func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + sentence.OneLine(why)
}

// whoReset says when the lease was reset, and by whom, if the history knows.
func (e explainer) whoReset() string {
	last := notes.ReadLastReset(e.Properties[notes.ResetProperty])
	if last.On == 0 {
		return ""
	}
	on := time.UnixMilli(last.On)
	age := sentence.Duration(max(0, e.now().Sub(on)))
	for _, a := range slices.Backward(e.past) {
		isReset := a.Action == ActionReset || a.Action == ActionRestore
		// The line is written when the action has ended.
		if isReset && a.Range.Overlaps(e.Range) && !a.At.Before(on.Truncate(time.Second)) {
			verb := "reset"
			if a.Action == ActionRestore {
				verb = "restored"
			}
			return fmt.Sprintf("It was %s at %s, %s ago, by %s%s.", verb, sentence.Clock(on, e.now()), age,
				cmp.Or(sentence.OneLine(a.By), "somebody"), because(a.Reason))
		}
	}
	return fmt.Sprintf("It was reset or restored at %s, %s ago; the history does not say by whom.",
		sentence.Clock(on, e.now()), age)
}

// replacement says which leases replace a lease that is being split, cut or joined, and which are missing.
func (e explainer) replacement() (text string) {
	switch {
	case e.Record.State != feed.StateSplitting || e.State == StateBroken:
		return ""
	case e.joinedInto() != "":
		return fmt.Sprintf("The unit has more leases than it needs. If the lease %s is not made, the next owner makes this "+
			"one a lease of its own again.", e.joinedInto())
	case len(e.Parts) == 0:
		text = "The lease does not say yet which parts these are."
	case len(e.Missing) == 0:
		text = fmt.Sprintf("The parts are %s, which all have leases.", rangesText(e.Parts))
	default:
		text = fmt.Sprintf("The parts are %s; there is no lease yet for %s.", rangesText(e.Parts),
			rangesText(e.Missing))
	}
	if !e.isAtWork() {
		text += " The next owner finishes that."
	}
	return text
}

// rangesText names ranges.
func rangesText(ranges []feed.Range) string {
	names := make([]string, len(ranges))
	for i, r := range ranges {
		names[i] = r.String()
	}
	return strings.Join(names, " and ")
}

// failingSince says since when changes fail, and names keys that are set aside.
func (e explainer) failingSince() string {
	text := ""
	if !e.FailingSince.IsZero() {
		text = fmt.Sprintf("Changes fail since %s.", sentence.Clock(e.FailingSince, e.now()))
	}
	if len(e.SetAside) > 0 {
		keys := sentence.OneLine(sentence.FirstOf(e.SetAside))
		text = strings.TrimSpace(text + " Keys that are set aside: " + keys + ".")
	}
	return text
}

// holesBeside names the keys without a lease beside this lease.
func (e explainer) holesBeside() string {
	for _, h := range e.unit.Holes {
		if h.Range.Max == e.Range.Min || h.Range.Min == e.Range.Max {
			return fmt.Sprintf("No lease covers the keys %s beside it.", h.Range)
		}
	}
	return ""
}

// adviceOnReplacement is the advice about a lease that the owner splits, cuts or joins. Without an owner at work, the
// advice of the conditions applies.
func (e explainer) adviceOnReplacement() string {
	switch {
	case e.State != StateSplitting || !e.isAtWork():
		return ""
	case e.joinedInto() != "":
		return "Wait: the owner joins the leases within seconds. If it does not, look at its log."
	}
	return "Wait: the owner makes the missing leases within seconds. If it does not, look at its log."
}

// next returns the next steps.
func (e explainer) next() (list []string) {
	works := e.unit.IsAtWork()
	if text := e.adviceOnReplacement(); text != "" {
		list = append(list, text)
	}
	for _, c := range conditions {
		if c.lease == nil {
			continue
		}
		text := strings.ReplaceAll(c.advice.of(works), "{owner}", sentence.OneLine(e.Owner))
		if _, is := c.lease(e.Lease, e.unit); is && text != "" && !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	fails := !e.FailingSince.IsZero() && e.Outage.IsZero()
	if text := adviceOnFailures.of(works); fails && !slices.Contains(list, text) {
		list = append(list, text) // also of keys that are set aside, unless they are only replayed
	}
	return e.withStart(list)
}

// withStart returns the steps with exactly one step that starts an instance, if none runs and the lease needs an
// instance. A step that describes the instance's work is better than the general step.
func (e explainer) withStart(list []string) []string {
	isSpecial := func(step string) bool {
		return strings.HasPrefix(step, "Start an instance") && step != adviceToStart
	}
	switch {
	case e.unit.IsAtWork():
	case slices.ContainsFunc(list, isSpecial):
		list = slices.DeleteFunc(list, func(step string) bool { return step == adviceToStart })
	case e.State != StateBroken && e.State != StateRetired && !slices.Contains(list, adviceToStart):
		list = append([]string{adviceToStart}, list...)
	}
	return list
}
