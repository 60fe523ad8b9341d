package sql

import (
	"errors"
	"fmt"
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
		return failf(at, "Syntax error, unexpected end of the query.")
	}
	return failf(at, "Syntax error, incorrect syntax near %s.", clip(text[at:at+len(token.Value)]))
}
