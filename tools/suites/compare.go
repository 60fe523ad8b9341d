package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// maxMessage is how much of a test's message is kept.
const maxMessage = 100

// result is what one test did.
type result struct {
	Test    string `json:"test"`
	Outcome string `json:"outcome"`
	Message string `json:"message"`
}

// readResults reads the outcome of each test. A test that ran twice under one name has failed if one of the runs has.
func readResults(in io.Reader) (map[string]result, error) {
	all := map[string]result{}
	for dec := json.NewDecoder(in); ; {
		var r result
		if err := dec.Decode(&r); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("after %d tests: %w", len(all), err)
		}
		if r.Test == "" || !slices.Contains([]string{"passed", "failed", "skipped"}, r.Outcome) {
			return nil, fmt.Errorf("test %q has the outcome %q: want a name, and passed, failed or skipped", r.Test, r.Outcome)
		}
		if before, twice := all[r.Test]; !twice || before.Outcome != "failed" {
			all[r.Test] = r
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no test ran")
	}
	return all, nil
}

// compare lists where the results differ from what is known, one line each.
func (l list) compare(got map[string]result, part bool) []string {
	var findings []string
	add := func(format string, args ...any) { findings = append(findings, fmt.Sprintf(format, args...)) }
	listed := map[string]bool{}
	for _, r := range l.reasons {
		for _, test := range r.tests {
			listed[test] = true
			switch outcome := got[test].Outcome; {
			case r.class == unsorted:
				add("UNSORTED %s: give the test a reason (%s)", test, strings.Join(classes, ", "))
			case outcome == "" && !part, outcome == "skipped" && !l.unsteady[test]:
				add("NOT RUN %s: listed as %s: %s", test, r.class, r.text)
			case outcome == "passed" && !l.unsteady[test]:
				add("PASSES NOW %s: listed as %s: %s", test, r.class, r.text)
			}
		}
	}
	for _, test := range sortedNames(got) {
		if got[test].Outcome == "failed" && !listed[test] {
			add("FAILS %s: %s", test, got[test].Message)
		}
	}
	if len(got) != l.tests && !part {
		add("%d tests have an outcome: want %d, as the list says", len(got), l.tests)
	}
	return findings
}

// updated is the list by the results: without the tests that pass or are gone, and with those that fail for the first
// time as unsorted.
func (l list) updated(got map[string]result) list {
	next := list{head: l.head, tests: len(got), unsteady: l.unsteady}
	for _, r := range l.reasons {
		r.tests = slices.DeleteFunc(slices.Clone(r.tests), func(test string) bool {
			return got[test].Outcome != "failed" && !(l.unsteady[test] && got[test].Outcome != "")
		})
		next.reasons = append(next.reasons, r)
	}
	for _, test := range sortedNames(got) {
		if _, known := l.of(test); known || got[test].Outcome != "failed" {
			continue
		}
		next.add(test, strings.Join(strings.Fields(got[test].Message), " "))
	}
	return next
}

// add puts a test under the class unsorted.
func (l *list) add(test, message string) {
	if message == "" {
		message = "no message"
	}
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "")
	}
	for i, r := range l.reasons {
		if r.class == unsorted && r.text == message {
			l.reasons[i].tests = append(r.tests, test)
			return
		}
	}
	l.reasons = append(l.reasons, reason{class: unsorted, text: message, tests: []string{test}})
}

// sums tells how many tests passed, and how many failed by class and reason.
func (l list) sums(got map[string]result) string {
	var b strings.Builder
	counts, byReason := map[string]int{}, map[string]int{}
	for test, r := range got {
		counts[r.Outcome]++
		if r.Outcome != "failed" {
			continue
		}
		why, known := l.of(test)
		if !known || why.class == unsorted {
			counts[unsorted]++
			continue
		}
		counts[why.class]++
		byReason[why.title()]++
	}
	for _, r := range l.reasons {
		if n := byReason[r.title()]; n > 0 {
			fmt.Fprintf(&b, "%5d %s: %s\n", n, r.class, r.text)
		}
	}
	fmt.Fprintf(&b, "%d passed, %d skipped, %d failed as listed", counts["passed"], counts["skipped"],
		counts["failed"]-counts[unsorted])
	for _, c := range classes {
		fmt.Fprintf(&b, ", %d %s", counts[c], c)
	}
	fmt.Fprintf(&b, "; %d failed otherwise\n", counts[unsorted])
	return b.String()
}

func sortedNames(got map[string]result) []string {
	names := make([]string, 0, len(got))
	for name := range got {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
