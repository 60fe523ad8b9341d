// Package terminal contains what commands share for output to people and pipes: the width of a line, whether a line can
// be overwritten, the form of numbers, and whether the output still has a reader.
package terminal

import (
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// A Terminal describes the output for people: the width, and the known codes. The zero value is any other output, with
// lines of any length.
type Terminal struct {
	Width   func() int // nil if the output is no terminal
	InPlace bool       // written lines can be overwritten
	Colour  bool
}

// Narrow is the width of a terminal of unknown width.
const Narrow = 80

// LineEvery is the time between two lines about long work, if lines cannot be overwritten.
const LineEvery = 5 * time.Second

// Of examines the output and the environment: TERM=dumb cannot overwrite lines, and NO_COLOR switches colours off.
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

// Room returns how many characters a line has; 0 is no limit. The last column stays free, because some terminals begin
// the next line there.
func (t Terminal) Room() int {
	if t.Width == nil {
		return 0
	}
	return max(t.Width()-1, 1)
}

// smallIndent is the indent of lines on a narrow terminal.
const smallIndent = 4

// Wrap breaks a text that begins in a column into lines of at most room characters, between words; 0 is no limit. All
// lines except the first are indented. A longer word stays whole. If the indent leaves too little room, the text begins
// on the next line, with a smaller indent.
func Wrap(text string, column, room, indent int) string {
	if room <= 0 || column+Width(text) <= room {
		return text
	}
	var lines []string
	if indent > room/2 {
		indent = min(smallIndent, room/4)
		if column > indent {
			lines, text = append(lines, ""), strings.Repeat(" ", indent)+strings.TrimLeft(text, " ")
			column = 0
		}
	}
	var b strings.Builder
	for word := range strings.SplitAfterSeq(text, " ") {
		n := Width(strings.TrimRight(word, " "))
		if n > 0 && column+n > room && column > indent {
			lines = append(lines, strings.TrimRight(b.String(), " "))
			b.Reset()
			b.WriteString(strings.Repeat(" ", indent))
			column = indent
		}
		b.WriteString(word)
		column += Width(word)
	}
	return strings.Join(append(lines, b.String()), "\n")
}
