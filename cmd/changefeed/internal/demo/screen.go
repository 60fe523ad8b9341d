package demo

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
)

// screen shows events as lines and, on a terminal, a table below that changes in place.
type screen struct {
	w io.Writer
	terminal.Terminal
	begun time.Time

	mu     sync.Mutex
	events []string // the latest events, to draw the screen again
	table  []line
	drawn  int // lines of the table on the terminal,
	at     int // and the width for which they were drawn
	lost   error
	leave  func() // called when the output has no reader any more; may be nil
}

// span is a piece of text in a single style.
type span struct{ text, style string }

type line []span

// The styles of a terminal.
const (
	plain    = ""
	bold     = "1"
	dim      = "2"
	alarming = "31"
	good     = "32"
)

func newScreen(w io.Writer) *screen {
	return &screen{w: w, Terminal: terminal.Of(w), begun: time.Now()}
}

func (s *screen) canRedraw() bool { return s.InPlace }

// writeEvent writes an event.
func (s *screen) writeEvent(format string, args ...any) {
	at := fmt.Sprintf("%6.1fs  ", time.Since(s.begun).Seconds())
	s.write(line{{at, dim}, {fmt.Sprintf(format, args...), plain}})
}

// writeAside writes a less important event.
func (s *screen) writeAside(format string, args ...any) {
	s.write(line{{fmt.Sprintf("%6.1fs  ", time.Since(s.begun).Seconds()) + fmt.Sprintf(format, args...), dim}})
}

// keptEvents is how many lines above the table can be drawn again.
const keptEvents = 100

// write writes lines above the table.
func (s *screen) write(lines ...line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	s.clearTable(&b)
	for _, l := range lines {
		text := l.eventLine(s.Terminal)
		b.WriteString(text)
		if s.canRedraw() {
			s.events = append(s.events, text)
		}
	}
	s.events = s.events[max(0, len(s.events)-keptEvents):]
	s.drawTable(&b)
	s.print(b.String())
}

// print writes text, and records if the output has no reader any more.
func (s *screen) print(text string) {
	_, err := io.WriteString(s.w, text)
	if errors.Is(err, syscall.EPIPE) && s.lost == nil {
		s.lost = err
		if s.leave != nil {
			s.leave()
		}
	}
}

// readerError returns an error if the output has no reader any more.
func (s *screen) readerError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// replaceTable replaces the table.
func (s *screen) replaceTable(table []line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table = table
	var b strings.Builder
	s.clearTable(&b)
	s.drawTable(&b)
	s.print(b.String())
}

// clearTable removes the table. If the terminal's width has changed since the table was drawn, clear removes
// everything, because the number of lines of the table is unknown.
func (s *screen) clearTable(b *strings.Builder) {
	if s.drawn > 0 && s.at != s.Width() {
		b.WriteString("\x1b[H\x1b[2J" + strings.Join(s.events, ""))
	} else if s.drawn > 0 {
		fmt.Fprintf(b, "\x1b[%dA\x1b[J", s.drawn)
	}
	s.drawn = 0
}

func (s *screen) drawTable(b *strings.Builder) {
	if !s.canRedraw() || len(s.table) == 0 {
		return
	}
	for _, l := range s.table {
		l.render(b, s.Colour, s.Room())
	}
	s.drawn, s.at = len(s.table), s.Width()
}

// eventLine returns a line above the table. The line may be long, and is cut between words. Its continuation lines are
// indented to the column after the time.
func (l line) eventLine(t terminal.Terminal) string {
	var b strings.Builder
	last := len(l) - 1
	for i, s := range l {
		if i == last {
			before := 0
			for _, s := range l[:last] {
				before += terminal.Width(s.text)
			}
			indent := before
			if last == 0 {
				indent = eventIndent
			}
			s.text = terminal.Wrap(s.text, before, t.Room(), indent)
		}
		s.render(&b, t.Colour)
	}
	return b.String() + "\n"
}

// eventIndent is the width of the time before an event.
const eventIndent = 9

// render writes a span.
func (s span) render(b *strings.Builder, styled bool) {
	if styled && s.style != plain && s.text != "" {
		s.text = "\x1b[" + s.style + "m" + s.text + "\x1b[0m"
	}
	b.WriteString(s.text)
}

// render writes a line. The line is cut to a width, and so stays a single line; 0 means no limit.
func (l line) render(b *strings.Builder, styled bool, width int) {
	room := width
	for _, s := range l {
		if width > 0 {
			s.text = terminal.Clip(s.text, room)
			room -= terminal.Width(s.text)
		}
		s.render(b, styled)
	}
	b.WriteByte('\n')
}
