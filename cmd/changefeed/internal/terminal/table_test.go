package terminal

import (
	"strings"
	"testing"
)

func TestNotesAreBelowTheirRowsWhereThereIsNoRoom(t *testing.T) {
	rows := [][]string{{"LEASE", "STATE", "NOTE"}, {"-1F", "live", "free: nobody works on it"}, {"1F-FF", "live", ""}}
	if got, want := Table(rows, 20),
		"  LEASE  STATE\n  -1F    live\n    free: nobody\n    works on it\n  1F-FF  live\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for room, lines := range map[int]int{40: 3, 41: 3, 39: 4} { // the widest line has 40
		if got := Table(rows, room); strings.Count(got, "\n") != lines {
			t.Errorf("in %d columns:\n%s", room, got)
		}
	}
	if got := Table(rows, 0); strings.Count(got, "\n") != 3 ||
		!strings.Contains(got, "live   free: nobody works on it\n") {
		t.Errorf("got\n%s", got)
	}
}

// A range is as long as its edges are, and nobody can copy one that is cut.
func TestARangeIsWholeWhereThereIsNoRoom(t *testing.T) {
	token := strings.Repeat("1F", 16) + "-" + strings.Repeat("3F", 16)
	rows := [][]string{
		{"LEASE", "OWNER", "STATE", "NOTE"},
		{token, "one", "free", "nobody works on it"},
		{"-FF", "another", "live", ""},
	}
	want := "  LEASE\n    OWNER    STATE\n  " + token +
		"\n    one      free\n    nobody works on it\n  -FF\n    another  live\n"
	if got := Table(rows, 70); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	rows = [][]string{{"ID", "CAUSE", "NOTE"}, {"1", strings.Repeat("x", 80), ""}}
	if got := Table(rows, 70); strings.Count(got, "\n") != 2 {
		t.Errorf("a line of its own for a narrow column:\n%s", got)
	}
}

// What a document or an error says may have escape codes in it.
func TestNoTerminalObeysAText(t *testing.T) {
	const text = "no such\taddress:\n\x1b[31m5 Elm Street\u200b"
	if got, want := OneLine(text), "no such address: [31m5 Elm Street"; got != want {
		t.Errorf("one line: %q, want %q", got, want)
	}
	if got, want := Harmless(text), "no such\taddress:\n\ufffd[31m5 Elm Street\ufffd"; got != want {
		t.Errorf("several: %q, want %q", got, want)
	}
}

func TestEmptyColumnsAreShown(t *testing.T) {
	if got := OrDash("") + OrDash("one"); got != "-one" {
		t.Errorf("got %q", got)
	}
}

// The columns are aligned whatever the names of the owners are, and each line fits its terminal.
func TestATableFitsItsTerminal(t *testing.T) {
	half := strings.Repeat("F", 31)
	rows := [][]string{
		{"LEASE", "OWNER", "WRITTEN", "POSITION", "LAG", "STATE", "NOTE"},
		{"-1" + half, "東京ホスト", "2s ago", `"42"`, "0", "live", ""},
		{"1" + half + "-FF", "cafe\u0301 👩‍👩‍👧", "300ms ago", `"4711"`, "~12", "expired", "silent for 1m30s"},
	}
	for width, want := range map[int]string{
		40: `  LEASE
    OWNER       WRITTEN    POSITION
    LAG  STATE
  -1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF
    東京ホスト  2s ago     "42"
    0    live
  1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF-FF
    café 👩‍👩‍👧     300ms ago  "4711"
    ~12  expired
    silent for 1m30s
`,
		80: `  LEASE                                OWNER       WRITTEN    POSITION  LAG
    STATE
  -1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF    東京ホスト  2s ago     "42"      0
    live
  1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF-FF  café 👩‍👩‍👧     300ms ago  "4711"    ~12
    expired
    silent for 1m30s
`,
		200: `  LEASE                                OWNER       WRITTEN    POSITION  LAG  STATE    NOTE
  -1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF    東京ホスト  2s ago     "42"      0    live
  1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF-FF  café 👩‍👩‍👧     300ms ago  "4711"    ~12  expired  silent for 1m30s
`,
	} {
		got := Table(rows, width-1)
		if got != want {
			t.Errorf("in %d columns: got\n%s\nwant\n%s", width, got, want)
		}
		for line := range strings.Lines(got) {
			if n := Width(strings.TrimSuffix(line, "\n")); n >= width {
				t.Errorf("in %d columns a line has %d: %s", width, n, line)
			}
		}
		if lines := strings.Count(got, "\n"); lines > 1+3*len(rows) {
			t.Errorf("in %d columns %d rows fill %d lines", width, len(rows), lines)
		}
	}
}
