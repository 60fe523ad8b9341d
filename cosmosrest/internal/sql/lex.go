package sql

import (
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/alecthomas/participle/v2/lexer"
)

// The lexer turns query text into tokens for participle. The lexer is written by hand because participle's own lexers
// are regular expressions, which cost more than the rest of a parse. The lexer also limits nesting, because the
// parser recurses for each open bracket.

// Kinds of token. The text of a token is a part of the query, but keywords are in upper case. So the grammar names
// each keyword once, although a query may use any case.
const (
	tokIdent lexer.TokenType = iota + 1
	// a number, string, parameter, true, false, null, undefined, or the place of an ORDER BY filter
	tokLiteral
	tokOp // operators between two operands
	tokPunct
	tokKeyword
	tokCall // EXISTS and ARRAY: functions whose names are reserved
)

// maxNesting limits nested brackets, and so the depth of the parser's recursion.
const maxNesting = 128

// filterPlace is the place where a client inserts the condition that resumes a sorted query, or `true`. See
// [Bound.Plan].
const filterPlace = "{documentdb-formattableorderbyquery-filter}"

// words are the reserved words by kind, in upper case. A reserved name cannot be an alias or a property in dotted
// form. The service refuses these too; c["order"] is allowed instead.
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

// longestWord saves longer identifiers the conversion to upper case and the lookup in the map.
const longestWord = len("UNDEFINED")

// definition is the lexer in the form that participle expects.
type definition struct{}

// Symbols returns the names of the kinds of token, for the tags of the grammar.
func (definition) Symbols() map[string]lexer.TokenType {
	return map[string]lexer.TokenType{
		"EOF": lexer.EOF, "Ident": tokIdent, "Literal": tokLiteral, "Op": tokOp, "Punct": tokPunct,
		"Keyword": tokKeyword, "Call": tokCall,
	}
}

// Lex implements [lexer.Definition] for a reader. Queries come as strings, so only participle's own tests would call
// Lex.
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
	text   string
	at     int
	depth  int
	sorted int // number of the last tokens that are the beginning of ORDER BY: 0 to 2
}

// Next reads a token.
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
		// the length check excludes ſ, whose upper case is S
		if k, reserved := words[upper]; reserved && len(upper) == len(token.Value) {
			token.Type, token.Value = k, upper
		}
		if s.sorted == 2 && upper == rankWord && rankedCall.MatchString(s.text[s.at:]) {
			token.Type, token.Value = tokKeyword, upper
		}
	}
	s.followOrder(token)
	return token, nil
}

// rankWord is a keyword only in ORDER BY RANK f(…), so a property or an alias may have this name.
const rankWord = "RANK"

// rankedCall matches what follows the keyword: a call.
var rankedCall = regexp.MustCompile(`^\s+[A-Za-z_]\w*\s*\(`)

// followOrder counts the tokens of ORDER BY.
func (s *scanner) followOrder(token lexer.Token) {
	switch {
	case token.Type == tokKeyword && token.Value == "ORDER":
		s.sorted = 1
	case token.Type == tokKeyword && token.Value == "BY" && s.sorted == 1:
		s.sorted = 2
	default:
		s.sorted = 0
	}
}

// skipBlanks skips white space and comments, which begin with two dashes and end with the line.
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

// scan moves to the end of the token that begins here and returns its kind. A number has no sign: in 1-1 the minus is
// an operator, which only the parser can decide.
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
	// This comes before the symbols, because the text begins with a symbol.
	case strings.HasPrefix(rest, filterPlace):
		s.at += len(filterPlace)
		return tokLiteral, nil
	default:
		return s.symbol(rest)
	}
}

// quoted moves to the end of a string. A backslash escapes the next byte, whatever that byte is. The compiler checks
// whether the escape is valid, while making the literal's value.
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

// symbols are the operators of several characters. Longer operators come before the operators that they begin with.
var symbols = []string{">>>", "||", "??", "!=", "<>", "<=", ">=", "<<", ">>"}

// symbol reads an operator or a bracket. symbol counts open brackets, because the parser and the compiler recurse for
// each. Without a limit, a query of 512 KB of brackets would overflow the stack.
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

// numberLength returns how many bytes of text are a number. An e without digits is not an exponent: 1e is the number
// 1 and a name, which the grammar then refuses with the right place in the message.
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

// span returns how many bytes at the beginning of text belong to a class.
func span(text string, inside func(byte) bool) int {
	n := 0
	for n < len(text) && inside(text[n]) {
		n++
	}
	return n
}

// isDigit, isLetter and isWordByte are the classes of bytes in names and numbers. Each byte of a non-ASCII character
// counts as a letter, so names in all scripts are accepted.
func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c >= 0x80
}
func isWordByte(c byte) bool { return isLetter(c) || isDigit(c) }
