package sql

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Calls of built-in functions, of aggregates and of functions with a subquery.

// function is a built-in function. A function receives evaluated arguments and must not keep them, because they are
// on the frame's stack. If an argument is undefined, the result is undefined and the function is not called, unless
// the function is total. Nearly all functions follow this rule, so the caller implements the rule once.
type function struct {
	min, max int // number of arguments; max -1 means any
	total    bool
	run      func(f *frame, a []value) value
}

// call is a call of a built-in function.
type call struct {
	fn   *function
	args []node
}

// eval keeps the arguments on the frame's stack, so a call needs no memory. The cost of a call grows with its
// arguments, because most functions read every byte.
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

// specialCall compiles a call that is more than a function of evaluated arguments.
type specialCall func(c *compiler, name string, list []*expr, at int) node

// specialRule returns the rule for such a call, by its upper-case name, or nil. Names with an underscore at the
// beginning, and ridFunction, are only for plans.
func specialRule(upper string) specialCall {
	switch upper {
	case ridFunction:
		return func(*compiler, string, []*expr, int) node {
			return path{slot: rootSlot, memo: -1, steps: []step{{name: "_rid", index: -1}}}
		}
	case "IIF":
		return compileChoice
	case "DOCUMENTID":
		return compileDocumentID
	case "NOW":
		return compileNow
	case "VECTORDISTANCE", "_VECTORSCORE":
		return vectorCall(upper[0] == '_')
	case "FULLTEXTSCORE", "RRF":
		return compileRankFunction
	}
	if _, ok := aggregateTypes[upper]; ok {
		return (*compiler).aggregateCall
	}
	return nil
}

// compileChoice compiles IIF, of which only one branch must be evaluated.
func compileChoice(c *compiler, name string, list []*expr, at int) node {
	if !c.checkArity(name, len(list), 3, 3, at) {
		return constant{}
	}
	return conditional{c.compileExpr(list[0]), c.compileExpr(list[1]), c.compileExpr(list[2])}
}

// compileCall compiles name(args). As in the service, names of functions ignore case.
func (c *compiler) compileCall(name string, a *args, at int) node {
	upper := strings.ToUpper(name)
	if a.Sub != nil {
		return c.callSubquery(upper, name, a.Sub, at)
	}
	if compile := specialRule(upper); compile != nil {
		return compile(c, name, a.list(), at)
	}
	fn, ok := functions[upper]
	if !ok {
		c.failFirst(failf(at, "%s is not a recognized built-in function name.", clip(name)))
		return constant{}
	}
	if !c.checkArity(name, len(a.list()), fn.min, fn.max, at) {
		return constant{}
	}
	args := c.compileList(a.list())
	if strings.HasPrefix(upper, "FULLTEXTCONTAINS") {
		c.terms = append(c.terms, fixedTerms(name, args[1:], a.list()[1:], false)...)
	}
	return call{fn, args}
}

// documentID is DOCUMENTID(c): the number in the document's resource id.
type documentID struct{}

func (documentID) eval(f *frame) value {
	doc := f.slots[rootSlot].raw
	if !f.spendWork(len(doc)) {
		return value{}
	}
	n, ok := ridNumber(service.SystemText(doc, "_rid"))
	if !ok {
		return value{}
	}
	return numberValue(float64(n))
}

// compileDocumentID compiles DOCUMENTID, whose argument must be the alias of the container.
func compileDocumentID(c *compiler, name string, list []*expr, at int) node {
	if !c.checkArity(name, len(list), 1, 1, at) {
		return constant{}
	}
	if root, ok := c.compileExpr(list[0]).(path); !ok || root.slot != rootSlot || len(root.steps) > 0 {
		c.failFirst(failf(list[0].Pos.Offset, "The argument of DOCUMENTID is not an item of the container: want the "+
			"alias of the container in FROM, as in DOCUMENTID(c)."))
	}
	return documentID{}
}

// checkArity reports whether a function accepts n arguments. If not, the query fails.
func (c *compiler) checkArity(name string, n, min, max, at int) bool {
	if n < min || max >= 0 && n > max {
		err := failf(at, "The %s function requires %s argument(s).", strings.ToUpper(name), counts(min, max))
		err.End = endOfCall(c.text, at)
		c.failFirst(err)
		return false
	}
	return true
}

// endOfCall returns the end of the call that begins at a place of the text.
func endOfCall(text string, at int) int {
	s := scanner{text: text, at: at}
	for {
		token, err := s.Next()
		if err != nil || token.EOF() {
			return s.at
		}
		if token.Value == ")" && s.depth == 0 {
			return s.at
		}
	}
}

// counts describes the allowed numbers of arguments in words; a max below 0 means no limit.
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

// aggregateCall compiles an aggregate. Its argument is evaluated for each row, but the rest of SELECT once for the
// group. So an aggregate cannot be in the argument of another aggregate.
func (c *compiler) aggregateCall(name string, list []*expr, at int) node {
	if !c.agg.open || c.agg.inside {
		c.failFirst(failf(at,
			"The aggregate function %s is allowed in the SELECT clause only, and not in another aggregate.",
			clip(name)))
		return constant{}
	}
	if !c.checkArity(name, len(list), 1, 1, at) {
		return constant{}
	}
	name = strings.ToUpper(name)
	c.agg.inside = true
	arg := c.compileExpr(list[0])
	c.agg.inside = false
	p := c.agg.plan
	p.aggregates = append(p.aggregates, aggregate{name, arg})
	return aggregated{len(p.aggregates) - 1}
}
