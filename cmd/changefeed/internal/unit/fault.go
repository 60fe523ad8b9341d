package unit

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/feed"
)

// Faults are the faults that a script looks for in units, as a flag.
type Faults struct{ all []fault }

// fault is a single fault.
type fault struct {
	text string // the user's text
	in   func(u *Unit) []admin.Finding
}

// faultWords returns the faults without a limit, and their meanings.
func faultWords() (words, abouts []string) {
	for _, w := range admin.Words() {
		words, abouts = append(words, string(w)), append(abouts, w.About())
	}
	return append(words, string(WarnAlike), string(WarnStrays)), append(abouts,
		"another unit on the same container has a similar name", "records of a unit whose container is elsewhere, or was deleted")
}

// FaultsAbout describes the faults for the help of a command, a line each.
func FaultsAbout() string {
	var text strings.Builder
	line := func(word, about string) { fmt.Fprintf(&text, "  %-14s %s\n", word, about) }
	line("wait>DURATION", "the oldest change of a lease has waited longer, such as wait>2m")
	line("lag>NUMBER", "a lease has more changes behind, such as lag>1000")
	words, abouts := faultWords()
	for i, word := range words {
		line(word, abouts[i])
	}
	return strings.TrimRight(text.String(), "\n")
}

// Type implements [pflag.Value].
func (*Faults) Type() string { return "faults" }

// String returns the faults as the user wrote them.
func (f *Faults) String() string {
	var texts []string
	for _, one := range f.all {
		texts = append(texts, one.text)
	}
	return strings.Join(texts, ",")
}

// Words returns the values that a shell can complete.
func (*Faults) Words() []string {
	words, _ := faultWords()
	return append([]string{"wait>2m", "lag>1000"}, words...)
}

// Set adds faults, separated by commas.
func (f *Faults) Set(text string) error {
	for word := range strings.SplitSeq(text, ",") {
		one, err := parseFault(strings.TrimSpace(word))
		if err != nil {
			return err
		}
		f.all = append(f.all, one)
	}
	return nil
}

// parseFault reads a fault.
func parseFault(text string) (fault, error) {
	name, limit, limited := strings.Cut(text, ">")
	switch {
	case limited && name == "wait":
		most, err := time.ParseDuration(limit)
		if err != nil || most < 0 {
			return fault{}, fmt.Errorf("%s: want a duration after wait>, such as wait>2m", text)
		}
		return fault{text, func(u *Unit) []admin.Finding { return u.Listing().Waiting(most) }}, nil
	case limited && name == "lag":
		most, err := strconv.ParseInt(limit, 10, 64)
		if err != nil || most < 0 {
			return fault{}, fmt.Errorf("%s: want a number of changes after lag>, such as lag>1000", text)
		}
		return fault{text, func(u *Unit) []admin.Finding { return u.Listing().Behind(most) }}, nil
	}
	words, _ := faultWords()
	if !slices.Contains(words, text) {
		return fault{}, fmt.Errorf("%q is no fault: want some of wait>DURATION, lag>NUMBER, %s", text,
			strings.Join(words, ", "))
	}
	if text == string(WarnStrays) {
		return fault{text, (*Unit).strayFindings}, nil
	}
	return fault{text, func(u *Unit) []admin.Finding {
		return slices.DeleteFunc(u.Listing().Findings(), func(f admin.Finding) bool { return string(f.Word) != text })
	}}, nil
}

// mostFound is how many faults an error names.
const mostFound = 5

// Find returns the faults of units in a sentence; empty if there are none. A lease container without a unit is a fault,
// because a script that watches a unit must not call that good.
func (f *Faults) Find(units []Unit) string {
	if len(f.all) == 0 {
		return ""
	}
	named := slices.ContainsFunc(units, func(u Unit) bool { return u.Processor != "" })
	if !named {
		return "there is no unit"
	}
	var found []string
	for i := range units {
		u := &units[i]
		for _, one := range f.all {
			if what := u.warningOf(one.text); what != "" {
				found = append(found, terminal.OneLine(u.Processor+": "+what))
			}
		}
		found = append(found, f.findRecords(u)...)
	}
	if n := len(found) - mostFound; n > 0 {
		found = append(found[:mostFound], fmt.Sprintf("and %d more", n))
	}
	return strings.Join(found, "; ")
}

// findRecords returns the faults of the records and holes of a unit, in the order in which they are shown.
func (f *Faults) findRecords(u *Unit) (texts []string) {
	var found []admin.Finding
	for _, one := range f.all {
		found = append(found, one.in(u)...)
	}
	slices.SortStableFunc(found, func(a, b admin.Finding) int {
		return cmp.Or(compareRanges(a.Range, b.Range), strings.Compare(a.ID, b.ID))
	})
	for _, one := range found {
		what := cmp.Or(one.Token, one.ID)
		switch {
		case one.ID == "" && one.Range.Empty(): // a warning
			continue
		case one.ID == "":
			what = one.Range.String()
		case one.Kind == feed.KindRequest:
			what = one.ID
		}
		name := strings.TrimSpace(terminal.OneLine(u.Processor) + " " + terminal.OneLine(what))
		texts = append(texts, name+": "+terminal.OneLine(one.Text))
	}
	return texts
}
