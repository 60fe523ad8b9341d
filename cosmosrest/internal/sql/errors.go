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

// Errors of queries. All have the place in the text, because the service's answers do and
// editors of queries point at it.

// Error is a query that cannot be run. The service answers it with status 400.
type Error struct {
	Message string // a sentence for people, in the service's style
	At      int    // offset in bytes of the place in the query; -1 if there is none
}

// Error returns the message alone; the server adds the code.
func (e *Error) Error() string { return e.Message }

// JSON is the error as the service writes it in a list of errors: with the place and,
// where the service's is known, a code.
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
		out.Location = &place{e.At, e.At + len(quoted(e.Message))}
	}
	b, _ := json.Marshal(out) // always marshals
	return b
}

// quoted is the text that a message quotes first, which is the one at its place; empty for none.
func quoted(message string) string {
	_, rest, _ := strings.Cut(message, "'")
	text, _, found := strings.Cut(rest, "'")
	if !found {
		return ""
	}
	return text
}

// codes are the service's codes of errors, by a part of their messages.
var codes = []struct{ part, code string }{
	{"Syntax error, unexpected end-of-file", "SC1002"},
	{"Syntax error, invalid token", "SC1010"},
	{"Syntax error", "SC1001"},
	{"is not a recognized built-in function name", "SC2005"},
	{"'SELECT *' is not allowed with GROUP BY", "SC2041"},
	{" function requires ", "SC2050"},
	{"The count value provided for a TOP clause", "SC2060"},
	{"is not contained in either an aggregate function or the GROUP BY clause", "SC2102"},
}

// code is the service's code of the error; empty if it is not known.
func (e *Error) code() string {
	for _, c := range codes {
		if strings.Contains(e.Message, c.part) {
			return c.code
		}
	}
	return ""
}

// maxClip is how much of a query an error repeats. A query may be 512 KB, and its answer
// must not be.
const maxClip = 40 // bytes of a query that an error repeats

// clip quotes a text, cut between two characters if it is long.
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

// failf makes an Error for a place in the query; -1 is no place.
func failf(at int, format string, args ...any) *Error {
	return &Error{Message: fmt.Sprintf(format, args...), At: at}
}

// syntaxError makes an Error of the parser's error. Those of the lexer are Errors already.
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

// nearToken is the error of a token that the grammar does not expect. It repeats the token
// as the query spells it, not in upper case as the grammar has it.
func nearToken(text string, token lexer.Token) *Error {
	at := token.Pos.Offset
	if token.EOF() {
		return failf(at, "Syntax error, unexpected end-of-file.")
	}
	return failf(at, "Syntax error, incorrect syntax near %s.", clip(text[at:at+len(token.Value)]))
}
