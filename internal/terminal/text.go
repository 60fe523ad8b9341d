package terminal

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Count is a number of things.
func Count[N int | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Seconds is a time that people can take in.
func Seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	if d < time.Minute {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// Ellipsis ends an edge that was cut.
const Ellipsis = "…"

// maxEdge is how many digits of the edge of a range a table has room for.
const maxEdge = 8

// Short is a range with its edges cut, for a terminal; a pipe and -o json have all of
// them. The flag --range takes either.
func Short(token string) string {
	lo, hi, ok := strings.Cut(token, "-")
	if !ok {
		return token
	}
	return cut(lo) + "-" + cut(hi)
}

// Edges is how ranges are shown: short to people, whole to programs.
func (t Terminal) Edges(token string) string {
	if t.Width != nil {
		return Short(token)
	}
	return token
}

func cut(edge string) string {
	if len(edge) > maxEdge {
		return edge[:maxEdge] + Ellipsis
	}
	return edge
}

// Clip is the first n characters of a text.
func Clip(text string, n int) string {
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

// OneLine is a text on one line, without characters that a terminal would obey.
func OneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) }), " ")
}

// Harmless is a text without characters that a terminal would obey, other than its lines.
func Harmless(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsGraphic(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
