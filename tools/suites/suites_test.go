package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const sample = `# Suite 1.0
tests 5

== ours: no users
a > creates a user

== environment: needs a second region
~ b > fails over
c > reads from a region
`

func results(t *testing.T, lines ...string) map[string]result {
	t.Helper()
	got, err := readResults(strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// asListed are outcomes that agree with the sample.
var asListed = []string{
	`{"test":"a > creates a user","outcome":"failed"}`, `{"test":"b > fails over","outcome":"passed"}`,
	`{"test":"c > reads from a region","outcome":"failed"}`, `{"test":"d","outcome":"passed"}`,
	`{"test":"e","outcome":"skipped"}`,
}

func TestEachDifferenceToTheListIsNamed(t *testing.T) {
	known, err := parseList(sample)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		change  func([]string) []string
		part    bool
		finding string // of one line; none if empty
	}{
		{name: "as listed", change: func(l []string) []string { return l }},
		{
			name:    "a listed test passes",
			change:  func(l []string) []string { l[0] = strings.Replace(l[0], "failed", "passed", 1); return l },
			finding: "PASSES NOW a > creates a user: listed as ours: no users",
		},
		{
			name:    "a listed test is skipped",
			change:  func(l []string) []string { l[0] = strings.Replace(l[0], "failed", "skipped", 1); return l },
			finding: "NOT RUN a > creates a user: listed as ours: no users",
		},
		{
			name:    "another test fails",
			change:  func(l []string) []string { l[3] = `{"test":"d","outcome":"failed","message":"no"}`; return l },
			finding: "FAILS d: no",
		},
		{
			name:   "an unsteady test fails",
			change: func(l []string) []string { l[1] = strings.Replace(l[1], "passed", "failed", 1); return l },
		},
		{
			name:    "a test of the suite is gone",
			change:  func(l []string) []string { return l[:4] },
			finding: "4 tests have an outcome: want 5, as the list says",
		},
		{name: "a part of the suite", change: func(l []string) []string { return l[2:3] }, part: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			findings := known.compare(results(t, c.change(slices.Clone(asListed))...), c.part)
			if got := strings.Join(findings, "\n"); got != c.finding {
				t.Errorf("got %q, want %q", got, c.finding)
			}
		})
	}
}

func TestAnUpdatedListAgreesWithTheRun(t *testing.T) {
	dir := t.TempDir()
	file, out := filepath.Join(dir, "known.txt"), filepath.Join(dir, "results.ndjson")
	lines := slices.Clone(asListed)
	lines[0] = strings.Replace(lines[0], "failed", "passed", 1)
	lines[3] = `{"test":"d","outcome":"failed","message":"400  no\nway"}`
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(file, sample)
	write(out, strings.Join(lines, "\n"))
	if err := run(file, out, true, false); err == nil || !strings.Contains(err.Error(), "UPDATE=1") {
		t.Fatalf("a list with an unsorted test: got the error %v, want one that says how to update", err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := `# Suite 1.0
tests 5

== environment: needs a second region
~ b > fails over
c > reads from a region

== unsorted: 400 no way
d
`
	if string(text) != want {
		t.Fatalf("got the list\n%s\nwant\n%s", text, want)
	}
	write(file, strings.Replace(want, "unsorted: 400 no way", "theirs: wrong", 1))
	if err := run(file, out, false, false); err != nil {
		t.Errorf("after the test got a reason: %v", err)
	}
}

func TestAListThatCannotBeReadIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"tests x":                        "want \"tests N\"",
		"a":                              "has no reason",
		"== maybe: b\na":                 "with a class of ours, service-only, environment, theirs",
		"== ours:\na":                    "want \"== CLASS: REASON\"",
		"== ours: b\na\n== theirs: c\na": "listed twice",
		"tests 1\n# late":                "a comment after the head",
	} {
		if _, err := parseList(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got the error %v, want one with %q", text, err, want)
		}
	}
	for _, text := range []string{"", `{"test":"a","outcome":"flew"}`, `{"outcome":"passed"}`, "{"} {
		if _, err := readResults(strings.NewReader(text)); err == nil {
			t.Errorf("results %q: got no error", text)
		}
	}
}

// The lists of this repository are read, and each of their tests has a reason.
func TestKeptListsAreSorted(t *testing.T) {
	files, err := filepath.Glob("../../conformance/*/known*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("lists: %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		known, err := parseList(string(text))
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		for _, r := range known.reasons {
			if r.class == unsorted {
				t.Errorf("%s: %d tests are under %q: give each its reason", file, len(r.tests), r.title())
			}
		}
		if known.String() != string(text) {
			t.Errorf("%s is not in the form in which the command writes it: run the suite with UPDATE=1", file)
		}
	}
}
