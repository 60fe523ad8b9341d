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

// A cell moves to another line only if it fits there, with the indent of that line.
func TestACellMovesOnlyToALineWhereItFits(t *testing.T) {
	for width, lines := range map[int]int{16: 2, 17: 1, 18: 1, 19: 1} { // further lines have room for 16
		rows := [][]string{{"1", strings.Repeat("x", width)}}
		if got := Columns(rows, 20); strings.Count(got, "\n") != lines {
			t.Errorf("a cell of %d: got\n%s\nwant %d lines", width, got, lines)
		}
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

// Cells have what others have written: a line break would be a row, and a code would be obeyed.
func TestNoCellControlsATerminal(t *testing.T) {
	rows := [][]string{{"ID", "OWNER", "NOTE"}, {"y\n..\x1b[5m", "o\u009b2Jx", "n\ax"}, {"a  b", "  c", ""}}
	for _, room := range []int{0, 12} {
		for _, got := range []string{Table(rows, room), Columns(rows, room)} {
			if strings.ContainsAny(got, "\x1b\u009b\a") || !strings.Contains(got, "  y ..") {
				t.Errorf("in %d columns: got %q", room, got)
			}
		}
	}
	if got, want := Table(rows, 0), "  a  b      "; !strings.Contains(got, want) {
		t.Errorf("got %q, want the cell as it is", got)
	}
	if rows[1][0] != "y\n..\x1b[5m" {
		t.Errorf("the caller's cell is %q now", rows[1][0])
	}
}

func TestALongValueIsCut(t *testing.T) {
	rows := [][]string{{"id", "text"}, {"1", strings.Repeat("x", 500)}}
	got := Columns(rows, 40)
	if strings.Count(got, "x") != 76 || !strings.Contains(got, "x…\nno room for ends of values: see -o json\n") {
		t.Errorf("a value of 500 letters at 40 columns is\n%s", got)
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
    OWNER       POSITION  LAG  STATE
  -1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF
    東京ホスト  "42"      0    live
  1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF-FF
    café 👩‍👩‍👧     "4711"    ~12  expired
    silent for 1m30s
no room for WRITTEN: see -o json
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
		got := Table(rows, width-1, 2, 3)
		if got != want {
			t.Errorf("in %d columns: got\n%s\nwant\n%s", width, got, want)
		}
		if lines := strings.Count(got, "\n"); lines > 1+3*len(rows) {
			t.Errorf("in %d columns %d rows fill %d lines", width, len(rows), lines)
		}
	}
	for room := 39; room < 130; room++ {
		for line := range strings.Lines(Table(rows, room, 2, 3)) {
			if n := Width(strings.TrimSuffix(line, "\n")); n > room {
				t.Errorf("in %d columns a line has %d: %s", room, n, line)
			}
		}
	}
}

// A row has three lines at most, whatever is in it: what is left out is named, and a cell that is shown is whole.
func TestARowHasThreeLinesAtMost(t *testing.T) {
	rows := [][]string{
		{"A", "B", "C", "D", "E", "NOTE"},
		{"aaaaaaaaaa", "東京東京東京", "cccccccccc", "dddddddddd", "eeeeeeeeee", strings.Repeat("a long note ", 9)},
		{"a", "b", "c", "d", "e", ""},
	}
	for room := 16; room < 200; room++ {
		text := Table(rows, room, 1, 3)
		notes := strings.Count(strings.Join(strings.Fields(text), " "), "a long note")
		if notes == 9 && !strings.Contains(text, "no room") && strings.Contains(text, "東") {
			continue // everything is shown
		}
		body, left, ok := strings.Cut(text, "no room for ")
		if !ok {
			t.Fatalf("in %d columns:\n%s\nwant it to say what is left out", room, text)
		}
		left = strings.Join(strings.Fields(left), " ")
		for i, heading := range rows[0][:5] {
			isLeft := strings.Contains(left, heading+",") || strings.Contains(left, heading+":")
			if strings.Contains(body, rows[1][i]) == isLeft {
				t.Errorf("in %d columns: column %s is shown and left out, or neither:\n%s", room, heading, text)
			}
		}
		lines := strings.Count(body[strings.Index(body, rows[1][0]):], "\n")
		if lines > 2*maxLines || strings.Contains(body, "…") != strings.Contains(left, "ends of notes") {
			t.Errorf("in %d columns two rows have %d lines:\n%s", room, lines, text)
		}
		for line := range strings.Lines(text) {
			if n := Width(strings.TrimSuffix(line, "\n")); n > room {
				t.Errorf("in %d columns a line has %d: %s", room, n, line)
			}
		}
	}
}
