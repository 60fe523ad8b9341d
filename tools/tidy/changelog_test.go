package tidy

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var (
	versionHeading = regexp.MustCompile(`^## \d+\.\d+\.\d+ - (\d{4}-\d\d-\d\d|unreleased)$`)
	changeEntry    = regexp.MustCompile("^- [A-Z`\\[\\-].*[.]$")
)

// maxChanges is how many lines a version may have in the change log, which users read.
const maxChanges = 120

// The change log has a section for each version, the newest first, whose entries are one line each; the first one alone
// may be unreleased.
func TestTheChangeLogHasOneLineAnEntry(t *testing.T) {
	text, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	var versions []string
	entries := map[string]int{}
	for n, line := range strings.Split(string(text), "\n") {
		switch {
		case strings.HasPrefix(line, "## "):
			if !versionHeading.MatchString(line) {
				t.Errorf("CHANGELOG.md:%d: %q is no version: want ## 0.1.0 - 2027-01-31, or unreleased", n+1, line)
			}
			if versions = append(versions, line); len(versions) > 1 && strings.HasSuffix(line, "unreleased") {
				t.Errorf("CHANGELOG.md:%d: a version below another one is unreleased", n+1)
			}
		case line == "", strings.HasPrefix(line, "### "), len(versions) == 0:
		case strings.HasPrefix(line, "- "):
			if !changeEntry.MatchString(line) {
				t.Errorf("CHANGELOG.md:%d: %q: want an entry that is one sentence on one line", n+1, line)
			}
			entries[versions[len(versions)-1]]++
		case strings.HasPrefix(line, " "):
			t.Errorf("CHANGELOG.md:%d: an entry goes on in a second line: want one line", n+1)
		}
	}
	if len(versions) == 0 {
		t.Fatal("CHANGELOG.md has no version")
	}
	for _, version := range versions {
		if n := entries[version]; n == 0 || n > maxChanges {
			t.Errorf("%s has %d entries: want 1 to %d", version, n, maxChanges)
		}
	}
}
