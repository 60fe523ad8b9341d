package sql

import (
	"github.com/alecthomas/participle/v2"
	"github.com/alecthomas/participle/v2/lexer"
)

// Lists of literals, read past the grammar. The grammar would read them as well, at 14 µs
// for each, and clients send thousands: every Contains over a list in a .NET program is an
// IN of them.

// literals is a list that has nothing but literals, as the expressions that the grammar
// would make.
type literals struct{ exprs []*expr }

// or returns the list, or others if there is none.
func (l *literals) or(others []*expr) []*expr {
	if l == nil {
		return others
	}
	return l.exprs
}

// Parse implements [participle.Parseable]. If anything but a literal is in the list, it
// gives all tokens back and lets the grammar read the list, for [participle.NextMatch]
// means the next rule.
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

// literal reads a literal with its sign, or returns nil at any other token. The three nodes
// of the expression are allocated together, because a list may have thousands.
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
