package sql

import (
	"fmt"
	"strconv"
	"strings"
)

// Calls: of built-in functions, of aggregates and of functions that take a subquery.

// function is a built-in function. It gets its arguments evaluated and must not keep them,
// because they lie on the frame's stack. An undefined argument makes the result undefined
// without a call, unless the function is total: this is the rule for nearly all of them, so
// it is kept in one place.
type function struct {
	min, max int // number of arguments; max -1 is any
	total    bool
	run      func(f *frame, a []value) value
}

// call is a call of a built-in function.
type call struct {
	fn   *function
	args []node
}

// eval keeps the arguments on the frame's stack, so that a call needs no memory of its own.
// The cost of a call grows with its arguments: most functions look at every byte.
func (n call) eval(f *frame) value {
	base, cost := len(f.stack), opWork
	defer func() { f.stack = f.stack[:base] }()
	for _, a := range n.args {
		v := a.eval(f)
		if v.kind == undefined && !n.fn.total {
			return value{}
		}
		cost += slowWork * (len(v.raw) + len(v.text))
		f.stack = append(f.stack, v)
	}
	if !f.spendWork(cost) {
		return value{}
	}
	defer f.releaseTo(f.spread)
	return n.fn.run(f, f.stack[base:])
}

// compileCall compiles name(args). Names of functions are compared without case, as in the
// service. COUNT and its like are not in the table of functions, because they see many
// rows; IIF is not, because it must evaluate only the branch that it takes.
func (c *compiler) compileCall(name string, a *args, at int) node {
	upper := strings.ToUpper(name)
	if a.Sub != nil {
		return c.callSubquery(upper, name, a.Sub, at)
	}
	switch upper {
	case "COUNT", "SUM", "AVG", "MIN", "MAX", "COUNTIF":
		return c.aggregateCall(upper, a.list(), at)
	case ridFunction:
		return path{slot: rootSlot, memo: -1, steps: []step{{name: "_rid", index: -1}}}
	case "IIF":
		if c.checkArity(name, len(a.list()), 3, 3, at) {
			return conditional{c.compileExpr(a.list()[0]), c.compileExpr(a.list()[1]), c.compileExpr(a.list()[2])}
		}
		return constant{}
	}
	fn, ok := functions[upper]
	if !ok {
		c.failFirst(failf(at, "%s is not a recognized built-in function name.", clip(name)))
		return constant{}
	}
	if !c.checkArity(name, len(a.list()), fn.min, fn.max, at) {
		return constant{}
	}
	return call{fn, c.compileList(a.list())}
}

// checkArity reports whether a function takes n arguments, and fails if it does not.
func (c *compiler) checkArity(name string, n, min, max, at int) bool {
	if n < min || max >= 0 && n > max {
		c.failFirst(failf(at, "The %s function requires %s argument(s).", strings.ToUpper(name), counts(min, max)))
		return false
	}
	return true
}

// counts are numbers of arguments in words; max is below 0 if there is no limit.
func counts(min, max int) string {
	switch {
	case max < 0:
		return fmt.Sprintf("at least %d", min)
	case min == max:
		return strconv.Itoa(min)
	}
	return fmt.Sprintf("%d to %d", min, max)
}

// callSubquery compiles a function whose argument is a subquery.
func (c *compiler) callSubquery(upper, name string, stmt *selectStmt, at int) node {
	switch upper {
	case "EXISTS":
		return existsNode{c.compileExpression(stmt, true)}
	case "ARRAY":
		return arrayOf{c.compileExpression(stmt, false)}
	}
	c.failFirst(failf(at, "%s does not take a subquery.", clip(name)))
	return constant{}
}

// aggregateCall compiles an aggregate. Its argument is evaluated for each row, while the
// rest of SELECT is evaluated once for the group; so no aggregate can be in the argument of
// another.
func (c *compiler) aggregateCall(name string, list []*expr, at int) node {
	if !c.agg.open || c.agg.inside {
		c.failFirst(failf(at, "The aggregate function %s is allowed in the SELECT clause only, and not in another aggregate.", clip(name)))
		return constant{}
	}
	if !c.checkArity(name, len(list), 1, 1, at) {
		return constant{}
	}
	c.agg.inside = true
	arg := c.compileExpr(list[0])
	c.agg.inside = false
	p := c.agg.plan
	p.aggregates = append(p.aggregates, aggregate{name, arg})
	return aggregated{len(p.aggregates) - 1}
}
