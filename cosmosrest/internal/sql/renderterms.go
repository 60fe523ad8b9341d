package sql

import "strings"

// Operators of a rendered expression. The grammar has an expression as a flat list, so the text is made by the same
// precedence climbing as the tree of nodes (precedence.go).

// textClimber renders a flat expression; links are the remaining operators.
type textClimber struct {
	r     renderer
	links []*link
}

// climb renders an operand and all following operators that bind at least as tightly as min.
func (t *textClimber) climb(u *unary, min int) string {
	return t.extendLeft(t.operand(u, u.Signs), min)
}

// operand renders an operand with its signs, the outermost first. A minus before a number belongs to the number.
func (t *textClimber) operand(u *unary, signs []string) string {
	if len(signs) == 0 {
		return t.r.primary(u.Primary)
	}
	inner := t.operand(u, signs[1:])
	switch {
	case signs[0] == "NOT":
		return "(NOT " + t.extendLeft(inner, levelCompare) + ")"
	case signs[0] == "-" && numberLength(inner) == len(inner):
		return "-" + inner
	}
	if inner[0] == '-' { // two dashes would begin a comment
		inner = " " + inner
	}
	return "(" + signs[0] + inner + ")"
}

// maxBracketed is the longest chain of AND or OR in which each operator has its brackets. A longer chain, which
// clients send with thousands of terms, has brackets around the whole chain only.
const maxBracketed = 32

// extendLeft takes the operators that bind at least as tightly as min, and applies each to the text on its left.
func (t *textClimber) extendLeft(left string, min int) string {
	for len(t.links) > 0 {
		l := t.links[0]
		level := levels[l.Op]
		if level < min {
			break
		}
		t.links = t.links[1:]
		if l.Op == "AND" || l.Op == "OR" {
			left = t.chain(left, l, level)
		} else {
			left = "(" + t.operator(left, l, level) + ")"
		}
	}
	return left
}

// chain renders a chain of AND or of OR.
func (t *textClimber) chain(left string, l *link, level int) string {
	terms := []string{left, t.climb(l.Right, level+1)}
	for len(t.links) > 0 && t.links[0].Op == l.Op {
		next := t.links[0]
		t.links = t.links[1:]
		terms = append(terms, t.climb(next.Right, level+1))
	}
	if len(terms) > maxBracketed {
		return "(" + strings.Join(terms, " "+l.Op+" ") + ")"
	}
	var text strings.Builder
	text.WriteString(strings.Repeat("(", len(terms)-1) + terms[0])
	for _, term := range terms[1:] {
		text.WriteString(" " + l.Op + " " + term + ")")
	}
	return text.String()
}

// operator renders an operator with its operands, without brackets.
func (t *textClimber) operator(left string, l *link, level int) string {
	word := l.Op
	if l.Not {
		word = "NOT " + word
	}
	head := left + " " + word + " "
	switch l.Op {
	case "?":
		head += t.climb(l.Right, levelChoice) + " : "
		return head + t.climb(t.nextOperand(), levelChoice)
	case "??":
		return head + t.climb(l.Right, levelCoalesce)
	case "<>":
		return left + " != " + t.climb(l.Right, level+1)
	case "BETWEEN":
		head += t.climb(l.Right, levelBitOr) + " AND "
		return head + t.climb(t.nextOperand(), levelBitOr)
	case "IN":
		return head + "(" + strings.Join(t.r.texts(l.Right.Primary.Group.list()), ", ") + ")"
	case "LIKE":
		head += t.climb(l.Right, levelBitOr)
		if len(t.links) > 0 && t.links[0].Op == "ESCAPE" {
			head += " ESCAPE " + t.climb(t.nextOperand(), levelBitOr)
		}
		return head
	}
	return head + t.climb(l.Right, level+1)
}

// nextOperand takes the operator that continues a choice, BETWEEN or LIKE, and returns its operand. The compiler has
// checked that the operator is there.
func (t *textClimber) nextOperand() *unary {
	l := t.links[0]
	t.links = t.links[1:]
	return l.Right
}
