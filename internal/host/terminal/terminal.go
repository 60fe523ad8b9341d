// Package terminal is what commands share where people and pipes read them: how wide a line can be, what can be written
// over, how numbers are shown, and when nobody reads any more.
package terminal

import (
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// A Terminal is where people look at output: its width, and the codes that it understands.
// Its zero value is any other place, where lines are as long as they are.
type Terminal struct {
	Width   func() int // nil for what is none
	InPlace bool       // what is written can be written over
	Colour  bool
}

// Narrow is the width of a terminal that does not show its own.
const Narrow = 80

// LineEvery is the time between two lines about work that takes long, where they cannot be written over.
const LineEvery = 5 * time.Second

// Of looks at where output goes, and at the environment: TERM=dumb has no way
// back over what is written, and NO_COLOR asks for none.
func Of(w io.Writer) Terminal {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return Terminal{}
	}
	width := func() int {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
		return Narrow
	}
	dumb := os.Getenv("TERM") == "dumb"
	return Terminal{Width: width, InPlace: !dumb, Colour: !dumb && os.Getenv("NO_COLOR") == ""}
}

// Room is how many characters a line has; 0 is any number. The last column is left free,
// because some terminals go to the next line there.
func (t Terminal) Room() int {
	if t.Width == nil {
		return 0
	}
	return max(t.Width()-1, 1)
}

// Wrap is a text that begins in a column, in lines of at most so many characters, 0 for
// any number, cut between words. All lines but the first are indented. A longer word
// stays whole, and so does a text whose indent leaves it little room.
func Wrap(text string, column, room, indent int) string {
	if room <= 0 || indent > room/2 || column+utf8.RuneCountInString(text) <= room {
		return text
	}
	var lines []string
	var b strings.Builder
	for word := range strings.SplitAfterSeq(text, " ") {
		n := utf8.RuneCountInString(strings.TrimRight(word, " "))
		if n > 0 && column+n > room && column > indent {
			lines = append(lines, strings.TrimRight(b.String(), " "))
			b.Reset()
			b.WriteString(strings.Repeat(" ", indent))
			column = indent
		}
		b.WriteString(word)
		column += utf8.RuneCountInString(word)
	}
	return strings.Join(append(lines, b.String()), "\n")
}
