package sql

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/alecthomas/participle/v2"
	"github.com/alecthomas/participle/v2/lexer"
)

// Errors of queries. Each error has its place in the text, because the service's answers contain the place and query
// editors mark the place.

// Error means that a query cannot be run. The service answers with status 400.
type Error struct {
	Message string // a sentence for people, in the service's style
	At      int    // byte offset of the error's place in the query; -1 if there is none
	End     int    // where the place ends; 0 if the first quoted text of the message is the text at the place

	More []*Error // further errors of the same kind
}

// Error returns only the message; the server adds the code.
func (e *Error) Error() string { return e.Message }

// JSON returns the error, and the further ones, as the service writes them in a list of errors: with their places and,
// if the service's code is known, with the code.
func (e *Error) JSON() []byte {
	type place struct {
		Start int `json:"start"`
		End   int `json:"end"`
	}
	out := struct {
		Severity string `json:"severity"`
		Location *place `json:"location,omitempty"`
		Code     string `json:"code,omitempty"`
		Message  string `json:"message"`
	}{Severity: "Error", Code: e.code(), Message: e.Message}
	if e.At >= 0 {
		out.Location = &place{e.At, e.End}
		if e.End == 0 {
			out.Location.End = e.At + len(quoted(e.Message))
		}
	}
	b, _ := json.Marshal(out) // cannot fail
	for _, other := range e.More {
		b = append(append(b, ','), other.JSON()...)
	}
	return b
}

// quoted returns the first quoted text of a message, which is the text at the error's place; the result may be empty.
func quoted(message string) string {
	_, rest, _ := strings.Cut(message, "'")
	text, _, found := strings.Cut(rest, "'")
	if !found {
		return ""
	}
	return text
}

// codes are the service's error codes, each with a part of its message.
var codes = []struct{ part, code string }{
	{"Syntax error, unexpected end-of-file", "SC1002"},
	{"Syntax error, invalid token", "SC1010"},
	{"Syntax error", "SC1001"},
	{"is not a recognized built-in function name", "SC2005"},
	{"'SELECT *' is not allowed with GROUP BY", "SC2041"},
	{" function requires ", "SC2050"},
	{"The count value provided for a TOP clause", "SC2060"},
	{"The LIMIT count value exceeds", "SC2061"},
	{"The OFFSET count value exceeds", "SC2062"},
	{"is not contained in either an aggregate function or the GROUP BY clause", "SC2102"},
}

// code returns the service's code of the error, or "" if the code is unknown.
func (e *Error) code() string {
	for _, c := range codes {
		if strings.Contains(e.Message, c.part) {
			return c.code
		}
	}
	return ""
}

// maxClip limits how much of a query an error repeats. A query may have 512 KB, and its answer must be small.
const maxClip = 40 // bytes

// clip quotes a text. A long text is cut between two characters.
func clip(text string) string {
	if len(text) > maxClip {
		n := maxClip
		for n > 0 && !utf8.RuneStart(text[n]) {
			n--
		}
		text = text[:n] + "…"
	}
	return "'" + text + "'"
}

// failf returns an Error for a place in the query; -1 means no place.
func failf(at int, format string, args ...any) *Error {
	return &Error{Message: fmt.Sprintf(format, args...), At: at}
}

// syntaxError converts the parser's error to an Error. The lexer's errors are Errors already.
func syntaxError(text string, err error) error {
	var own *Error
	if errors.As(err, &own) {
		return own
	}
	var unexpected *participle.UnexpectedTokenError
	if errors.As(err, &unexpected) {
		return nearToken(text, unexpected.Unexpected)
	}
	var other participle.Error
	if errors.As(err, &other) {
		return failf(other.Position().Offset, "Syntax error: %s.", other.Message())
	}
	return failf(-1, "Syntax error: %v.", err)
}

// nearToken returns the error for a token that the grammar does not expect. nearToken repeats the token as the query
// spells it; the grammar has keywords in upper case.
func nearToken(text string, token lexer.Token) *Error {
	at := token.Pos.Offset
	if token.Value == "TOP" {
		// The grammar gives up an optional TOP as a whole, but the count after TOP is wrong.
		if next, err := (&scanner{text: text, at: at + len(token.Value)}).Next(); err == nil {
			token, at = next, next.Pos.Offset
		}
	}
	if token.EOF() {
		return failf(at, "Syntax error, unexpected end-of-file.")
	}
	return failf(at, "Syntax error, incorrect syntax near %s.", clip(text[at:at+len(token.Value)]))
}
