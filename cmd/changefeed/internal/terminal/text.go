package terminal

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Count returns a number of things as text.
func Count[N int | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
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

// Clip returns the first n characters of a text.
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

// OneLine returns a text on a single line, without characters that control a terminal.
func OneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsGraphic(r)
	}), " ")
}

// Harmless returns a text without characters that control a terminal, except for line breaks and tabs.
func Harmless(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsGraphic(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
