package demo

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/proof/fleet"
)

func TestTheScreenDrawsItsTableInPlace(t *testing.T) {
	var out bytes.Buffer
	s := &screen{w: &out, begun: time.Now(), Terminal: wide(10)} // too narrow for an event beside its time
	s.replaceTable([]line{{{"abcdefghijkl", bold}}, {{"░░░", plain}, {"▕▏▕▏▕▏▕▏", plain}}})
	s.writeEvent("hello")
	s.replaceTable(nil)
	want := "\x1b[1mabcdefghi\x1b[0m\n░░░▕▏▕▏▕▏\n" +
		"\x1b[2A\x1b[J" + "\x1b[2m   0.0s  \x1b[0m\n  hello\n" + "\x1b[1mabcdefghi\x1b[0m\n░░░▕▏▕▏▕▏\n" +
		"\x1b[2A\x1b[J"
	if got := out.String(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestTheScreenWritesPlainLinesElsewhere(t *testing.T) {
	var out bytes.Buffer
	s := newScreen(&out)
	s.replaceTable([]line{{{"a table", bold}}})
	s.writeAside("hello")
	if got, want := out.String(), "   0.0s  hello\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTheBoardShowsEachInstance(t *testing.T) {
	d := &performance{ledger: fleet.NewLedger(), screen: &screen{}, fleet: newFleet(t, "host-1", "host-2")}
	d.fleet.Instances()[1].Kill()
	b := newBoard(d)
	lags := []changefeed.Lag{
		{Lease: feed.Lease{Owner: "host-1", Range: feed.Range{Max: "20"}}, Pending: 7},
		{Lease: feed.Lease{Owner: "host-2", Range: feed.Range{Min: "20", Max: "FF"}}, Pending: 3},
	}
	var out strings.Builder
	for _, l := range b.layOut(b.rows(lags), lags) {
		l.render(&out, false, 0)
	}
	for _, want := range []string{
		"lag 10", "host-1     working       1       7", "host-2     killed        1       3",
		"▕" + strings.Repeat("1", 31) + "▕" + strings.Repeat("?", 31) + "▏",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// What was lost, and an older version after a newer one, are failures; what comes again is none.
func TestADemoPassesOnlyIfEachPromiseWasKept(t *testing.T) {
	for _, tt := range []struct {
		found fleet.Judgement
		ok    bool
	}{
		{fleet.Judgement{Inserts: 5, Handled: 5, Duplicates: 2}, true},
		{fleet.Judgement{Inserts: 5, Handled: 4, Lost: 1}, false},
		{fleet.Judgement{Inserts: 5, Handled: 5, OutOfOrder: 1}, false},
	} {
		var out bytes.Buffer
		d := &performance{screen: newScreen(&out)}
		got := d.findings(tt.found)
		d.writeJudgement(got)
		if got.OK != tt.ok || strings.Contains(out.String(), "PASSED") != tt.ok ||
			strings.Contains(out.String(), "FAILED") == tt.ok {
			t.Errorf("%+v: OK is %v, want %v: %s", tt.found, got.OK, tt.ok, out.String())
		}
	}
}

// newFleet runs instances that have nothing to do.
func newFleet(t *testing.T, names ...string) *fleet.Fleet {
	t.Helper()
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	orders, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{ID: "orders", Paths: []string{"/city"}})
	if err != nil {
		t.Fatal(err)
	}
	records, err := db.CreateContainer(t.Context(), docstore.LeaseSpec("leases"))
	if err != nil {
		t.Fatal(err)
	}
	leases, err := docstore.NewLeases(t.Context(), records, "demo", orders)
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet.Fleet{Source: orders, Leases: leases, Look: lookEvery}
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, name := range names {
		nothing := feed.HandlerFunc(func(context.Context, *feed.Batch) error { return nil })
		if _, err := f.Start(t.Context(), nothing, changefeed.Options{Instance: name}); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// TestTheDemoFitsItsTerminal has numbers as large as a demo makes them.
func TestTheDemoFitsItsTerminal(t *testing.T) {
	team := newFleet(t, "host-1", "host-2")
	for _, width := range []int{40, 80, 100, 120, 200} {
		var out bytes.Buffer
		d := &performance{ledger: fleet.NewLedger(), fleet: team}
		d.screen = &screen{w: &out, Terminal: wide(width), begun: time.Now()}
		d.screen.Colour = false
		b := newBoard(d)
		d.screen.replaceTable(b.layOut([]row{{"host-1", "working", 4, 1_234_567, 12_345, 1234.5, 12_345.6}}, nil))
		figures := "12345    1234.5   12345.6\n"
		if width == 40 {
			figures = "host-1          4 1234567     12345\n"
		}
		if got := out.String(); !strings.Contains(got, figures) {
			t.Errorf("at %d columns figures are cut off:\n%s", width, got)
		}
		d.writeJudgement(Findings{Takeover: new(2.1), RebalanceRounds: new(1)})
		if got := out.String(); !strings.Contains(got, "\nFAILED  0 lost") { // whatever the reason, ok is not set
			t.Errorf("at %d columns there is no verdict:\n%s", width, got)
		}
		d.screen.writeEvent("the store is kept: changefeed leases --db %s, changefeed tail --db %[1]s "+
			"--container orders", "/a/directory/that/is/long")
		text := regexp.MustCompile(`\x1b\[\d*[AJ]`).ReplaceAllString(out.String(), "")
		if got := widest(text); got >= width {
			t.Errorf("at %d columns a line has %d:\n%s", width, got, text)
		}
	}
}

func TestATerminalThatIsResizedIsDrawnAnew(t *testing.T) {
	var out bytes.Buffer
	width := 80
	s := &screen{w: &out, Terminal: terminal.Terminal{Width: func() int {
		return width
	}, InPlace: true}, begun: time.Now()}
	s.writeEvent("hello")
	s.replaceTable([]line{{{"a table", bold}}})
	out.Reset()
	width = 40
	s.replaceTable([]line{{{"a table", bold}}})
	if got, want := out.String(), "\x1b[H\x1b[2J   0.0s  hello\na table\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

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
