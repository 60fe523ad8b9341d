package unit

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/keyspace"
	"github.com/millrace/changefeed/internal/notes"
)

// The leases of a unit in sentences, for an operator who was woken up: what is known of a lease, and what to do next.
// The notes of the table are among the sentences; here they get what needs other records, such as the history.

// Explanation explains a lease, or a range without one.
type Explanation struct {
	whose
	Lease *string  `json:"lease" about:"token of the lease; null for keys without a lease"`
	Range *string  `json:"range" about:"of effective partition keys, min-max in hex"`
	State string   `json:"state" about:"as that of leases, or hole"`
	Owner *string  `json:"owner" about:"the instance that has the lease; null if it is free"`
	Facts []string `json:"facts" about:"what is known, in sentences"`
	Next  []string `json:"next" about:"what to do next, in sentences"`
}

// ReportedAs implements [report.Value].
func (Explanation) ReportedAs() string { return "explanation" }

// ExplanationKind describes the lines of changefeed leases explain.
var ExplanationKind = report.Kind{
	Name: "explanation", About: "What is known of a lease, and what to do next: leases explain.", Of: Explanation{},
}

// Explain explains the leases of a unit and the ranges without one, or only the lease with a token. An unknown token is
// an error that names the others.
func Explain(ctx context.Context, leases *place.Container, processor string, monitored *place.Container, token string,
	past []admin.Entry,
) (all []Explanation, err error) {
	u, err := readUnit(ctx, leases, processor, monitored, &changefeed.Estimator{})
	if err != nil {
		return nil, err
	}
	var known []string
	for _, r := range u.Rows {
		if r.Kind != KindLease && (r.Kind != KindHole || token != "") {
			continue
		}
		known = append(known, r.Lease)
		if token == "" || token == r.Lease || token == r.Range {
			all = append(all, explainer{u, r, past}.explain())
		}
	}
	if len(all) == 0 && token != "" {
		return nil, usage.Missing{Err: usage.Flag("lease", token, "a lease of the unit: "+
			cmp.Or(strings.Join(known, ", "), "it has none"))}
	}
	return all, nil
}

// explainer explains a row of a unit.
type explainer struct {
	unit *Unit
	Row
	past []admin.Entry
}

// explain returns the explanation.
func (e explainer) explain() Explanation {
	x := Explanation{
		whose: whose{e.Processor, e.Container}, Range: known(e.Range), State: e.State, Owner: known(e.Owner),
		Lease: known(e.Lease),
	}
	if e.Kind == KindHole {
		x.State, x.Facts = KindHole, []string{sentence(e.Notes[0])}
		x.Next = []string{e.ifNoneRuns("Start an instance: it makes a lease there, from where the unit began.",
			"Wait: the instances make a lease when an earlier owner must have stopped, within minutes.")}
		return x
	}
	x.Facts = append(x.Facts, e.whoOwns()...)
	x.Facts = append(x.Facts, e.whereItIs())
	for _, note := range e.Notes {
		if note != noteFree {
			x.Facts = append(x.Facts, sentence(note))
		}
	}
	for _, fact := range []string{e.whoPaused(), e.whoReset(), e.missingParts(), e.failingSince(), e.holesBeside()} {
		if fact != "" {
			x.Facts = append(x.Facts, fact)
		}
	}
	if x.Next = e.next(); len(x.Next) == 0 {
		x.Next = []string{"Nothing: the owner is at work."}
	}
	return x
}

// sentence makes a sentence of a note.
func sentence(note string) string {
	if note == "" {
		return ""
	}
	return strings.ToUpper(note[:1]) + note[1:] + "."
}

// now returns the time of the store.
func (e explainer) now() time.Time {
	return e.record.Updated.Add(time.Duration(e.Silent * float64(time.Second)))
}

// whoOwns says who has the lease, and until when.
func (e explainer) whoOwns() []string {
	runs := terminal.Count(e.unit.Sums().Instances, "instance") + " of the unit at work."
	if e.Owner == "" {
		return []string{fmt.Sprintf("Nobody owns the lease, which was last written at %s, %s ago; %s",
			clock(e.record.Updated, e.now()), terminal.Seconds(e.Silent), runs)}
	}
	until := e.record.Updated.Add(cmp.Or(e.record.Expiration, silence))
	if e.State == StateExpired {
		return []string{fmt.Sprintf("%s owned the lease until %s, and wrote it last at %s; %s", e.Owner,
			clock(until, e.now()), clock(e.record.Updated, e.now()), runs)}
	}
	return []string{fmt.Sprintf("%s owns the lease, and wrote it %s ago. If it stays silent, others take the lease at "+
		"%s.", e.Owner, terminal.Seconds(e.Silent), clock(until, e.now()))}
}

// whereItIs says the position, and what comes after it.
func (e explainer) whereItIs() string {
	at := "It has no position yet"
	if e.Position != "" {
		at = "It is at position " + e.Position
	}
	switch {
	case e.Lag == nil:
		return at + "; how many changes come after it is unknown."
	case *e.Lag == 0:
		return at + ", and no change comes after it."
	}
	return fmt.Sprintf("%s, and %s%s wait after it, the oldest for %s.", at, mark(e.Exact, e.Shared),
		terminal.Count(*e.Lag, "change"), terminal.Seconds(*e.Waited))
}

// whoPaused says who has paused the lease, and why.
func (e explainer) whoPaused() string {
	c, found := e.unit.pauseOf(&e.Row)
	if !found {
		return ""
	}
	return fmt.Sprintf("%s has paused %s-%s%s.", cmp.Or(terminal.OneLine(c.By), "Somebody"), c.Min, c.Max,
		because(c.Why))
}

// because returns the reason of an action, if there is one.
func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + terminal.OneLine(why)
}

// whoReset says when the lease was reset, and by whom, if the history knows.
func (e explainer) whoReset() string {
	last := notes.ReadLastReset(e.record.Properties[notes.ResetProperty])
	if last.On == 0 {
		return ""
	}
	on := time.UnixMilli(last.On)
	for _, a := range slices.Backward(e.past) {
		isReset := a.Action == admin.ActionReset || a.Action == admin.ActionRestore
		// The line is written when the action has ended.
		if isReset && a.Range.Overlaps(e.record.Range) && !a.At.Before(on.Truncate(time.Second)) {
			return fmt.Sprintf("It was reset at %s by %s%s.", clock(on, e.now()),
				cmp.Or(terminal.OneLine(a.By), "somebody"), because(a.Reason))
		}
	}
	return fmt.Sprintf("It was reset at %s; the history does not say by whom.", clock(on, e.now()))
}

// missingParts says which leases a split still has to make.
func (e explainer) missingParts() string {
	if e.record.State != feed.StateSplitting {
		return ""
	}
	if joining, ok := notes.ReadJoining(e.record.Properties[notes.JoiningProperty]); ok {
		return fmt.Sprintf("It is being joined with a neighbouring lease into %s, because the unit has more leases than it "+
			"needs. If its owner ends before, it is a lease of its own again.", joining.Into)
	}
	parts, ok := keyspace.Split(e.record.Range, e.record.Properties[notes.PartsProperty])
	if !ok {
		return "Its owner has not said yet into which parts it is split."
	}
	var names, missing []string
	for _, part := range parts {
		names = append(names, part.String())
		if !slices.ContainsFunc(e.unit.Rows, func(r Row) bool {
			return r.Kind == KindLease && r.record.Range == part && r.record.State != feed.StateRetired
		}) {
			missing = append(missing, part.String())
		}
	}
	if len(missing) == 0 {
		return fmt.Sprintf("It is split into %s, which all have leases.", strings.Join(names, " and "))
	}
	return fmt.Sprintf("It is split into %s; there is no lease yet for %s.", strings.Join(names, " and "),
		strings.Join(missing, " and "))
}

// failingSince says since when changes fail, and names keys that are set aside.
func (e explainer) failingSince() string {
	var since time.Time
	for _, run := range tried(e.record) {
		if at := run.FailingSince(); !at.IsZero() && (since.IsZero() || at.Before(since)) {
			since = at
		}
	}
	var keys []string
	for _, key := range setAside(e.record) {
		keys = append(keys, key.Key)
	}
	text := ""
	if !since.IsZero() {
		text = fmt.Sprintf("Changes fail since %s.", clock(since, e.now()))
	}
	if len(keys) > 0 {
		text = strings.TrimSpace(text + " Keys that are set aside: " + terminal.OneLine(firstOf(keys)) + ".")
	}
	return text
}

// holesBeside names the ranges without a lease beside this one.
func (e explainer) holesBeside() string {
	for _, r := range e.unit.Rows {
		of := r.record.Range
		if r.Kind == KindHole && (of.Max == e.record.Range.Min || of.Min == e.record.Range.Max) {
			return fmt.Sprintf("No lease covers the keys %s beside it.", r.Range)
		}
	}
	return ""
}

// ifNoneRuns returns one of two texts: for a unit without instances at work, or with them.
func (e explainer) ifNoneRuns(none, some string) string {
	if e.unit.IsAtWork() {
		return some
	}
	return none
}

// next says what to do.
func (e explainer) next() (list []string) {
	add := func(text string) { list = append(list, text) }
	switch e.State {
	case StatePaused:
		add("When the reason is gone, end the pause with changefeed leases resume.")
	case StateBroken:
		add("Look at the document with changefeed get; if no other processor needs it, delete it, and the instances make " +
			"a lease.")
	case StateFree:
		add("Wait for a round of the instances (13 s by default). If nobody takes the lease, look whether their limit of " +
			"leases is reached, and at their logs.")
	case StateStopped:
		add("Start an instance of the unit.")
	case StateExpired:
		add(e.ifNoneRuns("Start an instance of the unit, which takes the lease.",
			"Wait for a round of the other instances, which take the lease (13 s by default)."))
	case StateSilent:
		add(fmt.Sprintf("Look whether %s runs, and whether it reaches the lease store.", e.Owner))
	case feed.StateRetired.String():
		add("Remove it with changefeed leases gc.")
	case feed.StateSplitting.String():
		add(e.ifNoneRuns("Start an instance of the unit, which finishes the split or the join.",
			"Wait: the owner makes the missing leases within seconds. If it does not, look at its log."))
	}
	if e.Owner != "" && e.Epoch == "" && e.State != StateBroken {
		add("Stop the other kind of processor before you pause or reset the unit.")
	}
	if e.IsDefiant {
		add(fmt.Sprintf("%s has not obeyed the pause yet: look whether it runs. Whoever takes the lease after it obeys.",
			terminal.OneLine(e.Owner)))
	}
	hasFailed := func(r notes.Run) bool { return r.Failing > 0 }
	if e.Attempts > 0 || slices.ContainsFunc(tried(e.record), hasFailed) { // not a key that is replayed
		add("Look at the log of the owner for the error of the handler. A change that can never be handled is skipped with " +
			"changefeed leases skip, or parked with --max-attempts and --dead-letters.")
	}
	if e.Held > 0 {
		add("Look at the parked changes with changefeed dlq list, and hand them over again with changefeed dlq retry.")
	}
	if len(e.Overlaps) > 0 {
		add(e.ifNoneRuns("Start an instance, which removes the lease that is not needed.",
			"Wait for some rounds: the instances remove the lease that is not needed."))
	}
	return list
}

// WriteExplanations writes explanations for people.
func WriteExplanations(w io.Writer, all []Explanation) error {
	room := terminal.Of(w).Room()
	for i, x := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		name := "keys without a lease"
		if x.Lease != nil {
			name = "lease " + *x.Lease
		}
		if x.Range != nil && (x.Lease == nil || *x.Range != *x.Lease) {
			name += " (" + *x.Range + ")"
		}
		fmt.Fprintf(w, "%s of %s on %s: %s\n", name, terminal.OneLine(x.Processor), terminal.OneLine(x.Container),
			x.State)
		for _, fact := range x.Facts {
			fmt.Fprintln(w, "  "+terminal.Wrap(terminal.OneLine(fact), 2, room, 2))
		}
		for _, step := range x.Next {
			if _, err := fmt.Fprintln(w, "  Next: "+terminal.Wrap(terminal.OneLine(step), 8, room, 2)); err != nil {
				return fmt.Errorf("write explanation: %w", err)
			}
		}
	}
	return nil
}
