package sql

import (
	"cmp"
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
	End     int    // byte offset of its end; 0 if the first quoted text of the message is at the place
	Sub     int    // the service's sub-status; 0 if there is none

	Others []*Error // further errors of the query
}

// Error returns only the message; the server adds the code.
func (e *Error) Error() string { return e.Message }

// JSON returns the errors of the query as the service writes them in a list of errors: with their places and, if the
// service's codes are known, with the codes. The result is nil if the error has neither.
func (e *Error) JSON() []byte {
	list := e.appendJSON(nil)
	for _, other := range e.Others {
		list = append(append(list, ','), other.appendJSON(nil)...)
	}
	return list
}

// appendJSON appends a single error.
func (e *Error) appendJSON(list []byte) []byte {
	type place struct {
		Start int `json:"start"`
		End   int `json:"end"`
	}
	out := struct {
		Severity string `json:"severity"`
		Location *place `json:"location,omitempty"`
		Code     any    `json:"code,omitempty"`
		Message  string `json:"message"`
	}{Severity: "Error", Message: e.Message}
	switch code := e.code(); {
	case code != "" && isDigit(code[0]): // the older codes are numbers
		out.Code = json.Number(code)
	case code != "":
		out.Code = code
	}
	switch {
	case e.At < 0 && out.Code == nil:
		return nil
	case e.At >= 0:
		out.Location = &place{e.At, cmp.Or(e.End, e.At+len(quoted(e.Message)))}
	}
	b, _ := json.Marshal(out) // cannot fail
	return append(list, b...)
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
	{"could not be resolved", "SC2001"},
	{"is not a recognized built-in function name", "SC2005"},
	{"'SELECT *' is not allowed with GROUP BY", "SC2041"},
	{" function requires ", "SC2050"},
	{"The count value provided for a TOP clause", "SC2060"},
	{"The LIMIT count value exceeds", "SC2061"},
	{"The OFFSET count value exceeds", "SC2062"},
	{"is not contained in either an aggregate function or the GROUP BY clause", "SC2102"},
	{"'ORDER BY' is not supported in subqueries", "SC2202"},
	{"'TOP' is not supported in subqueries", "SC2203"},
	{"'OFFSET LIMIT' clause is not supported in subqueries", "SC2204"},
	{"The index of an array or object must be a constant", "SC2990"},
	{"The SQL query exceeded the maximum number of joins", "SC3002"},
	{"The SQL query text exceeded the maximum limit", "SC3020"},
	{"ORDER BY item expression could not be mapped to a document path", "2206"},
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
