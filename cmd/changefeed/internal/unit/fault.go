package unit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/feed"
)

// Faults are what a script looks for in units, as a flag.
type Faults struct{ all []fault }

// fault is one of them.
type fault struct {
	text string // as the user wrote it
	in   func(r *Row) (what string, found bool)
}

// faultWords are the faults without a limit.
var faultWords = []struct {
	word, about string
	in          func(r *Row) (what string, found bool)
}{
	{"expired", "the owner of a lease is silent", func(r *Row) (string, bool) {
		return fmt.Sprintf("owner %s is silent for %s", terminal.OneLine(r.Owner), terminal.Seconds(r.Silent)),
			r.State == StateExpired
	}},
	{"free", "nobody has a lease, though instances run", inState(StateFree, "nobody has the lease")},
	{"stopped", "no instance of the unit runs", func(r *Row) (string, bool) {
		return "no instance runs", r.State == StateStopped || r.Kind == KindLease && r.gone
	}},
	{"paused", "a lease is paused", inState(StatePaused, "the lease is paused")},
	{"hole", "no lease holds some keys", func(r *Row) (string, bool) {
		return "no lease holds these keys", r.Kind == KindHole
	}},
	{"overlap", "two leases hold the same keys", func(r *Row) (string, bool) {
		return "another lease holds keys of this one", len(r.Overlaps) > 0
	}},
	{"broken", "a document is no valid lease", func(r *Row) (string, bool) {
		return fmt.Sprint(r.record.Err), r.record.Err != nil
	}},
	{"failing", "a batch has failed", func(r *Row) (string, bool) {
		return "the batch in hand has failed " + terminal.Count(r.Attempts, "time"), r.Attempts > 0
	}},
	{"slow", "a batch is in the handler for much longer than usual", func(r *Row) (string, bool) {
		if r.InHand == nil {
			return "", false
		}
		return "a batch has been in the handler for " + terminal.Seconds(*r.InHand), true
	}},
	{"held", "keys are held behind a dead letter", func(r *Row) (string, bool) {
		return fmt.Sprintf("%s held", terminal.Count(r.Held, "key")), r.Held > 0
	}},
	{"aside", "keys are set aside because they fail", func(r *Row) (string, bool) {
		return fmt.Sprintf("%s set aside", terminal.Count(r.SetAside, "key")), r.SetAside > 0
	}},
	{"outage", "an owner sees an outage", func(r *Row) (string, bool) {
		return "outage since " + r.Outage, r.Outage != ""
	}},
	{"unknown", "the lag of a lease is not known", func(r *Row) (string, bool) {
		return "the lag is not known", r.Kind == KindLease && r.Lag == nil && r.record.State != feed.StateRetired
	}},
}

// faultsOfUnits are the faults of a unit as a whole: the words of warnings.
var faultsOfUnits = []struct{ word, about string }{
	{WarnDiffer, "instances of the unit run different handlers, programs or options"},
	{WarnIdle, "an instance has no lease, because there are too few"},
	{WarnAlike, "another unit on the same container has a similar name"},
}

// inState finds the leases in a state.
func inState(state, what string) func(r *Row) (string, bool) {
	return func(r *Row) (string, bool) { return what, r.State == state }
}

// FaultsAbout describes the faults for the help of a command, one a line.
func FaultsAbout() string {
	var text strings.Builder
	line := func(word, about string) { fmt.Fprintf(&text, "  %-14s %s\n", word, about) }
	line("wait>DURATION", "the oldest change of a lease has waited longer, such as wait>2m")
	line("lag>NUMBER", "a lease has more changes behind, such as lag>1000")
	for _, w := range faultWords {
		line(w.word, w.about)
	}
	for _, w := range faultsOfUnits {
		line(w.word, w.about)
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
	words := []string{"wait>2m", "lag>1000"}
	for _, w := range faultWords {
		words = append(words, w.word)
	}
	for _, w := range faultsOfUnits {
		words = append(words, w.word)
	}
	return words
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

// parseFault reads one fault.
func parseFault(text string) (fault, error) {
	name, limit, limited := strings.Cut(text, ">")
	switch {
	case limited && name == "wait":
		most, err := time.ParseDuration(limit)
		if err != nil || most < 0 {
			return fault{}, fmt.Errorf("%s: want a duration after wait>, such as wait>2m", text)
		}
		return fault{text, func(r *Row) (string, bool) {
			if r.Waited == nil || *r.Waited <= most.Seconds() {
				return "", false
			}
			return "the oldest change has waited for " + terminal.Seconds(*r.Waited), true
		}}, nil
	case limited && name == "lag":
		most, err := strconv.ParseInt(limit, 10, 64)
		if err != nil || most < 0 {
			return fault{}, fmt.Errorf("%s: want a number of changes after lag>, such as lag>1000", text)
		}
		return fault{text, func(r *Row) (string, bool) {
			if r.Lag == nil || *r.Lag <= most {
				return "", false
			}
			return mark(r.Exact, r.Shared) + terminal.Count(*r.Lag, "change") + " behind", true
		}}, nil
	}
	var words []string
	for _, w := range faultWords {
		if w.word == text {
			return fault{text, w.in}, nil
		}
		words = append(words, w.word)
	}
	for _, w := range faultsOfUnits {
		if w.word == text {
			return fault{text, func(*Row) (string, bool) { return "", false }}, nil
		}
		words = append(words, w.word)
	}
	return fault{}, fmt.Errorf("%q is no fault: want some of wait>DURATION, lag>NUMBER, %s", text,
		strings.Join(words, ", "))
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
	for _, u := range units {
		for _, one := range f.all {
			if what := u.warningOf(one.text); what != "" {
				found = append(found, terminal.OneLine(u.Processor+": "+what))
			}
		}
		for i := range u.Rows {
			for _, one := range f.all {
				if what, is := one.in(&u.Rows[i]); is {
					found = append(found, u.Rows[i].name()+": "+what)
				}
			}
		}
	}
	if n := len(found) - mostFound; n > 0 {
		found = append(found[:mostFound], fmt.Sprintf("and %d more", n))
	}
	return strings.Join(found, "; ")
}

// name names the record of a row, or the keys without one.
func (r *Row) name() string {
	what := r.Lease
	switch {
	case r.Kind == KindHole:
		what = r.Range
	case what == "":
		what = r.ID
	}
	return strings.TrimSpace(terminal.OneLine(r.Processor) + " " + terminal.OneLine(what))
}
