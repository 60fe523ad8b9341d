package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/millrace/changefeed/internal/terminal"
)

// wide is a terminal of a width, in colour.
func wide(n int) terminal.Terminal {
	return terminal.Terminal{Width: func() int { return n }, InPlace: true, Colour: true}
}

// widest is the longest line of a text that has no escape sequences.
func widest(text string) (most int) {
	for line := range strings.Lines(text) {
		most = max(most, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")))
	}
	return most
}

func TestNotesOfLeasesAreBelowWhereThereIsNoRoom(t *testing.T) {
	rows := [][]string{{"LEASE", "STATE", "NOTE"}, {"-1F", "live", "free: nobody works on it"}, {"1F-FF", "live", ""}}
	if got, want := leaseTable(rows, 20), "  LEASE  STATE\n  -1F    live\n    free: nobody\n    works on it\n  1F-FF  live\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := leaseTable(rows, 0); strings.Count(got, "\n") != 3 || !strings.Contains(got, "live   free: nobody works on it\n") {
		t.Errorf("got\n%s", got)
	}
}
