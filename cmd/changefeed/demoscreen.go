package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// screen shows what happens: events as lines, and below them, on a terminal, a table
// that changes in place.
type screen struct {
	w     io.Writer
	width func() int // nil when this is no terminal
	begun time.Time

	mu    sync.Mutex
	table []line
	drawn int // lines of the table on the terminal
	lost  error
	leave func() // is called when nobody reads any more; may be nil
}

// span is a piece of text in one style.
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
	s := &screen{w: w, begun: time.Now()}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.width = func() int {
			if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
				return width
			}
			return narrow
		}
	}
	return s
}

func (s *screen) live() bool { return s.width != nil }

// say writes an event.
func (s *screen) say(format string, args ...any) {
	at := fmt.Sprintf("%6.1fs  ", time.Since(s.begun).Seconds())
	s.write(line{{at, dim}, {fmt.Sprintf(format, args...), plain}})
}

// note writes an event of less weight.
func (s *screen) note(format string, args ...any) {
	s.write(line{{fmt.Sprintf("%6.1fs  ", time.Since(s.begun).Seconds()) + fmt.Sprintf(format, args...), dim}})
}

// write writes lines above the table.
func (s *screen) write(lines ...line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	s.clear(&b)
	for _, l := range lines {
		l.render(&b, s.live(), 0)
	}
	s.draw(&b)
	s.print(b.String())
}

// print writes text, and notes when its reader has gone away.
func (s *screen) print(text string) {
	_, err := io.WriteString(s.w, text)
	if errors.Is(err, syscall.EPIPE) && s.lost == nil {
		s.lost = err
		if s.leave != nil {
			s.leave()
		}
	}
}

// unread is the error of a screen that nobody reads any more.
func (s *screen) unread() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// show replaces the table.
func (s *screen) show(table []line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table = table
	var b strings.Builder
	s.clear(&b)
	s.draw(&b)
	s.print(b.String())
}

func (s *screen) clear(b *strings.Builder) {
	if s.drawn > 0 {
		fmt.Fprintf(b, "\x1b[%dA\x1b[J", s.drawn)
		s.drawn = 0
	}
}

func (s *screen) draw(b *strings.Builder) {
	if !s.live() || len(s.table) == 0 {
		return
	}
	for _, l := range s.table {
		l.render(b, true, s.width()-1)
	}
	s.drawn = len(s.table)
}

// render writes a line, cut to a width so that it stays one; 0 is any.
func (l line) render(b *strings.Builder, styled bool, width int) {
	room := width
	for _, s := range l {
		text := s.text
		if width > 0 {
			text = clip(text, room)
			room -= utf8.RuneCountInString(text)
		}
		if styled && s.style != plain && text != "" {
			text = "\x1b[" + s.style + "m" + text + "\x1b[0m"
		}
		b.WriteString(text)
	}
	b.WriteByte('\n')
}

// clip is the first n characters of a text.
func clip(text string, n int) string {
	if n <= 0 {
		return ""
	}
	for i := range text {
		if n == 0 {
			return text[:i]
		}
		n--
	}
	return text
}
