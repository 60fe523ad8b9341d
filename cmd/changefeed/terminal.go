package main

import (
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// A terminal is where people look at output: how wide it is, and what it understands.
// Its zero value is any other place, where lines are as long as they are.
type terminal struct {
	width   func() int // nil for what is none
	inPlace bool       // what is written can be written over
	colour  bool
}

// narrow is the width of a terminal that does not tell its own.
const narrow = 80

// terminalOf looks at where output goes, and at the environment: TERM=dumb has no way
// back over what is written, and NO_COLOR asks for none.
func terminalOf(w io.Writer) terminal {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return terminal{}
	}
	width := func() int {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
		return narrow
	}
	dumb := os.Getenv("TERM") == "dumb"
	return terminal{width: width, inPlace: !dumb, colour: !dumb && os.Getenv("NO_COLOR") == ""}
}

// room is how many characters a line has; 0 is any number. The last column is left free,
// because some terminals go to the next line there.
func (t terminal) room() int {
	if t.width == nil {
		return 0
	}
	return max(t.width()-1, 1)
}

// wrapped is a text that begins in a column, in lines of at most so many characters, 0 for
// any number, cut between words. All lines but the first are indented. A longer word
// stays whole, and so does a text whose indent leaves it little room.
func wrapped(text string, column, room, indent int) string {
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
