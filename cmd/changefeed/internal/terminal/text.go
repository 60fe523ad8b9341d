package terminal

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/clipperhouse/displaywidth"

	"github.com/millrace/changefeed/internal/sentence"
)

// Count returns a number of things as text.
func Count[N int | int64](n N, thing string) string { return sentence.Count(n, thing) }

// Number returns a number whose thousands are separated.
func Number[N int | int64](n N) string { return sentence.Number(n) }

// Size returns a number of bytes in the largest unit that leaves a figure before the point.
func Size(n int64) string {
	const (
		thousand = 1000
		rounded  = 999.95 // from here on, a size would be written as 1000.0
	)
	if n < thousand {
		return strconv.FormatInt(n, 10) + " bytes"
	}
	size := float64(n) / thousand
	for _, unit := range []string{"KB", "MB", "GB"} {
		if size < rounded {
			return fmt.Sprintf("%.1f %s", size, unit)
		}
		size /= thousand
	}
	return fmt.Sprintf("%.1f TB", size)
}

// Seconds returns a time in a form that people can read easily.
func Seconds(s float64) string { return sentence.Seconds(s) }

// Exact returns a duration as people write it, without parts that are zero.
func Exact(d time.Duration) string { return sentence.Exact(d) }

// Ellipsis marks the end of a shortened text.
const Ellipsis = "…"

// Width returns how many cells of a terminal a text fills: an ideogram or an emoji fills two, a combining mark none.
func Width(text string) int { return displaywidth.String(text) }

// Clip returns the beginning of a text that fills at most n cells.
func Clip(text string, n int) string {
	return displaywidth.TruncateString(text, n, "")
}

// Shorten returns a text that fills at most n cells, with an ellipsis if something was left out.
func Shorten(text string, n int) string {
	return displaywidth.TruncateString(text, n, Ellipsis)
}

// OneLine returns a text on a single line, without characters that control a terminal.
func OneLine(text string) string { return sentence.OneLine(text) }

// Harmless returns a text without characters that control a terminal, except for line breaks and tabs.
func Harmless(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || sentence.IsShown(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// plainWord is a word that every shell takes as it is.
var plainWord = regexp.MustCompile(`^[\w@%+=:,./#-]+$`)

// ShellWord returns a text as a word of a command that can be pasted into a shell.
func ShellWord(text string) string {
	if plainWord.MatchString(text) && text[0] != '#' {
		return text
	}
	return "'" + strings.ReplaceAll(OneLine(text), "'", `'\''`) + "'"
}
