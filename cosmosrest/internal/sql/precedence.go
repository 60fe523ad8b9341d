package sql

// Precedence: the flat expressions of the grammar become trees of nodes.
//
// The method is precedence climbing. climb reads an operand and then, in a loop, takes each operator that binds at
// least as tightly as its caller requires. For the right operand, climb calls itself with the next level. Operators
// of a level group to the left; ?: groups to the right.

// The levels of precedence, the loosest first. NOT covers a whole comparison, so NOT has no level of its own: see
// applySign.
const (
	levelChoice = iota + 1 // ?:
	levelCoalesce
	levelOr
	levelAnd
	levelCompare // also the level that NOT covers
	levelBitOr
	levelBitXor
	levelBitAnd
	levelShift
	levelAdd
	levelMultiply
)

// levels contains every operator between two operands. Any other token, such as the ":" of a choice, has level 0,
// which ends every climb; the rule that expects the token takes it.
var levels = map[string]int{
	"?": levelChoice, "??": levelCoalesce, "OR": levelOr, "AND": levelAnd,
	"=": levelCompare, "!=": levelCompare, "<>": levelCompare, "<": levelCompare, "<=": levelCompare,
	">": levelCompare, ">=": levelCompare, "IN": levelCompare, "LIKE": levelCompare, "BETWEEN": levelCompare,
	"|": levelBitOr, "^": levelBitXor, "&": levelBitAnd,
	"<<": levelShift, ">>": levelShift, ">>>": levelShift,
	"+": levelAdd, "-": levelAdd, "||": levelAdd,
	"*": levelMultiply, "/": levelMultiply, "%": levelMultiply,
}

// maxChain limits the operators of a chain such as a + b + c, and nested choices, because the tree of a chain is as
// deep as the chain is long, and eval recurses. AND and OR have no limit: each of their chains is a flat node, and
// clients send thousands of terms.
const maxChain = 500

// climber compiles a flat expression; links are the remaining operators.
type climber struct {
	c     *compiler
	links []*link
	depth int
}

// compileExpr compiles an expression. A remaining operator is not allowed here.
func (c *compiler) compileExpr(e *expr) node {
	p := &climber{c: c, links: e.Rest}
	n := p.climb(e.First, levelChoice)
	if len(p.links) > 0 {
		c.failNear(p.links[0])
	}
	return n
}

// climb compiles an operand and all following operators that bind at least as tightly as min.
func (p *climber) climb(u *unary, min int) node {
	p.depth++
	defer func() { p.depth-- }()
	if p.depth > maxChain || len(u.Signs) > maxChain {
		p.c.failFirst(failf(u.Primary.Pos.Offset, "The query is too complex: more than %d operators in a chain.",
			maxChain))
		return constant{}
	}
	mark := p.c.countStrays()
	return p.extendLeft(p.climbOperand(u, u.Signs), min, mark)
}

// climbOperand compiles an operand with its signs, the outermost first. Each intermediate result may be an expression
// of GROUP BY, so each is passed to sealGroupKey.
func (p *climber) climbOperand(u *unary, signs []string) node {
	mark := p.c.countStrays()
	if len(signs) == 0 {
		return p.c.sealGroupKey(p.c.compilePrimary(u.Primary), mark)
	}
	return p.c.sealGroupKey(p.applySign(signs[0], p.climbOperand(u, signs[1:]), mark), mark)
}

// applySign applies a sign. NOT covers the whole comparison, so applySign first takes the operators down to that
// level. The other signs bind tighter than any operator.
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

// extendLeft takes the operators that bind at least as tightly as min, and applies each to the expression on its
// left. After an error extendLeft stops, because the nodes are meaningless then.
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
		// The right side begins at the operator's own level, so a ?? b ?? c groups to the right. The other operators
		// group to the left: their right side begins a level higher.
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

// join adds a term to a chain of AND or OR. A chain of any length is a single node: a loop evaluates the chain, and
// pins.go sees all its terms at once.
func join(decides kind, left, right node) node {
	if chain, ok := left.(logic); ok && chain.decides == decides {
		return logic{decides, append(chain.terms, right)}
	}
	return logic{decides, []node{left, right}}
}

// expectOperator takes the next operator, which must be op: the second part of ?: or BETWEEN.
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

// climbBetween compiles BETWEEN as two comparisons, so pins.go need not know BETWEEN. The AND inside belongs to
// BETWEEN, so both bounds are read at a level above AND.
func (p *climber) climbBetween(operand node, l *link) node {
	low := p.climb(l.Right, levelBitOr)
	and := p.expectOperator("AND", l)
	high := p.climb(and.Right, levelBitOr)
	return logic{isFalse, []node{compare{">=", operand, low}, compare{"<=", operand, high}}}
}

// climbList compiles the list of IN. Brackets are required, and a list of a single element is still a list, so this
// code reads the brackets itself instead of compiling them as an operand.
func (p *climber) climbList(l *link) []node {
	prim := l.Right.Primary
	if len(l.Right.Signs) > 0 || prim.Group == nil || prim.Group.Sub != nil || len(prim.Group.list()) == 0 ||
		len(prim.Suffix) > 0 {
		p.c.failNear(l)
		return nil
	}
	return p.c.compileList(prim.Group.list())
}

// climbLike compiles LIKE, with ESCAPE if present.
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
