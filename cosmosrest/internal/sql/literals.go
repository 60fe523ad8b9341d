package sql

import (
	"github.com/alecthomas/participle/v2"
	"github.com/alecthomas/participle/v2/lexer"
)

// Lists of literals are read without the grammar. The grammar could read them too, but would need 14 µs for each
// literal, and clients send thousands: every Contains over a list in a .NET program becomes an IN.

// literals is a list that contains only literals, as the expressions that the grammar would make.
type literals struct{ exprs []*expr }

// or returns the list, or others if there is no list.
func (l *literals) or(others []*expr) []*expr {
	if l == nil {
		return others
	}
	return l.exprs
}

// Parse implements [participle.Parseable]. If the list contains anything other than literals, Parse gives back all
// tokens and returns [participle.NextMatch], so the grammar's next rule reads the list.
func (l *literals) Parse(tokens *lexer.PeekingLexer) error {
	begin := tokens.MakeCheckpoint()
	for {
		e := literal(tokens)
		if e == nil {
			break
		}
		l.exprs = append(l.exprs, e)
		switch after := tokens.Peek(); {
		case after.Type == tokPunct && after.Value == ",":
			tokens.Next()
			continue
		case after.Type == tokPunct && (after.Value == ")" || after.Value == "]"):
			return nil
		}
		break
	}
	l.exprs = nil
	tokens.LoadCheckpoint(begin)
	return participle.NextMatch
}

// literal reads a literal with its sign. At any other token, the result is nil. The three nodes of the expression are
// allocated together, because a list may have thousands.
func literal(tokens *lexer.PeekingLexer) *expr {
	token := tokens.Peek()
	made := &struct {
		expr
		unary
		primary
	}{expr: expr{Pos: token.Pos}}
	made.First, made.unary.Primary = &made.unary, &made.primary
	if token.Type == tokOp && token.Value == "-" {
		made.Signs = []string{token.Value}
		tokens.Next()
		token = tokens.Peek()
	}
	if token.Type != tokLiteral {
		return nil
	}
	made.primary.Pos, made.Literal = token.Pos, token.Value
	tokens.Next()
	made.EndPos = tokens.Peek().Pos
	return &made.expr
}
