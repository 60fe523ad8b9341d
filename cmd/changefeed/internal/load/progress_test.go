package load

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
)

// wide is a terminal of a width, in colour.
func wide(n int) terminal.Terminal {
	return terminal.Terminal{Width: func() int { return n }, InPlace: true, Colour: true}
}

func TestProgressTellsWhatThereIsToTell(t *testing.T) {
	narrowTerminal := wide(terminal.Narrow)
	for _, tt := range []struct {
		name string
		p    *Progress
		want string
	}{
		{"before the first", &Progress{name: "f", size: 100}, "f   0% 0 documents"},
		{
			"half way", &Progress{name: "f", size: 1000, first: &state{0, 0, 0}, now: state{50, 2, 500}},
			"f  50% 50 documents, 2 refused, 5 a second, 10s left",
		},
		{
			"after a resumption", &Progress{name: "f", size: 1000, first: &state{40, 0, 400}, now: state{50, 0, 500}},
			"f  50% 50 documents, 1 a second, 50s left",
		},
		{
			"pipe", &Progress{name: "standard input", first: &state{}, now: state{imported: 30}},
			"standard input 30 documents, 3 a second",
		},
		{"of which nothing was read since", &Progress{
			name: "f", size: 1000, first: &state{40, 0, 400},
			now: state{40, 0, 400},
		}, "f  40% 40 documents, 0 a second"},
		{
			"a file that takes years", &Progress{name: "f", size: 1 << 40, first: &state{}, now: state{1, 0, 1}},
			"f   0% 1 documents, 0 a second",
		},
		{
			"a file that grows", &Progress{name: "f", size: 1000, first: &state{}, now: state{50, 0, 1300}},
			"f 100% 50 documents, 5 a second",
		},
		{"one in a terminal", &Progress{
			name: "f", size: 1000, Terminal: narrowTerminal, first: &state{},
			now: state{50, 0, 1300},
		}, "f [##############################] 100% 50 documents, 5 a second"},
		{"terminal", &Progress{
			name: "f", size: 1000, Terminal: narrowTerminal, first: &state{},
			now: state{50, 0, 500},
		}, "f [###############...............]  50% 50 documents, 5 a second, 10s left"},
	} {
		if got := tt.p.stateLine(10 * time.Second); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestTheBarLeavesNothingBehind(t *testing.T) {
	var out bytes.Buffer
	p := Progress{w: &out, name: "f", size: 10, Terminal: wide(25), every: time.Hour}
	p.setPlace(1, 0, 5)
	p.draw()
	p.Say("line %d: bad", 3)
	p.draw()
	p.clear()
	want := clearLine + "f  50% 1 documents" + clearLine + "line 3: bad\n" + clearLine + "f  50% 1 documents" +
		clearLine
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestProgressFitsItsTerminal(t *testing.T) {
	p := &Progress{
		name: "a-file-with-a-rather-long-name-of-documents.ndjson", size: 1 << 30, first: &state{},
		now: state{12_345_678, 123_456, 1 << 29},
	}
	for _, width := range []int{40, 60, 80, 120} {
		p.Terminal = wide(width)
		got := p.stateLine(time.Hour)
		if n := utf8.RuneCountInString(got); n >= width {
			t.Errorf("at %d columns the line has %d: %s", width, n, got)
		}
		if !strings.Contains(got, "50% ") || !strings.Contains(got, "12345678 documents") {
			t.Errorf("at %d columns figures are cut off: %s", width, got)
		}
	}
}

// The figure that is worth least is left out first, and none without need.
func TestProgressLeavesOutWhatIsWorthLeast(t *testing.T) {
	p := &Progress{name: "f", size: 1000, first: &state{}, now: state{50, 2, 500}}
	for _, want := range []string{
		"f [###############...............]  50% 50 documents, 2 refused, 5 a second, 10s left",
		"f  50% 50 documents, 2 refused, 5 a second, 10s left",
		"f  50% 50 documents, 2 refused, 5 a second",
		"f  50% 50 documents, 2 refused",
		"50% 50 documents, 2 refused",
		"50% 50 documents",
	} {
		p.Terminal = wide(len(want) + 1) // with the last column, which is left free
		if got := p.stateLine(10 * time.Second); got != want {
			t.Errorf("in %d columns: got %q, want %q", len(want)+1, got, want)
		}
	}
}

// A terminal has a bar as long as the work goes on, and other places have a line now and then.
func TestProgressIsShownWhileTheWorkGoesOn(t *testing.T) {
	for _, tt := range []struct {
		where terminal.Terminal
		every time.Duration
		want  string
	}{
		{wide(25), barEvery, strings.Repeat(clearLine+"f  50% 3 documents", 2) + clearLine},
		{terminal.Terminal{}, terminal.LineEvery, "f  50% 3 documents, 0 a second, 5s left\n" +
			"f  50% 3 documents, 0 a second, 10s left\n"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			p := Progress{w: &out, name: "f", size: 10, Terminal: tt.where, every: tt.every}
			err := p.showDuring(func() error {
				p.setPlace(1, 0, 0)
				p.setPlace(3, 0, 5)
				time.Sleep(2*tt.every + tt.every/2)
				return errStop
			})
			if !errors.Is(err, errStop) || out.String() != tt.want {
				t.Errorf("got %v and %q, want %q", err, out.String(), tt.want)
			}
		})
	}
}
