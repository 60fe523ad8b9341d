package sql

// Levels of precedence, from the loosest.
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

var levels = map[string]int{
	"?": levelChoice, "??": levelCoalesce, "OR": levelOr, "AND": levelAnd,
	"=": levelCompare, "!=": levelCompare, "<>": levelCompare, "<": levelCompare, "<=": levelCompare,
	">": levelCompare, ">=": levelCompare, "IN": levelCompare, "LIKE": levelCompare, "BETWEEN": levelCompare,
	"|": levelBitOr, "^": levelBitXor, "&": levelBitAnd,
	"<<": levelShift, ">>": levelShift, ">>>": levelShift,
	"+": levelAdd, "-": levelAdd, "||": levelAdd,
	"*": levelMultiply, "/": levelMultiply, "%": levelMultiply,
}

// maxChain bounds the operators of a chain such as a + b + c, other than AND and OR, and of choices within choices.
const maxChain = 500

// climber makes a tree of a flat expression by climbing precedence.
type climber struct {
	c     *compiler
	links []*link
	depth int
}

// expr compiles an expression.
func (c *compiler) expr(e *expr) node {
	p := &climber{c: c, links: e.Rest}
	n := p.climb(e.First, levelChoice)
	if len(p.links) > 0 {
		c.near(p.links[0])
	}
	return n
}

func (p *climber) climb(u *unary, min int) node {
	p.depth++
	defer func() { p.depth-- }()
	if p.depth > maxChain || len(u.Signs) > maxChain {
		p.c.fail(failf(u.Primary.Pos.Offset, "The query is too complex: more than %d operators in a chain.", maxChain))
		return constant{}
	}
	mark := p.c.mark()
	return p.extend(p.operand(u, u.Signs), min, mark)
}

func (p *climber) operand(u *unary, signs []string) node {
	mark := p.c.mark()
	if len(signs) == 0 {
		return p.c.seal(p.c.primary(u.Primary), mark)
	}
	return p.c.seal(p.signed(signs[0], p.operand(u, signs[1:]), mark), mark)
}

func (p *climber) signed(sign string, x node, mark int) node {
	switch sign {
	case "NOT":
		return not{p.extend(x, levelCompare, mark)}
	case "-":
		return p.c.negative(x)
	case "~":
		return complement{x}
	default:
		return plus{x}
	}
}

// extend takes the operators that bind at least as tight as min.
func (p *climber) extend(left node, min, mark int) node {
	for chain := 0; len(p.links) > 0 && p.c.err == nil; chain++ {
		l := p.links[0]
		level := levels[l.Op]
		if level < min {
			break
		}
		p.links = p.links[1:]
		if level > levelCompare && chain > maxChain {
			p.c.fail(failf(l.Pos.Offset, "The query is too complex: more than %d operators in a chain.", maxChain))
		}
		left = p.c.seal(p.apply(left, l, level), mark)
	}
	return left
}

func (p *climber) apply(left node, l *link, level int) node {
	if l.Not && l.Op != "IN" && l.Op != "LIKE" && l.Op != "BETWEEN" {
		p.c.near(l)
		return left
	}
	var n node
	switch l.Op {
	case "?":
		return p.choice(left, l)
	case "??":
		return coalesce{left, p.climb(l.Right, levelCoalesce)}
	case "OR":
		return join(isTrue, left, p.climb(l.Right, level+1))
	case "AND":
		return join(isFalse, left, p.climb(l.Right, level+1))
	case "IN":
		n = inList{left, p.list(l)}
	case "BETWEEN":
		n = p.between(left, l)
	case "LIKE":
		n = p.like(left, l)
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

// join adds a term to a chain of AND or OR.
func join(decides kind, left, right node) node {
	if chain, ok := left.(logic); ok && chain.decides == decides {
		return logic{decides, append(chain.terms, right)}
	}
	return logic{decides, []node{left, right}}
}

// expect takes the next operator if it is the one wanted.
func (p *climber) expect(op string, after *link) *link {
	if len(p.links) == 0 || p.links[0].Op != op || p.links[0].Not {
		p.c.near(after)
		return after
	}
	l := p.links[0]
	p.links = p.links[1:]
	return l
}

func (p *climber) choice(cond node, l *link) node {
	then := p.climb(l.Right, levelChoice)
	other := p.expect(":", l)
	return conditional{cond, then, p.climb(other.Right, levelChoice)}
}

func (p *climber) between(x node, l *link) node {
	low := p.climb(l.Right, levelBitOr)
	and := p.expect("AND", l)
	high := p.climb(and.Right, levelBitOr)
	return logic{isFalse, []node{compare{">=", x, low}, compare{"<=", x, high}}}
}

func (p *climber) list(l *link) []node {
	prim := l.Right.Primary
	if len(l.Right.Signs) > 0 || prim.Group == nil || prim.Group.Sub != nil || len(prim.Group.list()) == 0 || len(prim.Suffix) > 0 {
		p.c.near(l)
		return nil
	}
	return p.c.exprs(prim.Group.list())
}

func (p *climber) like(x node, l *link) node {
	n := like{x: x, pattern: p.climb(l.Right, levelBitOr)}
	if len(p.links) == 0 || p.links[0].Op != "ESCAPE" {
		return n
	}
	esc := p.links[0]
	p.links = p.links[1:]
	n.escape = p.climb(esc.Right, levelBitOr)
	return n
}
