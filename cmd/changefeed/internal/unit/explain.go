package unit

import (
	"fmt"
	"io"
	"slices"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/feed"
)

// The leases of a unit in sentences, for an operator who was woken up. Package admin finds the sentences.

// Explanation explains a lease, or a range without a lease.
type Explanation struct {
	whose
	Lease *string  `json:"lease" about:"token of the lease; null for keys without a lease"`
	Range *string  `json:"range" about:"of effective partition keys, min-max in hex"`
	State string   `json:"state" about:"as that of leases, or hole"`
	Owner *string  `json:"owner" about:"the instance that has the lease; null if the lease is free"`
	Facts []string `json:"facts" about:"facts about the lease, in sentences"`
	Next  []string `json:"next" about:"the next steps, in sentences"`
}

// ReportedAs implements [report.Value].
func (Explanation) ReportedAs() string { return "explanation" }

// ExplanationKind describes the lines of changefeed leases explain.
var ExplanationKind = report.Kind{
	Name: "explanation", About: "Facts about a lease, and the next steps: leases explain.", Of: Explanation{},
}

// Explanations returns explanations of a unit as lines: all, or that of the lease that a text names, see [ChooseLease].
// The recommended commands are completed.
func Explanations(container string, commands Commands, all []admin.Explanation, text string) (lines []Explanation,
	err error,
) {
	if text != "" {
		if all, err = chooseExplanation(all, text); err != nil {
			return nil, err
		}
	}
	for _, x := range all {
		line := Explanation{whose: whose{commands.Name, container}, State: string(x.State)}
		var held []string
		if x.Lease != nil {
			held = x.Lease.Held
		}
		for _, fact := range x.Facts {
			line.Facts = append(line.Facts, commands.Complete(fact, held...))
		}
		for _, step := range x.Next {
			line.Next = append(line.Next, commands.Complete(step, held...))
		}
		if !x.Range.Empty() {
			line.Range = known(x.Range.String())
		}
		if x.Lease != nil {
			line.Lease, line.Owner = known(x.Lease.Token), known(x.Lease.Owner)
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// chooseExplanation returns the explanation of a lease, or of keys without a lease.
func chooseExplanation(all []admin.Explanation, text string) ([]admin.Explanation, error) {
	var leases []feed.Record
	for _, x := range all {
		l := feed.Record{Range: x.Range, Token: x.Range.String()}
		if x.Lease != nil {
			l.Token = x.Lease.Token
		}
		leases = append(leases, l)
	}
	chosen, err := ChooseLease(text, leases)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(leases, func(l feed.Record) bool {
		return l.Token == chosen.Token && l.Range == chosen.Range
	})
	return all[i : i+1], nil
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
