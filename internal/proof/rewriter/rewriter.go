// Package rewriter does to a document what JSON libraries do that take a text for something else: .NET's takes one that
// looks like a time, and scripts take one that looks like a number. Tests apply it to all that is written among the
// leases of others.
package rewriter

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// .NET's library takes a text of this length for a time.
const (
	shortestTime = 19
	longestTime  = 40
)

// LooksLike returns what a library may take a text for, "date" or "number", or nothing.
func LooksLike(text string) string {
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return "number"
	}
	if _, is := timeOf(text); is || strings.HasPrefix(text, "/Date(") {
		return "date"
	}
	for _, layout := range []string{time.DateTime, time.DateOnly, time.RFC1123, time.RFC850, time.Kitchen, invariant} {
		if _, err := time.Parse(layout, text); err == nil {
			return "date"
		}
	}
	return ""
}

// invariant is how .NET writes a time as a text.
const invariant = "01/02/2006 15:04:05"

// timeOf returns the time that .NET's library takes a text for: one that begins with a digit, has a T at its place and
// can be parsed.
func timeOf(text string) (at time.Time, is bool) {
	if len(text) < shortestTime || len(text) > longestTime || text[0] < '0' || text[0] > '9' || text[10] != 'T' {
		return at, false
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999"} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, true
		}
	}
	return at, false
}

// DotNet returns a document as .NET's processor writes it after it has read it: texts among its properties that look
// like a time have another form. A document that is no JSON object comes back as it is.
func DotNet(doc []byte) []byte {
	var members map[string]json.RawMessage
	var properties map[string]any
	if json.Unmarshal(doc, &members) != nil || json.Unmarshal(members["properties"], &properties) != nil {
		return doc
	}
	for _, value := range properties {
		text, isText := value.(string)
		if at, is := timeOf(text); isText && is {
			doc = bytes.ReplaceAll(doc, quoted(text), quoted(at.UTC().Format(invariant)))
		}
	}
	return doc
}

// quoted is a text in JSON.
func quoted(text string) []byte {
	raw, _ := json.Marshal(text) // a string is always JSON
	return raw
}
