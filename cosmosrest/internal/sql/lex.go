package sql

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/participle/v2/lexer"
)

// The lexer: query text becomes tokens for participle. It is written by hand because
// participle's own lexers are regular expressions, which cost more than all the rest of a
// parse, and because it is the place where nesting is bounded: the parser recurses once for
// each open bracket.

// Kinds of token. The text of a token is a part of the query, except that keywords are in
// upper case, so that the grammar names each keyword once although a query may write it in
// any case.
const (
	tokIdent   lexer.TokenType = iota + 1
	tokLiteral                 // a number, string, parameter, true, false, null, undefined, or the place of an ORDER BY filter
	tokOp                      // what may stand between two operands
	tokPunct
	tokKeyword
	tokCall // EXISTS and ARRAY: functions whose names are reserved
)

// maxNesting bounds brackets within brackets, and so the depth of the parser's recursion.
const maxNesting = 128

// filterPlace is where a client writes the condition that resumes a sorted query, or
// `true`. See [Bound.Plan].
const filterPlace = "{documentdb-formattableorderbyquery-filter}"

// words are the reserved words by kind, in upper case. A name that is reserved cannot be an
// alias or a property in dotted form; the service refuses those too, and offers c["order"]
// instead.
var words = func() map[string]lexer.TokenType {
	kinds := map[string]lexer.TokenType{"EXISTS": tokCall, "ARRAY": tokCall}
	for w := range strings.FieldsSeq(`AS ASC BY DESC DISTINCT FROM GROUP JOIN LIMIT NOT OFFSET ORDER SELECT TOP
		UDF VALUE WHERE`) {
		kinds[w] = tokKeyword
	}
	for w := range strings.FieldsSeq("AND OR IN LIKE BETWEEN ESCAPE") {
		kinds[w] = tokOp
	}
	for w := range strings.FieldsSeq("TRUE FALSE NULL UNDEFINED") {
		kinds[w] = tokLiteral
	}
	return kinds
}()

// longestWord spares longer identifiers the conversion to upper case and the look into the
// map.
const longestWord = len("UNDEFINED")

// definition is the lexer as participle wants it.
type definition struct{}

// Symbols names the kinds of token for the tags of the grammar.
func (definition) Symbols() map[string]lexer.TokenType {
	return map[string]lexer.TokenType{
		"EOF": lexer.EOF, "Ident": tokIdent, "Literal": tokLiteral, "Op": tokOp, "Punct": tokPunct, "Keyword": tokKeyword, "Call": tokCall,
	}
}

// Lex implements [lexer.Definition] for a reader; queries come as strings, so only tests of
// participle itself could get here.
func (d definition) Lex(name string, r io.Reader) (lexer.Lexer, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read query: %w", err)
	}
	return d.LexString(name, string(text))
}

func (definition) LexString(_, text string) (lexer.Lexer, error) { return &scanner{text: text}, nil }

// scanner reads the tokens of a query from left to right.
type scanner struct {
	text  string
	at    int
	depth int
}

// Next reads one token.
func (s *scanner) Next() (lexer.Token, error) {
	s.skipBlanks()
	start := s.at
	if start == len(s.text) {
		return lexer.EOFToken(lexer.Position{Offset: start, Line: 1}), nil
	}
	kind, err := s.scan()
	if err != nil {
		return lexer.Token{}, err
	}
	token := lexer.Token{Type: kind, Value: s.text[start:s.at], Pos: lexer.Position{Offset: start, Line: 1}}
	if kind == tokIdent && len(token.Value) <= longestWord {
		upper := strings.ToUpper(token.Value)
		if k, reserved := words[upper]; reserved && len(upper) == len(token.Value) { // ſ is no S
			token.Type, token.Value = k, upper
		}
	}
	return token, nil
}

// skipBlanks passes over white space and comments, which begin with two dashes and end with
// the line.
func (s *scanner) skipBlanks() {
	for s.at < len(s.text) {
		switch c := s.text[s.at]; {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			s.at++
		case strings.HasPrefix(s.text[s.at:], "--"):
			if end := strings.IndexByte(s.text[s.at:], '\n'); end >= 0 {
				s.at += end
			} else {
				s.at = len(s.text)
			}
		default:
			return
		}
	}
}

// scan moves to the end of the token that begins here and returns its kind. A number has no
// sign: in 1-1 the minus is an operator, and only the parser can know that.
func (s *scanner) scan() (lexer.TokenType, error) {
	rest := s.text[s.at:]
	switch c := rest[0]; {
	case isLetter(c):
		s.at += span(rest, isWordByte)
		return tokIdent, nil
	case isDigit(c), c == '.' && len(rest) > 1 && isDigit(rest[1]):
		s.at += numberLength(rest)
		return tokLiteral, nil
	case c == '@' && span(rest[1:], isWordByte) > 0:
		s.at += 1 + span(rest[1:], isWordByte)
		return tokLiteral, nil
	case c == '\'' || c == '"':
		return tokLiteral, s.quoted(c)
	// Before the symbols, with one of which it begins.
	case strings.HasPrefix(rest, filterPlace):
		s.at += len(filterPlace)
		return tokLiteral, nil
	default:
		return s.symbol(rest)
	}
}

// quoted moves to the end of a string. A backslash protects the byte after it, whichever
// that is; whether the escape is a valid one is checked when the literal is compiled, where
// its value is made.
func (s *scanner) quoted(quote byte) error {
	for i := s.at + 1; i < len(s.text); i++ {
		switch s.text[i] {
		case '\\':
			i++
		case quote:
			s.at = i + 1
			return nil
		}
	}
	return &Error{Message: "Syntax error, invalid string literal token " + clip(s.text[s.at:]) + ".", At: s.at}
}

// symbols are the operators of several characters. An operator comes before those that it
// begins with.
var symbols = []string{">>>", "||", "??", "!=", "<>", "<=", ">=", "<<", ">>"}

// symbol reads an operator or a bracket. Each open bracket is counted, because the parser
// and the compiler recurse for it: without a bound, a query of 512 KB of brackets would use
// up the stack.
func (s *scanner) symbol(rest string) (lexer.TokenType, error) {
	for _, op := range symbols {
		if strings.HasPrefix(rest, op) {
			s.at += len(op)
			return tokOp, nil
		}
	}
	s.at++
	switch rest[0] {
	case '+', '-', '*', '/', '%', '=', '<', '>', '&', '|', '^', '?', ':':
		return tokOp, nil
	case '(', '[', '{':
		s.depth++
		if s.depth > maxNesting {
			return 0, &Error{Message: fmt.Sprintf("The query nests deeper than %d brackets.", maxNesting), At: s.at - 1}
		}
		return tokPunct, nil
	case ')', ']', '}':
		s.depth--
		return tokPunct, nil
	case '.', ',', '~':
		return tokPunct, nil
	}
	return 0, &Error{Message: "Syntax error, invalid token " + clip(rest[:1]) + ".", At: s.at - 1}
}

// numberLength is how many bytes of text are a number. A trailing e without digits is no
// exponent, so 1e is the number 1 and a name, which the grammar then refuses with the right
// place in the message.
func numberLength(text string) int {
	n := span(text, isDigit)
	if n < len(text) && text[n] == '.' {
		n += 1 + span(text[n+1:], isDigit)
	}
	if n < len(text) && (text[n] == 'e' || text[n] == 'E') {
		e := n + 1
		if e < len(text) && (text[e] == '+' || text[e] == '-') {
			e++
		}
		if digits := span(text[e:], isDigit); digits > 0 {
			n = e + digits
		}
	}
	return n
}

// span is how many bytes at the beginning of text belong to a class.
func span(text string, inside func(byte) bool) int {
	n := 0
	for n < len(text) && inside(text[n]) {
		n++
	}
	return n
}

// isDigit, isLetter and isWordByte are the classes of bytes in names and numbers. Each byte
// of a character beyond ASCII counts as a letter, so names in every script are accepted.
func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c >= 0x80
}
func isWordByte(c byte) bool { return isLetter(c) || isDigit(c) }
