package letters

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/cmd/changefeed/internal/unit"
	"github.com/millrace/changefeed/deadletters"
)

// An Answer is the result of a request about a letter or a key to the processors of a unit. With -o json, an Answer
// is the object for programs.
type Answer struct {
	ID      report.Known    `json:"id" about:"of the letter; null if the answer is about a key"`
	Key     json.RawMessage `json:"key" about:"the partition key"`
	Result  string          `json:"result" about:"handled, failed, nothing (to do), not served, or not asked"`
	Handled int             `json:"handled" about:"number of letters that were handled, held letters included"`
	Held    *int            `json:"held" about:"held letters of the key that are left"`
	Cause   report.Known    `json:"cause" about:"why the change failed, or was not served; null if neither"`

	short string // short form of the ID for people
}

// ReportedAs implements [report.Value].
func (Answer) ReportedAs() string { return "answer" }

// AnswerKind describes the lines of dlq retry and release.
var AnswerKind = report.Kind{Name: "answer", About: "The outcome of a request about a letter or a key: dlq retry, dlq release.", Of: Answer{}}

// The results of an answer.
const (
	isHandled  = string(deadletters.ResultHandled)
	isFailed   = string(deadletters.ResultFailed)
	isNothing  = string(deadletters.ResultNothing)
	isUnserved = "not served" // no answer in time, or an error
	isUnasked  = "not asked"  // because no processor serves the lease
)

// setOutcome writes the outcome into the answer.
func (a *Answer) setOutcome(o deadletters.Outcome, err error) {
	if err != nil {
		// The error begins with the subject of the request, which the line contains too.
		_, cause, ok := strings.Cut(err.Error(), string(a.Key)+": ")
		if !ok {
			cause = err.Error()
		}
		a.Result, a.Cause = isUnserved, report.Known(cause)
		return
	}
	a.Result, a.Handled, a.Cause = string(o.Result), o.Handled, report.Known(o.Cause)
	if o.Held >= 0 {
		a.Held = &o.Held
	}
}

// String returns a line for people.
func (a Answer) String() string {
	key, cause := terminal.OneLine(string(a.Key)), terminal.OneLine(string(a.Cause))
	switch {
	case a.Result == isUnserved:
		if !strings.HasPrefix(cause, isUnserved) {
			cause = isUnserved + ": " + cause
		}
		return a.subject(key) + ": " + cause
	case a.ID == "":
		return a.releaseLine(key, cause)
	}
	return a.retryLine(a.subject(key), cause)
}

func (a Answer) subject(key string) string {
	if a.ID == "" {
		return key
	}
	return a.short + " of " + key
}

// retryLine returns the line for a letter whose request was served.
func (a Answer) retryLine(letter, cause string) string {
	followers := ""
	if a.Handled > 1 {
		followers = fmt.Sprintf(", with %s after it", terminal.Count(a.Handled-1, "held letter"))
	}
	switch {
	case a.Result == isHandled:
		return letter + " is handled" + followers
	case a.Result == isNothing:
		return letter + ": nothing to do: the letter is gone, or it is held behind another one"
	case a.Handled == 0:
		return letter + " has failed again: " + cause
	}
	return letter + " is handled" + followers + "; then a held letter has failed: " + cause + a.heldLine()
}

// releaseLine returns the line for a key whose request was served.
func (a Answer) releaseLine(key, cause string) string {
	switch {
	case a.Result == isNothing:
		return key + ": nothing to do: it is not held"
	case a.Result == isFailed && a.Handled > 0:
		return fmt.Sprintf("%s is held still: %s handled, then one has failed: %s%s", key, areHeld(a.Handled), cause,
			a.heldLine())
	case a.Result == isFailed:
		return key + " is held still: a held letter has failed: " + cause + a.heldLine()
	case a.Handled > 0:
		return fmt.Sprintf("%s is released: %s handled", key, areHeld(a.Handled))
	}
	return key + " is released"
}

// heldLine returns how many letters are still held, in words.
func (a Answer) heldLine() string {
	if a.Held == nil || *a.Held == 0 {
		return ""
	}
	return fmt.Sprintf("; %s left", areHeld(*a.Held))
}

// areHeld returns a number of held letters, and a verb.
func areHeld(n int) string {
	verb := " are"
	if n == 1 {
		verb = " is"
	}
	return terminal.Count(n, "held letter") + verb
}

// A Report writes answers as they come: for people a line each and a summary at the end, for programs an object per
// line.
type Report struct {
	Commands unit.Commands // about the unit

	to       *report.Report
	rows     *report.Rows
	done     string // word for the result: handled or released
	thing    string // subject of the requests: letter or key
	all      int
	results  map[string]int
	followed int // number of held letters that were handled
}

// NewReport returns the report of a command.
func NewReport(to *report.Report, done, thing string) *Report {
	return &Report{to: to, rows: to.Rows(), done: done, thing: thing, results: map[string]int{}}
}

// Write writes an answer. People get no line for a subject that was not asked for.
func (r *Report) Write(a Answer) (err error) {
	r.all++
	r.results[a.Result]++
	r.followed += a.Handled
	if a.ID != "" && a.Handled > 0 {
		r.followed-- // the letter itself does not count
	}
	switch {
	case !r.to.ForPeople():
		return r.rows.Add(a)
	case a.Result != isUnasked:
		_, err = fmt.Fprintln(r.to.Out, a)
	}
	return err
}

// Empty reports whether no answer was written.
func (r *Report) Empty() bool { return r.all == 0 }

// End writes the summary. End returns an error if any letter failed again or was not served, or if a key to release
// was not held.
func (r *Report) End() error {
	end := r.rows.Flush
	if r.to.ForPeople() {
		end = r.summary
	}
	if err := end(); err != nil {
		return err
	}
	var bad []string
	for _, one := range []struct{ result, text string }{
		{isFailed, "failed again"},
		{isUnserved, isUnserved},
		{isUnasked, isUnasked},
	} {
		if n := r.results[one.result]; n > 0 {
			bad = append(bad, fmt.Sprintf("%d %s", n, one.text))
		}
	}
	if n := r.results[isNothing]; n > 0 && r.thing == "key" {
		bad = append(bad, fmt.Sprintf("%d not held", n))
	}
	if bad == nil {
		return nil
	}
	return fmt.Errorf("of %s: %s", terminal.Count(r.all, r.thing), strings.Join(bad, ", "))
}

func (r *Report) summary() error {
	n := r.results
	followed := ""
	if r.followed > 0 {
		followed = fmt.Sprintf(" (with %s)", terminal.Count(r.followed, "held letter"))
	}
	_, err := fmt.Fprintf(r.to.Out, "%s %d%s, failed again %d, not served %d, nothing to do %d\n", r.done, n[isHandled],
		followed, n[isFailed], n[isUnserved], n[isNothing])
	if err == nil && r.all == 0 && r.thing == "letter" {
		_,
			err = fmt.Fprintln(r.to.Out,
			r.Commands.Complete("there is no letter to retry; what is held behind a letter that was dropped needs "+
				"changefeed dlq release --key KEY"))
	}
	if err == nil && n[isUnasked] > 0 {
		_,
			err = fmt.Fprintf(r.to.Out,
			"not asked %d: their leases did not serve %d in a row, so nobody seems to work on these now\n",
			n[isUnasked], maxUnserved)
	}
	return err
}
