package terminal

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/clipperhouse/displaywidth"
)

// Count returns a number of things as text.
func Count[N int | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%s %ss", Number(n), thing)
}

// Number returns a number whose thousands are separated.
func Number[N int | int64](n N) string {
	text := strconv.FormatInt(int64(n), 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Size returns a number of bytes in the largest unit that leaves a figure before the point.
func Size(n int64) string {
	const thousand = 1000
	size := float64(n)
	for _, unit := range []string{"bytes", "KB", "MB", "GB"} {
		switch {
		case size < thousand && unit == "bytes":
			return strconv.FormatInt(n, 10) + " bytes"
		case size < thousand:
			return fmt.Sprintf("%.1f %s", size, unit)
		}
		size /= thousand
	}
	return fmt.Sprintf("%.1f TB", size)
}

// Seconds returns a time in a form that people can read easily.
func Seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	if d < time.Minute {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// Ellipsis marks the end of a shortened text.
const Ellipsis = "…"

// Width returns how many cells of a terminal a text fills: an ideogram or an emoji fills two, a combining mark none.
func Width(text string) int { return displaywidth.String(text) }

// Clip returns the beginning of a text that fills at most n cells.
func Clip(text string, n int) string {
	if n <= 0 {
		return ""
	}
	return displaywidth.TruncateString(text, n, "")
}

// Shorten returns a text that fills at most n cells, with an ellipsis if something was left out.
func Shorten(text string, n int) string {
	return displaywidth.TruncateString(text, n, Ellipsis)
}

// isShown reports whether a character belongs to a text, and controls no terminal. The joiners are no graphic
// characters, but join an emoji of several people, or the letters of some scripts.
func isShown(r rune) bool {
	const nonJoiner, joiner = '\u200c', '\u200d'
	return unicode.IsGraphic(r) || r == joiner || r == nonJoiner
}

// OneLine returns a text on a single line, without characters that control a terminal.
func OneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !isShown(r) }), " ")
}

// Harmless returns a text without characters that control a terminal, except for line breaks and tabs.
func Harmless(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || isShown(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
