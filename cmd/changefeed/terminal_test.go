package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"
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

// TestTheDemoFitsItsTerminal has numbers as large as a demo makes them.
func TestTheDemoFitsItsTerminal(t *testing.T) {
	for _, width := range []int{80, 100, 120, 200} {
		var out bytes.Buffer
		d := &demo{ledger: newLedger(), fleet: &fleet{}}
		d.screen = &screen{w: &out, Terminal: wide(width), begun: time.Now()}
		d.screen.Colour = false
		for _, name := range []string{"host-1", "host-2"} {
			d.fleet.all = append(d.fleet.all, &instance{name: name, wire: newWire(t.Context(), nil, nil)})
		}
		b := newBoard(d)
		d.screen.show(b.table([]boardRow{{"host-1", "working", 4, 1_234_567, 12_345, 1234.5, 12_345.6}}, nil))
		if got := out.String(); !strings.Contains(got, "12345    1234.5   12345.6\n") {
			t.Errorf("at %d columns figures are cut off:\n%s", width, got)
		}
		d.conclude(findings{TakeoverMS: new(int64(2100)), RebalanceRounds: new(1)})
		d.screen.say("the store is kept: changefeed leases --db %s, changefeed tail --db %[1]s --container orders", "/a/directory/that/is/rather/long")
		text := regexp.MustCompile(`\x1b\[\d*[AJ]`).ReplaceAllString(out.String(), "")
		if got := widest(text); got >= width {
			t.Errorf("at %d columns a line has %d:\n%s", width, got, text)
		}
	}
}

func TestATerminalThatIsResizedIsDrawnAnew(t *testing.T) {
	var out bytes.Buffer
	width := 80
	s := &screen{w: &out, Terminal: terminal.Terminal{Width: func() int { return width }, InPlace: true}, begun: time.Now()}
	s.say("hello")
	s.show([]line{{{"a table", bold}}})
	out.Reset()
	width = 40
	s.show([]line{{{"a table", bold}}})
	if got, want := out.String(), "\x1b[H\x1b[2J   0.0s  hello\na table\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFiguresFitTheirTerminal(t *testing.T) {
	all := []figure{{
		Name: "serve_upsert_nosync", Value: 12_345_678, Unit: "requests/lease/min", Baseline: new(23_456_789.0), Ratio: new(0.526),
		Detail: strings.Repeat("a few words of what was measured and how, ", 5), Target: "≤ 0.25 requests/lease/min", OK: true,
	}}
	for _, width := range []int{80, 120, 0} {
		var out bytes.Buffer
		if err := writeFigures(&out, all, width); err != nil {
			t.Fatal(err)
		}
		got := out.String()
		if most := widest(got); width > 0 && most > width {
			t.Errorf("at %d columns a line has %d:\n%s", width, most, got)
		}
		for _, want := range []string{"serve_upsert_nosync", "12.35M requests/lease/min", "23.46M", "0.526", "≤ 0.25", "ok"} {
			if !strings.Contains(got, want) {
				t.Errorf("at %d columns %q is missing:\n%s", width, want, got)
			}
		}
	}
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
