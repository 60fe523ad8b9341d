package notes

import (
	"strconv"
	"strings"
	"time"
)

// Texts that no JSON library rewrites
//
// Other programs read our documents and write them again. .NET's JSON library parses a string in the form of a time,
// and writes the time in another form ("11/23/2026 17:15:37"). Scripts do the same with numbers. So here a time begins
// with a word, and a number with a sign. The readers also accept rewritten texts in documents of older versions.

// timePrefix precedes a time, numberSign precedes a number.
const (
	timePrefix = "at "
	numberSign = "#"
)

// rewrittenTime is the form in which .NET writes a parsed time: in UTC, like our times, and without fractions of a
// second.
const rewrittenTime = "01/02/2006 15:04:05"

// PlainTime returns a text in the stored form: a time in RFC 3339 with the prefix, and any other text unchanged.
func PlainTime(text string) string {
	if _, err := time.Parse(time.RFC3339Nano, text); err != nil {
		return text
	}
	return timePrefix + text
}

// TimeOf returns the argument of [PlainTime] from the result. TimeOf also accepts a text of an older version which
// another program has rewritten.
func TimeOf(text string) string {
	if at, err := time.Parse(rewrittenTime, text); err == nil {
		return at.Format(time.RFC3339)
	}
	return strings.TrimPrefix(text, timePrefix)
}

// PlainNumber returns a number in the stored form.
func PlainNumber(n int64) string { return numberSign + strconv.FormatInt(n, 10) }

// ParseNumber reads the text of [PlainNumber], or a number in the form of older versions.
func ParseNumber(text string) (int64, error) {
	return strconv.ParseInt(strings.TrimPrefix(text, numberSign), 10, 64)
}

// plainID returns the ID of a letter, or a key's place, in the stored form, because 12.0 and 05E1 look like numbers.
func plainID(id string) string {
	if id == "" {
		return ""
	}
	return numberSign + id
}

// idOf returns the argument of plainID from the result.
func idOf(text string) string { return strings.TrimPrefix(text, numberSign) }
