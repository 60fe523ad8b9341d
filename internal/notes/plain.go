package notes

import (
	"strconv"
	"strings"
	"time"
)

// Texts that no JSON library rewrites
//
// Programs of others read our documents and write them again. .NET's JSON library takes a string that looks like a time for
// one, and writes it in another form ("11/23/2026 17:15:37"). Scripts do the same with numbers. So a time begins with a word
// here, and a number with a sign. What was rewritten in documents of older versions is read all the same.

// timePrefix stands before a time, numberSign before a number.
const (
	timePrefix = "at "
	numberSign = "#"
)

// rewrittenTime is how .NET writes a time that it has taken from a string: in UTC, as ours are, and without parts of a second.
const rewrittenTime = "01/02/2006 15:04:05"

// PlainTime returns a text as it is stored: a time in RFC 3339 in the form of a time, and any other text as it is.
func PlainTime(text string) string {
	if _, err := time.Parse(time.RFC3339Nano, text); err != nil {
		return text
	}
	return timePrefix + text
}

// TimeOf returns the text that [PlainTime] was given, also of what older versions have stored and others have rewritten.
func TimeOf(text string) string {
	if at, err := time.Parse(rewrittenTime, text); err == nil {
		return at.Format(time.RFC3339)
	}
	return strings.TrimPrefix(text, timePrefix)
}

// PlainNumber returns a number as it is stored.
func PlainNumber(n int64) string { return numberSign + strconv.FormatInt(n, 10) }

// ParseNumber reads the text of [PlainNumber], or of a number as older versions have stored it.
func ParseNumber(text string) (int64, error) {
	return strconv.ParseInt(strings.TrimPrefix(text, numberSign), 10, 64)
}

// plainID returns the ID of a letter, or a key's place, as it is stored: 12.0 and 05E1 look like numbers.
func plainID(id string) string {
	if id == "" {
		return ""
	}
	return numberSign + id
}

// idOf returns the text that plainID was given.
func idOf(text string) string { return strings.TrimPrefix(text, numberSign) }
