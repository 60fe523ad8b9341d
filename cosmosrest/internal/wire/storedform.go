package wire

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// The form in which the service stores numbers and texts. A number that is no integer of 64 bits is a double, and the
// service writes doubles anew: 1.0 becomes 1, and 1e20 becomes 1e+020. A number that no double can hold is refused.
// Half of a surrogate pair becomes U+FFFD. A raw tab or line break in a text is accepted, although JSON wants an
// escape. Everything else stays as the client wrote it.

// StoredForm returns a JSON text with its numbers and texts as the service stores them. If nothing changes, the result
// is body itself. StoredForm does not check that body is JSON.
func StoredForm(body []byte) ([]byte, error) {
	var out []byte // what is different from body[:done]; nil until something is
	done := 0
	breaks := hasBreaks(body)
	replace := func(from, to int, by []byte) {
		out = append(append(out, body[done:from]...), by...)
		done = to
	}
	for i := 0; i < len(body); {
		switch c := body[i]; {
		case c == '"':
			end := textEnd(body, i)
			if bytes.IndexByte(body[i:end], '\\') >= 0 || breaks && hasBreaks(body[i:end]) {
				storeText(body[:end], i, replace)
			}
			i = end
		case c == '-' || isDigit(c):
			end := i + 1
			for end < len(body) && isNumeric[body[end]] {
				end++
			}
			if !isCommon(body[i:end]) {
				number, err := storedNumber(body[i:end])
				if err != nil {
					return nil, err
				}
				if number != "" {
					replace(i, end, []byte(number))
				}
			}
			i = end
		default:
			i++
		}
	}
	if out == nil {
		return body, nil
	}
	return append(out, body[done:]...), nil
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// isNumeric are the characters of numbers.
var isNumeric = func() (t [256]bool) {
	for _, c := range "0123456789+-.eE" {
		t[c] = true
	}
	return t
}()

// textEnd returns the index after the text that begins at body[i].
func textEnd(body []byte, i int) int {
	for at := i + 1; ; {
		n := bytes.IndexByte(body[at:], '"')
		if n < 0 {
			return len(body)
		}
		at += n + 1
		slashes := 0
		for body[at-2-slashes] == '\\' { // ends at the quote at i at the latest
			slashes++
		}
		if slashes%2 == 0 {
			return at
		}
	}
}

// Digits that every number of 64 bits and every double has room for.
const (
	safeInteger = 18 // of an integer of 64 bits
	safeDecimal = 15 // of a double
)

// isCommon reports whether a number is surely written as the service writes it. Nearly all numbers are.
func isCommon(number []byte) bool {
	if string(number) == "0" {
		return true
	}
	if number[0] == '-' {
		number = number[1:]
	}
	whole, fraction, hasPoint := bytes.Cut(number, []byte{'.'})
	for _, c := range whole {
		if !isDigit(c) {
			return false
		}
	}
	if !hasPoint {
		return len(number) <= safeInteger && len(number) > 0 && number[0] != '0'
	}
	if len(number) > safeDecimal || len(fraction) == 0 || len(whole) == 0 || fraction[len(fraction)-1] == '0' {
		return false
	}
	for _, c := range fraction {
		if !isDigit(c) {
			return false
		}
	}
	return whole[0] != '0' || !bytes.HasPrefix(fraction, []byte("000"))
}

// storedNumber returns the service's text of a number, or "" if the text stays or is no number of JSON.
func storedNumber(text []byte) (string, error) {
	number := string(text)
	if _, err := strconv.ParseInt(number, 10, 64); err == nil {
		if number == "-0" {
			return "0", nil
		}
		return "", nil
	}
	if _, err := strconv.ParseUint(number, 10, 64); err == nil {
		return "", nil
	}
	v, err := strconv.ParseFloat(number, 64)
	if math.IsInf(v, 0) {
		return "", BadRequest("The request payload is invalid. Ensure to provide a valid request payload. "+
			"The number %.64s is out of range: want at most 1.7976931348623157e308", number)
	}
	if err != nil {
		return "", nil
	}
	// Go parses more than JSON, such as 1. and -.5
	if own := string(rawjson.AppendDouble(nil, v)); own != number && json.Valid(text) {
		return own, nil
	}
	return "", nil
}

// unknownCharacter replaces half of a surrogate pair.
var unknownCharacter = []byte("\uFFFD")

// rawBreaks are the characters that the service accepts in a text without an escape.
const rawBreaks = "\t\r\n"

// hasBreaks reports whether a text has a raw tab or line break. Three searches for a byte are faster than a search for
// three.
func hasBreaks(text []byte) bool {
	return bytes.IndexByte(text, '\n') >= 0 || bytes.IndexByte(text, '\t') >= 0 || bytes.IndexByte(text, '\r') >= 0
}

// storeText replaces each escape in the text at body[i:] that is half of a surrogate pair, and each raw tab or line
// break.
func storeText(body []byte, i int, replace func(from, to int, by []byte)) {
	for i < len(body) {
		if at := bytes.IndexByte([]byte(rawBreaks), body[i]); at >= 0 {
			replace(i, i+1, []byte{'\\', "trn"[at]})
		}
		if body[i] != '\\' {
			i++
			continue
		}
		unit, ok := escapedUnit(body, i)
		switch {
		case !ok:
			i += len(`\"`)
		case !utf16.IsSurrogate(unit):
			i += escapeLength
		default:
			next, _ := escapedUnit(body, i+escapeLength)
			if utf16.DecodeRune(unit, next) != '\uFFFD' {
				i += 2 * escapeLength
				continue
			}
			replace(i, i+escapeLength, unknownCharacter)
			i += escapeLength
		}
	}
}

// EscapeBreaks returns a JSON text in which each raw tab or line break in a text has its escape. If there is none, the
// result is body itself. EscapeBreaks does not check that body is JSON.
func EscapeBreaks(body []byte) []byte {
	if !hasBreaks(body) {
		return body
	}
	var out []byte
	done, inText := 0, false
	for i := 0; i < len(body); i++ {
		at := strings.IndexByte(rawBreaks, body[i])
		switch {
		case body[i] == '"':
			inText = !inText
		case body[i] == '\\' && inText:
			i++ // the next character belongs to the escape
		case at >= 0 && inText:
			out = append(append(out, body[done:i]...), '\\', "trn"[at])
			done = i + 1
		}
	}
	if out == nil {
		return body
	}
	return append(out, body[done:]...)
}

// escapeLength is the length of an escape such as \u00e9.
const escapeLength = 6

// escapedUnit returns the value of an escape of the form \u00e9 at body[i:].
func escapedUnit(body []byte, i int) (rune, bool) {
	if i+escapeLength > len(body) || body[i] != '\\' || body[i+1] != 'u' {
		return 0, false
	}
	v, err := strconv.ParseUint(string(body[i+2:i+escapeLength]), 16, 16)
	return rune(v), err == nil
}
