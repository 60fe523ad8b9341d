package sql

// Precedence: the flat expressions of the grammar become trees of nodes.
//
// The method is precedence climbing: climb reads an operand and then takes, in a loop, each
// operator that binds at least as tightly as its caller asks for; the right operand is read
// by a climb of its own that asks for the next level. Operators of one level associate to
// the left; ?: to the right.

// The levels of precedence, from the loosest. NOT covers a whole comparison, so it has no
// level of its own: see signed.
const (
	levelChoice = iota + 1 // ?:
	levelCoalesce
	levelOr
	levelAnd
	levelCompare // and what NOT covers
	levelBitOr
	levelBitXor
	levelBitAnd
	levelShift
	levelAdd
	levelMultiply
)

// levels has every operator that stands between two operands. A token that is not in it,
// such as the ":" of a choice, has level 0, which ends every climb and is taken by the rule
// that expects it.
var levels = map[string]int{
	"?": levelChoice, "??": levelCoalesce, "OR": levelOr, "AND": levelAnd,
	"=": levelCompare, "!=": levelCompare, "<>": levelCompare, "<": levelCompare, "<=": levelCompare,
	">": levelCompare, ">=": levelCompare, "IN": levelCompare, "LIKE": levelCompare, "BETWEEN": levelCompare,
	"|": levelBitOr, "^": levelBitXor, "&": levelBitAnd,
	"<<": levelShift, ">>": levelShift, ">>>": levelShift,
	"+": levelAdd, "-": levelAdd, "||": levelAdd,
	"*": levelMultiply, "/": levelMultiply, "%": levelMultiply,
}

// maxChain bounds the operators of a chain such as a + b + c, and of choices within
// choices, because the tree of a chain is as deep as the chain is long and eval recurses.
// AND and OR are exempt: their chains are one flat node, and clients do send thousands of
// terms.
const maxChain = 500

// climber compiles one flat expression; links are the operators that it has not taken yet.
type climber struct {
	c     *compiler
	links []*link
	depth int
}

// compileExpr compiles an expression. An operator that is left over is one that no rule expects
// here.
func (c *compiler) compileExpr(e *expr) node {
	p := &climber{c: c, links: e.Rest}
	n := p.climb(e.First, levelChoice)
	if len(p.links) > 0 {
		c.failNear(p.links[0])
	}
	return n
}

// climb compiles an operand and all operators after it that bind at least as tightly as
// min.
func (p *climber) climb(u *unary, min int) node {
	p.depth++
	defer func() { p.depth-- }()
	if p.depth > maxChain || len(u.Signs) > maxChain {
		p.c.failFirst(failf(u.Primary.Pos.Offset, "The query is too complex: more than %d operators in a chain.", maxChain))
		return constant{}
	}
	mark := p.c.countStrays()
	return p.extendLeft(p.climbOperand(u, u.Signs), min, mark)
}

// climbOperand compiles an operand with its signs, the outermost first. Each step may be an
// expression of GROUP BY, so each is offered to seal.
func (p *climber) climbOperand(u *unary, signs []string) node {
	mark := p.c.countStrays()
	if len(signs) == 0 {
		return p.c.sealGroupKey(p.c.compilePrimary(u.Primary), mark)
	}
	return p.c.sealGroupKey(p.applySign(signs[0], p.climbOperand(u, signs[1:]), mark), mark)
}

// applySign applies a sign. NOT covers the comparison that follows, so it takes the operators
// down to that level before it is applied; the other signs bind tighter than any operator.
func (p *climber) applySign(sign string, operand node, mark int) node {
	switch sign {
	case "NOT":
		return not{p.extendLeft(operand, levelCompare, mark)}
	case "-":
		return p.c.compileMinus(operand)
	case "~":
		return complement{operand}
	default:
		return plus{operand}
	}
}

// extendLeft takes the operators that bind at least as tightly as min, and applies each to what
// stands left of it. After an error it stops, because the nodes that it would go on with
// mean nothing.
func (p *climber) extendLeft(left node, min, mark int) node {
	for chain := 0; len(p.links) > 0 && p.c.err == nil; chain++ {
		l := p.links[0]
		level := levels[l.Op]
		if level < min {
			break
		}
		p.links = p.links[1:]
		if level > levelCompare && chain > maxChain {
			p.c.failFirst(failf(l.Pos.Offset, "The query is too complex: more than %d operators in a chain.", maxChain))
		}
		left = p.c.sealGroupKey(p.applyOperator(left, l, level), mark)
	}
	return left
}

// applyOperator makes the node of an operator. IN, BETWEEN and LIKE may have a NOT before them.
func (p *climber) applyOperator(left node, l *link, level int) node {
	if l.Not && l.Op != "IN" && l.Op != "LIKE" && l.Op != "BETWEEN" {
		p.c.failNear(l)
		return left
	}
	var n node
	switch l.Op {
	case "?":
		return p.climbChoice(left, l)
	case "??":
		// The right side begins at the operator's own level, so that a ?? b ?? c groups
		// to the right. The other operators group to the left: their right side is a
		// level above.
		return coalesce{left, p.climb(l.Right, levelCoalesce)}
	case "OR":
		return join(isTrue, left, p.climb(l.Right, level+1))
	case "AND":
		return join(isFalse, left, p.climb(l.Right, level+1))
	case "IN":
		n = inList{left, p.climbList(l)}
	case "BETWEEN":
		n = p.climbBetween(left, l)
	case "LIKE":
		n = p.climbLike(left, l)
	case "=", "!=", "<>", "<", "<=", ">", ">=":
		return compare{l.Op, left, p.climb(l.Right, level+1)}
	default:
		return arithmetic{l.Op, left, p.climb(l.Right, level+1)}
	}
	if l.Not {
		return not{n}
	}
	return n
}

// join adds a term to a chain of AND or OR. A chain is one node however long it is: it is
// evaluated in a loop, and pins.go sees all its terms at once.
func join(decides kind, left, right node) node {
	if chain, ok := left.(logic); ok && chain.decides == decides {
		return logic{decides, append(chain.terms, right)}
	}
	return logic{decides, []node{left, right}}
}

// expectOperator takes the next operator, which must be op: the second half of ?: or BETWEEN.
func (p *climber) expectOperator(op string, after *link) *link {
	if len(p.links) == 0 || p.links[0].Op != op || p.links[0].Not {
		p.c.failNear(after)
		return after
	}
	l := p.links[0]
	p.links = p.links[1:]
	return l
}

// climbChoice compiles cond ? then : other.
func (p *climber) climbChoice(cond node, l *link) node {
	then := p.climb(l.Right, levelChoice)
	other := p.expectOperator(":", l)
	return conditional{cond, then, p.climb(other.Right, levelChoice)}
}

// climbBetween compiles BETWEEN as two comparisons, by which pins.go need not know it. The AND
// inside is the operator's own, so both bounds are read at a level above AND.
func (p *climber) climbBetween(operand node, l *link) node {
	low := p.climb(l.Right, levelBitOr)
	and := p.expectOperator("AND", l)
	high := p.climb(and.Right, levelBitOr)
	return logic{isFalse, []node{compare{">=", operand, low}, compare{"<=", operand, high}}}
}

// climbList compiles the list of IN. Brackets are required, and a list of a single element is
// still a list, so the group is taken apart here and not compiled as an operand.
func (p *climber) climbList(l *link) []node {
	prim := l.Right.Primary
	if len(l.Right.Signs) > 0 || prim.Group == nil || prim.Group.Sub != nil || len(prim.Group.list()) == 0 || len(prim.Suffix) > 0 {
		p.c.failNear(l)
		return nil
	}
	return p.c.compileList(prim.Group.list())
}

// climbLike compiles LIKE with its ESCAPE, if there is one.
func (p *climber) climbLike(operand node, l *link) node {
	n := like{x: operand, pattern: p.climb(l.Right, levelBitOr)}
	if len(p.links) == 0 || p.links[0].Op != "ESCAPE" {
		return n
	}
	esc := p.links[0]
	p.links = p.links[1:]
	n.escape = p.climb(esc.Right, levelBitOr)
	return n
}
