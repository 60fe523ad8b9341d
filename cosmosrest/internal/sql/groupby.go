package sql

import (
	"reflect"
	"slices"
	"strings"
)

// GROUP BY, in the compiler and in the collector.
//
// If an expression of SELECT is also in GROUP BY, the group's key replaces the expression: the expression is sealed.
// A path that is neither in an aggregate nor in a sealed expression has no single value for the group. Such a path is
// called a stray, and is an error of the query.

// maxGroups limits the expressions of GROUP BY.
const maxGroups = 32 // expressions of GROUP BY

// aggregation is the SELECT that is being compiled; outer contains the surrounding SELECTs.
type aggregation struct {
	plan   *plan
	outer  *aggregation
	base   int  // slots from here on belong to this query
	names  int  // names from here on belong to this query
	open   bool // in the SELECT list, where aggregates are allowed
	inside bool // in the argument of an aggregate
	strays []stray

	sealed []node // expressions of GROUP BY with sealed parts; nil for a single expression
}

// stray is a path outside aggregates, with its text for the message.
type stray struct {
	text string
	at   int
}

// strayError returns the error for paths outside aggregates. As in the service, each path has its own error.
func strayError(strays []stray, place string) (first *Error) {
	for _, lost := range strays[:min(len(strays), maxStrays)] {
		err := failf(lost.at, "Property reference %s is invalid in the %s because it is not contained in "+
			"either an aggregate function or the GROUP BY clause.", clip(lost.text), place)
		if err.End = lost.at + len(lost.text); first == nil {
			first = err
		} else {
			first.Others = append(first.Others, err)
		}
	}
	return first
}

// maxStrays limits the errors of one query, because a query may have 512 KB.
const maxStrays = 20

// compileGroupOrder compiles ORDER BY beside GROUP BY, which sorts the groups. Its keys may use what SELECT may use:
// the expressions of GROUP BY, and aggregates.
func (c *compiler) compileGroupOrder(p *plan, list []*orderRef) {
	mark := c.countStrays()
	c.agg.open = true
	p.order = c.compileKeys(list)
	c.agg.open = false
	if lost := c.agg.strays[mark:]; len(lost) > 0 {
		c.failFirst(strayError(lost, "ORDER BY clause"))
	}
}

// countStrays returns the number of strays so far, for sealGroupKey.
func (c *compiler) countStrays() int { return len(c.agg.strays) }

// sealGroupKey replaces an expression that is in GROUP BY, and removes the strays recorded since mark.
// sealGroupKey compares compiled expressions, so spelling and brackets do not matter.
func (c *compiler) sealGroupKey(n node, mark int) node {
	if !c.agg.open || c.agg.inside {
		return n
	}
	for i, key := range c.agg.plan.groups {
		if reflect.DeepEqual(n, key) || c.agg.sealed != nil && c.agg.sealed[i] != nil &&
			reflect.DeepEqual(n, c.agg.sealed[i]) {
			c.agg.strays = c.agg.strays[:mark]
			return groupKey{i}
		}
	}
	for i, key := range c.agg.plan.groups {
		if rest, ok := stepsBelow(key, n); ok {
			c.agg.strays = c.agg.strays[:mark]
			return stepsFrom(groupKey{i}, rest)
		}
	}
	return n
}

// stepsBelow returns the steps from a path in GROUP BY to a longer path.
func stepsBelow(key, longer node) ([]step, bool) {
	short, ok := key.(path)
	long, also := longer.(path)
	if !ok || !also || short.slot != long.slot || len(short.steps) >= len(long.steps) ||
		!slices.Equal(short.steps, long.steps[:len(short.steps)]) {
		return nil, false
	}
	return long.steps[len(short.steps):], true
}

// stepsFrom returns the value at some steps into another value.
func stepsFrom(n node, steps []step) node {
	for _, s := range steps {
		at := textValue(s.name)
		if s.index >= 0 {
			at = numberValue(float64(s.index))
		}
		n = index{n, constant{at}}
	}
	return n
}

// sealGroups handles expressions of GROUP BY that are parts of other such expressions. In `GROUP BY c.a, c.a + 1`,
// the path is sealed before the sum is compared, so the sealed form of the sum must be known too. The shortest
// expressions come first, because a part is shorter than the whole.
func (c *compiler) sealGroups(p *plan, list []*expr) {
	if len(list) < 2 {
		return
	}
	all := p.groups
	p.groups, c.agg.sealed = make([]node, len(all)), make([]node, len(all))
	length := func(i int) int { return list[i].EndPos.Offset - list[i].Pos.Offset }
	shortest := make([]int, len(all))
	for i := range shortest {
		shortest[i] = i
	}
	slices.SortStableFunc(shortest, func(i, j int) int { return length(i) - length(j) })
	for _, i := range shortest {
		mark := c.countStrays()
		c.agg.sealed[i] = c.compileExpr(list[i])
		c.agg.strays = c.agg.strays[:mark]
		p.groups[i] = all[i]
	}
}

// noteStray records a path for the SELECT that has bound its slot.
func (c *compiler) noteStray(n path, name string, steps []*suffix, at int) {
	for agg := c.agg; agg != nil; agg = agg.outer {
		if n.slot < agg.base {
			continue
		}
		if agg.open && !agg.inside {
			agg.strays = append(agg.strays, stray{pathText(name, steps), at})
		}
		return
	}
}

// pathText returns a path for messages.
func pathText(name string, steps []*suffix) string {
	var text strings.Builder
	text.WriteString(name)
	for _, s := range steps {
		if s.Field != "" {
			text.WriteString("." + s.Field)
		}
	}
	return text.String()
}

// group contains the keys of its rows, and an accumulator for each aggregate.
type group struct {
	keys []value
	acc  []accumulator
}

// addToGroup adds the row in the frame to its group. Groups are distinguished by the canonical text of their keys;
// undefined counts as a value.
func (c *collector) addToGroup(f *frame) bool {
	keys := make([]value, len(c.p.groups))
	var id []byte
	for i, key := range c.p.groups {
		keys[i] = key.eval(f)
		id = append(appendCanonical(id, keys[i], 0), 0)
	}
	g, ok := c.groups[string(id)]
	if !ok {
		for i := range keys {
			keys[i] = own(keys[i])
		}
		c.held += 2*len(id) + rowCost*(1+len(keys)+len(c.p.aggregates))
		g = &group{keys, make([]accumulator, len(c.p.aggregates))}
		c.groups[string(id)] = g
		c.ranks = append(c.ranks, g)
	}
	for i, agg := range c.p.aggregates {
		before := g.acc[i].held
		g.acc[i].add(agg, agg.arg.eval(f))
		c.held += g.acc[i].held - before
	}
	return c.checkFits(f)
}

// groupRows makes a row of each group, with the keys that sort it. Without GROUP BY there is exactly 1 group, even if
// there are no rows: then COUNT is 0.
func (c *collector) groupRows(f *frame) []*row {
	if len(c.p.groups) == 0 && len(c.ranks) == 0 {
		c.ranks = []*group{{acc: make([]accumulator, len(c.p.aggregates))}}
	}
	// A subquery shares the frame with the outer query, which may be making rows of groups at this moment.
	keys, aggregates := f.keys, f.aggregates
	defer func() { f.keys, f.aggregates = keys, aggregates }()
	var out []*row
	for _, g := range c.ranks {
		f.keys, f.aggregates = g.keys, make([]value, len(g.acc))
		for i, agg := range c.p.aggregates {
			f.aggregates[i] = g.acc[i].result(agg)
		}
		r := &row{v: c.p.row.eval(f), keys: c.p.groupPlace(f)}
		if !f.leavesOut(r.v) {
			out = append(out, r)
		}
	}
	return out
}

// groupPlace returns the sort keys of the group in the frame: those of ORDER BY, then those of GROUP BY, so two groups
// never have equal keys.
func (p *plan) groupPlace(f *frame) (keys []value) {
	for _, o := range p.order {
		keys = append(keys, sortKey(o.node.eval(f)))
	}
	for _, key := range f.keys {
		keys = append(keys, sortKey(key))
	}
	return keys
}
