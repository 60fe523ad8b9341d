package main

import (
	"bufio"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// classes say whose matter it is that a test fails, in the order of the sums.
var classes = []string{"ours", "service-only", "environment", "theirs"}

// unsorted is the class of tests that -update has added.
const unsorted = "unsorted"

// reason is why some tests fail.
type reason struct {
	class, text string
	tests       []string
}

func (r reason) title() string { return "== " + r.class + ": " + r.text }

// list is what is known of a suite.
type list struct {
	head     []string // comments before the first line that is none
	tests    int      // how many tests have an outcome, skipped ones included
	reasons  []reason
	unsteady map[string]bool // those that fail in some runs only
}

// parseList reads a list, and refuses one in which a test has two reasons.
func parseList(text string) (list, error) {
	l := list{unsteady: map[string]bool{}}
	seen := map[string]bool{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "":
		case strings.HasPrefix(line, "#"):
			if len(l.reasons) > 0 || l.tests > 0 {
				return l, fmt.Errorf("line %d: a comment after the head: want comments before the line \"tests N\" only", n)
			}
			l.head = append(l.head, line)
		case strings.HasPrefix(line, "tests "):
			var err error
			if l.tests, err = strconv.Atoi(strings.TrimPrefix(line, "tests ")); err != nil || l.tests < 1 {
				return l, fmt.Errorf("line %d: %q: want \"tests N\" with the number of tests", n, line)
			}
		case strings.HasPrefix(line, "== "):
			class, text, ok := strings.Cut(strings.TrimPrefix(line, "== "), ": ")
			if !ok || text == "" || !slices.Contains(append(classes, unsorted), class) {
				return l, fmt.Errorf("line %d: %q: want \"== CLASS: REASON\" with a class of %s",
					n, line, strings.Join(classes, ", "))
			}
			l.reasons = append(l.reasons, reason{class: class, text: text})
		case len(l.reasons) == 0:
			return l, fmt.Errorf("line %d: the test %q has no reason: want a line \"== CLASS: REASON\" before it", n, line)
		default:
			test, some := strings.CutPrefix(line, "~ ")
			if seen[test] {
				return l, fmt.Errorf("line %d: the test %q is listed twice: want one reason for each test", n, test)
			}
			seen[test] = true
			if some {
				l.unsteady[test] = true
			}
			last := &l.reasons[len(l.reasons)-1]
			last.tests = append(last.tests, test)
		}
	}
	return l, lines.Err()
}

// String is the list as it is kept: the reasons of a class in the order of their tests' number.
func (l list) String() string {
	var b strings.Builder
	for _, line := range l.head {
		b.WriteString(line + "\n")
	}
	fmt.Fprintf(&b, "tests %d\n", l.tests)
	rank := func(r reason) int { return slices.Index(append(classes, unsorted), r.class) }
	reasons := slices.Clone(l.reasons)
	slices.SortStableFunc(reasons, func(a, b reason) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return len(b.tests) - len(a.tests)
	})
	for _, r := range reasons {
		if len(r.tests) == 0 {
			continue
		}
		b.WriteString("\n" + r.title() + "\n")
		for _, t := range slices.Sorted(slices.Values(r.tests)) {
			if l.unsteady[t] {
				b.WriteString("~ ")
			}
			b.WriteString(t + "\n")
		}
	}
	return b.String()
}

// of is the reason for which a test is known to fail.
func (l list) of(test string) (reason, bool) {
	for _, r := range l.reasons {
		if slices.Contains(r.tests, test) {
			return r, true
		}
	}
	return reason{}, false
}
