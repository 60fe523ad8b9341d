// Package sentence puts facts into words for people: numbers, durations, times and partition keys.
package sentence

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
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

// Seconds returns a time in a form that people can read easily.
func Seconds(s float64) string { return Duration(time.Duration(s * float64(time.Second))) }

// Duration returns a duration with tenths of a second, from a minute on without.
func Duration(d time.Duration) string {
	if d < time.Minute {
		return Exact(d.Round(100 * time.Millisecond))
	}
	return Exact(d.Round(time.Second))
}

// Exact returns a duration as people write it, without parts that are zero: 10m for 10m0s.
func Exact(d time.Duration) string {
	text := d.String()
	for _, zero := range []struct{ suffix, unit string }{{"m0s", "m"}, {"h0m", "h"}} {
		if short, ok := strings.CutSuffix(text, zero.suffix); ok {
			text = short + zero.unit
		}
	}
	return text
}

// Waited says for how long something has waited. If that is not known, it may be longer than d.
func Waited(d time.Duration, known bool) string {
	switch {
	case known:
		return "for " + Duration(d)
	case d == 0:
		return "for an unknown time"
	}
	return "for " + Duration(d) + " or more"
}

// Clock returns a time of the last day without the date, and any other time with the date.
func Clock(t, now time.Time) string {
	if now.Sub(t) < 24*time.Hour {
		return t.UTC().Format(time.TimeOnly)
	}
	return t.UTC().Format(time.DateTime)
}

// FirstOf names the first keys of a list, because there may be a thousand.
func FirstOf(keys []string) string {
	const most, length = 3, 40
	var named []string
	for _, key := range keys[:min(most, len(keys))] {
		if r := []rune(key); len(r) > length {
			key = string(r[:length]) + "…"
		}
		named = append(named, key)
	}
	if len(keys) > most {
		named = append(named, "…")
	}
	return strings.Join(named, " ")
}

// Capital makes a sentence of a note: with a capital at the beginning, and a full stop at the end.
func Capital(note string) string {
	if note == "" {
		return ""
	}
	return strings.ToUpper(note[:1]) + note[1:] + "."
}

// IsShown reports whether a character belongs to a text, and controls no terminal. The joiners are no graphic
// characters, but join an emoji of several people, or the letters of some scripts.
func IsShown(r rune) bool {
	const nonJoiner, joiner = '\u200c', '\u200d'
	return unicode.IsGraphic(r) || r == joiner || r == nonJoiner
}

// OneLine returns a text on a single line, without characters that control a terminal.
func OneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !IsShown(r) }), " ")
}
