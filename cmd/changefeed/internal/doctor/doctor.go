// Package doctor examines a store or an account from outside: each check looks at one thing, and says its finding
// and the next step. A check that fails keeps no other from running. Nothing is changed by a check.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/report"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
)

// A Verdict is the result of a check.
type Verdict string

// The verdicts. An unknown fact is a warning.
const (
	OK   Verdict = "ok"
	Warn Verdict = "warn"
	Fail Verdict = "fail"
)

// A Finding is the result of a check.
type Finding struct {
	Check   string
	About   string // the unit or container, if the check is about one of several
	Verdict Verdict
	Known   bool   // false if the check could not find out
	Found   string // a sentence without a full stop
	Next    string // what to do; empty if all is well
}

// good is a finding that needs no action.
func good(check, about, format string, args ...any) Finding {
	return Finding{check, about, OK, true, fmt.Sprintf(format, args...), ""}
}

// bad is a finding with a verdict and with what to do next.
func bad(check, about string, v Verdict, next, format string, args ...any) Finding {
	return Finding{check, about, v, true, fmt.Sprintf(format, args...), next}
}

// unknown is the finding of a check that could not find out.
func unknown(check, about, why, next string) Finding {
	return Finding{check, about, Warn, false, "not known: " + why, next}
}

// The finding and the advice after a check that took too long.
const (
	noAnswer = "there was no answer in time"
	longer   = "see whether the machine or the network hangs, or want a longer --timeout"
)

// failed is the finding of a check whose request has failed. Many errors end with what they want, which is what to do.
func failed(check, about string, v Verdict, err error) Finding {
	if errors.Is(err, context.DeadlineExceeded) {
		return Finding{check, about, v, true, noAnswer, longer}
	}
	found, next := place.Plain(err), place.Hint(err)
	if i := strings.LastIndex(found, ": want "); i > 0 && next == "" {
		found, next = found[:i], found[i+len(": "):]
	}
	if next == "" {
		next = "mend this, and run changefeed doctor again"
	}
	return Finding{check, about, v, true, found, next}
}

// unclear is unknown because of an error.
func unclear(check, about string, err error) Finding {
	f := failed(check, about, Warn, err)
	f.Known, f.Found = false, "not known: "+f.Found
	return f
}

// Line returns the finding as a line for people.
func (f Finding) Line() string {
	verdict := string(f.Verdict)
	if f.Verdict == Fail {
		verdict = "FAIL"
	}
	text := f.Found
	if f.About != "" {
		text = f.About + ": " + text
	}
	if f.Next != "" {
		text += "; " + f.Next
	}
	return fmt.Sprintf("%-4s  %-11s  %s", verdict, f.Check, terminal.OneLine(terminal.WithoutSecrets(text)))
}

// line is a finding for programs.
type line struct {
	Check   string  `json:"check" about:"name of the check"`
	About   *string `json:"about" about:"the unit or container, if there are several"`
	Verdict string  `json:"verdict" about:"ok, warn or fail"`
	Known   bool    `json:"known" about:"false if the check could not find out; the verdict is then warn or fail"`
	Found   string  `json:"found" about:"the finding"`
	Next    *string `json:"next" about:"the next step; null if the verdict is ok"`
}

// ReportedAs implements [report.Value].
func (line) ReportedAs() string { return "diagnosis" }

// Value returns the finding for programs.
func (f Finding) Value() report.Value {
	text := func(s string) *string {
		if s == "" {
			return nil
		}
		s = terminal.WithoutSecrets(s)
		return &s
	}
	return line{f.Check, text(f.About), string(f.Verdict), f.Known, terminal.WithoutSecrets(f.Found), text(f.Next)}
}

// A Summary counts the verdicts of an examination.
type Summary struct {
	Subject  string `json:"address" about:"the address or directory, as given"`
	OK       bool   `json:"ok" about:"no check has failed, and some could find out; there may be warnings"`
	Checks   int    `json:"checks" about:"number of findings"`
	Warnings int    `json:"warnings" about:"number of findings with the verdict warn"`
	Failed   int    `json:"failed" about:"number of findings with the verdict fail"`

	known int // findings of checks that could find out
}

// ReportedAs implements [report.Value].
func (Summary) ReportedAs() string { return "doctor" }

// add counts a finding.
func (s *Summary) add(f Finding) {
	s.Checks++
	switch f.Verdict {
	case Warn:
		s.Warnings++
	case Fail:
		s.Failed++
	}
	if f.Known {
		s.known++
	}
	s.OK = s.Failed == 0 && s.known > 0
}

// Text returns the summary for people.
func (s Summary) Text() string {
	return fmt.Sprintf("%s, %s, %d failed", terminal.Count(s.Checks, "check"), terminal.Count(s.Warnings, "warning"),
		s.Failed)
}

// Kinds describes the lines of changefeed doctor.
func Kinds() []report.Kind {
	return []report.Kind{
		{Name: "diagnosis", About: "The finding of a check: doctor.", Of: line{}},
		{Name: "doctor", About: "How many checks have failed, after all diagnoses: doctor.", Of: Summary{}},
	}
}

// An Examination is the examination of a store or an account.
type Examination struct {
	Opener   *place.Opener
	At       place.Address
	Each     time.Duration // how long a check may take
	Whole    time.Duration // how long all checks may take
	Intended []string      // names of units that are meant to look alike
	Tell     func(Finding) error

	summary Summary
	told    error // by Tell
}

// Run runs all checks, and tells the finding of each. Run fails only if ctx ends, or if Tell fails.
func (e *Examination) Run(ctx context.Context) (Summary, error) {
	e.summary = Summary{Subject: e.At.Given, OK: true}
	within, cancel := context.WithTimeout(ctx, e.Whole)
	defer cancel()
	p := patient{Examination: e}
	if e.At.Dir != "" {
		p.examineDirectory(within)
	} else {
		p.examineAccount(within)
	}
	switch {
	case e.told != nil:
		return e.summary, e.told
	case ctx.Err() != nil:
		return e.summary, fmt.Errorf("interrupted after %s", terminal.Count(e.summary.Checks, "check"))
	}
	return e.summary, nil
}

// patient is the facts that the checks have found out for each other.
type patient struct {
	*Examination

	origin     place.Origin
	blocked    *block         // nil if the account or store can be asked
	glances    []place.Glance // with the key
	sealed     []place.Glance // without it
	containers []container
}

// A block is why nothing can be asked.
type block struct {
	why   string
	first string // what has to be mended
}

// The blocks.
var (
	noAccount    = &block{"no account is named", "name the account"}
	noKey        = &block{"there is no key", "correct the key"}
	noName       = &block{"the name of the host is not known", "correct the name of the host"}
	noConnection = &block{"there is no connection", "mend the connection"}
	noReading    = &block{"the account cannot be read", "mend what the check read has found"}
	noStore      = &block{"the store cannot be opened", "mend what the check directory or store has found"}
	noList       = &block{"the containers cannot be listed", "mend what the check containers has found"}
)

// mute is the finding of a check that nobody answers.
func (p *patient) mute(check string) Finding {
	return unknown(check, "", p.blocked.why, "first "+p.blocked.first)
}

// muted returns the only finding of a check that nobody answers; ok is false if the check can ask.
func (p *patient) muted(check string) (found []Finding, ok bool) {
	if p.blocked == nil {
		return nil, false
	}
	return []Finding{p.mute(check)}, true
}

// check runs a check within its time, and tells its findings. After an interrupt nothing is said, because a request
// that was interrupted says nothing about the account.
func (p *patient) check(ctx context.Context, name string, run func(ctx context.Context) []Finding) {
	if p.told != nil || isInterrupted(ctx) {
		return
	}
	var found []Finding
	if ctx.Err() != nil {
		found = []Finding{unknown(name, "", "the time of --wait is over", "want a longer --wait")}
	} else {
		within, cancel := context.WithTimeout(ctx, p.Each)
		defer cancel()
		found = run(within)
	}
	if isInterrupted(ctx) {
		return
	}
	for _, f := range found {
		p.summary.add(f)
		if p.told = p.Tell(f); p.told != nil {
			return
		}
	}
}

// isInterrupted reports whether the user has ended the command, and not a limit of time.
func isInterrupted(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// Indent is how many cells the further parts of a long line are indented.
const Indent = 19
