package load

import (
	"bytes"
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

func TestProgressTellsWhatThereIsToTell(t *testing.T) {
	narrowTerminal := wide(terminal.Narrow)
	for _, tt := range []struct {
		name string
		p    *Progress
		want string
	}{
		{"before the first", &Progress{name: "f", size: 100}, "f   0% 0 documents"},
		{"half way", &Progress{name: "f", size: 1000, first: &state{0, 0, 0}, now: state{50, 2, 500}}, "f  50% 50 documents, 2 refused, 5 a second, 10s left"},
		{"after a resumption", &Progress{name: "f", size: 1000, first: &state{40, 0, 400}, now: state{50, 0, 500}}, "f  50% 50 documents, 1 a second, 50s left"},
		{"pipe", &Progress{name: "standard input", first: &state{}, now: state{imported: 30}}, "standard input 30 documents, 3 a second"},
		{"a file that grows", &Progress{name: "f", size: 1000, first: &state{}, now: state{50, 0, 1300}}, "f 100% 50 documents, 5 a second"},
		{"one in a terminal", &Progress{name: "f", size: 1000, Terminal: narrowTerminal, first: &state{}, now: state{50, 0, 1300}}, "f [##############################] 100% 50 documents, 5 a second"},
		{"terminal", &Progress{name: "f", size: 1000, Terminal: narrowTerminal, first: &state{}, now: state{50, 0, 500}}, "f [###############...............]  50% 50 documents, 5 a second, 10s left"},
	} {
		if got := tt.p.line(10 * time.Second); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestTheBarLeavesNothingBehind(t *testing.T) {
	var out bytes.Buffer
	p := Progress{w: &out, name: "f", size: 10, Terminal: wide(25), every: time.Hour}
	p.at(1, 0, 5)
	p.draw()
	p.Say("line %d: bad", 3)
	p.draw()
	p.clear()
	want := clearLine + "f  50% 1 documents" + clearLine + "line 3: bad\n" + clearLine + "f  50% 1 documents" + clearLine
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
		got := p.line(time.Hour)
		if n := utf8.RuneCountInString(got); n >= width {
			t.Errorf("at %d columns the line has %d: %s", width, n, got)
		}
		if !strings.Contains(got, "50% ") || !strings.Contains(got, "12345678 documents") {
			t.Errorf("at %d columns figures are cut off: %s", width, got)
		}
	}
}
