package sql

import (
	"github.com/alecthomas/participle/v2"
	"github.com/alecthomas/participle/v2/lexer"
)

// literals is a list of nothing but literals. The grammar would read it as well, at 14 µs for each of them, and clients
// send thousands: every Contains over a list in a .NET program is an IN of them.
type literals struct{ exprs []*expr }

// or is the list, or others if there is none.
func (l *literals) or(others []*expr) []*expr {
	if l == nil {
		return others
	}
	return l.exprs
}

// Parse reads the list, or nothing if something else is among it. It implements [participle.Parseable].
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

// literal reads one, with its sign.
func literal(tokens *lexer.PeekingLexer) *expr {
	t := tokens.Peek()
	made := &struct {
		expr
		unary
		primary
	}{expr: expr{Pos: t.Pos}}
	made.First, made.unary.Primary = &made.unary, &made.primary
	if t.Type == tokOp && t.Value == "-" {
		made.Signs = []string{t.Value}
		tokens.Next()
		t = tokens.Peek()
	}
	if t.Type != tokLiteral {
		return nil
	}
	made.primary.Pos, made.Literal = t.Pos, t.Value
	tokens.Next()
	made.EndPos = tokens.Peek().Pos
	return &made.expr
}
