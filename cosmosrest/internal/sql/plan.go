package sql

import "strconv"

// Plans: a compiled SELECT, and the compiler for its clauses.
//
// A plan reads rows from FROM and JOIN, lets WHERE decide, and makes a row of SELECT of
// each; if rows depend on each other (ORDER BY, GROUP BY, DISTINCT, aggregates) they are
// collected first (orderby.go, groupby.go). A plan never changes after it was compiled,
// because queries are cached and shared; all state is in the frame.

// rootSlot is the slot of the document.
const rootSlot = 0

// plan is a compiled SELECT.
type plan struct {
	outer      bool  // that of the query itself, or of a base
	apart      int   // number of a subquery that reads the container by itself; 0 is none
	firstRow   bool  // ... and of which one row is enough
	base       *plan // the subquery of FROM if it has to end before this begins; its rows are those of sources[0]
	sources    []source
	inputs     int // rows of FROM and JOIN, the plain document included
	where      node
	groups     []node
	aggregates []aggregate
	distinct   bool
	columns    bool // SELECT has a list, not VALUE or *
	row        node // what SELECT makes of a row
	order      []orderKey
	top        node // nil: none
	offset     node
	limit      node
}

// source is a FROM or JOIN that binds a slot: to a value, to each element of a value (IN),
// or to each row of a subquery. A subquery without FROM, such as IN (SELECT VALUE c.tags),
// is an expression: IN goes over the elements of its value.
type source struct {
	slot int
	node node
	each bool
	sub  *plan
}

// orderKey is an expression of ORDER BY. The service leaves out documents without the path
// that they are sorted by, unless the indexing policy names the path; here every path
// counts as named, so such documents come first.
type orderKey struct {
	node node
	desc bool
}

// collectsRows reports whether rows depend on each other, so that none is known before the last
// document.
func (p *plan) collectsRows() bool {
	return p.distinct || len(p.order) > 0 || p.grouped() || p.inputs == 0 || p.base != nil
}

// limits reports whether rows are counted, by TOP or OFFSET LIMIT.
func (p *plan) limits() bool { return p.top != nil || p.limit != nil }

// grouped reports whether rows are put into groups; aggregates without GROUP BY make a
// single group.
func (p *plan) grouped() bool { return len(p.groups) > 0 || len(p.aggregates) > 0 }

// compileSubquery compiles a SELECT within another. Its names are visible in it only; its slots
// come after all that are in use, because both are evaluated in one frame.
func (c *compiler) compileSubquery(stmt *selectStmt) *plan {
	names := c.names
	p := c.compileQuery(stmt, c.slots+1)
	c.names = names
	return p
}

// compileExpression compiles a subquery that stands where a value may. In a query without FROM
// there is no document that it could be about, so its own FROM is the container, and it is
// run over all documents before the query itself. With firstRow the caller needs no more
// than one row, which may end that scan early.
func (c *compiler) compileExpression(stmt *selectStmt, firstRow bool) *plan {
	p := c.compileSubquery(stmt)
	if len(c.names) == 0 && !p.withoutFrom() {
		c.apart = append(c.apart, p)
		p.apart = len(c.apart)
		p.firstRow = firstRow && !p.collectsRows() && !p.limits()
	}
	return p
}

// withoutFrom reports whether the rows come from no document.
func (p *plan) withoutFrom() bool {
	for p.base != nil {
		p = p.base
	}
	return p.inputs == 0
}

// compileQuery compiles a SELECT whose slots begin at base. The order matters: FROM binds the
// names, GROUP BY must be known before SELECT is compiled, so that its expressions are
// found there and sealed, and a path that no group covers can be reported only after the
// whole of SELECT was seen.
func (c *compiler) compileQuery(stmt *selectStmt, base int) *plan {
	p := &plan{distinct: stmt.Distinct}
	agg := &aggregation{plan: p, outer: c.agg, base: base, names: len(c.names)}
	c.agg = agg
	c.compileSources(p, stmt.From)
	if stmt.Tail.Where != nil {
		p.where = c.compileExpr(stmt.Tail.Where)
	}
	p.groups = c.compileList(stmt.Tail.Group)
	if len(p.groups) > maxGroups {
		c.failFirst(failf(stmt.Tail.Group[maxGroups].Pos.Offset, "The query has more than %d expressions in GROUP BY.", maxGroups))
	}
	agg.open = true
	c.sealGroups(p, stmt.Tail.Group)
	c.compileSelect(p, stmt)
	agg.open = false
	if p.grouped() && len(agg.strays) > 0 {
		lost := agg.strays[0]
		c.failFirst(failf(lost.at, "Property reference %s is invalid in the select list because it is not contained in either an "+
			"aggregate function or the GROUP BY clause.", clip(lost.text)))
	}
	c.compileTail(p, stmt)
	c.agg = agg.outer
	return p
}

// compileSelect compiles the list after SELECT, with the service's restrictions on *.
func (c *compiler) compileSelect(p *plan, stmt *selectStmt) {
	switch {
	case stmt.List.Value != nil:
		p.row = c.compileExpr(stmt.List.Value)
	case !stmt.List.Star:
		p.columns = true
		p.row = c.compileColumns(stmt.List.Items)
	case p.inputs == 0:
		c.failFirst(failf(stmt.Pos.Offset, "'SELECT *' is not valid if FROM clause is omitted."))
	case p.inputs > 1:
		c.failFirst(failf(stmt.Pos.Offset, "'SELECT *' is only valid with a single input set."))
	default:
		p.row = path{slot: p.starSlot(), memo: -1}
		if len(p.groups) > 0 {
			c.failFirst(failf(stmt.Pos.Offset, "'SELECT *' is not allowed with GROUP BY."))
		}
	}
}

// starSlot is the slot that * stands for: the only source, or else the document.
func (p *plan) starSlot() int {
	if len(p.sources) == 1 {
		return p.sources[0].slot
	}
	return rootSlot
}

// compileColumns compiles a list of columns. A column without a name is $1, $2, …, as in the
// service.
func (c *compiler) compileColumns(list []*item) node {
	var row objectNode
	seen := map[string]bool{}
	unnamed := 0
	for _, item := range list {
		name := item.Alias
		if name == "" {
			name = item.Expr.lastName(c)
		}
		if name == "" {
			unnamed++
			name = "$" + strconv.Itoa(unnamed)
		}
		if seen[name] {
			c.failDuplicate(name, item.Expr.Pos.Offset)
		}
		seen[name] = true
		row.members = append(row.members, newField(name, c.compileExpr(item.Expr)))
	}
	return row
}

// lastName is the name that a path gives its column: that of its last member.
func (e *expr) lastName(c *compiler) string {
	p := e.First.Primary
	if len(e.Rest) > 0 || len(e.First.Signs) > 0 || p.Name == "" {
		return ""
	}
	if len(p.Suffix) == 0 {
		return p.Name
	}
	if step, ok := c.constantStep(p.Suffix[len(p.Suffix)-1]); ok {
		return step.name
	}
	return ""
}

// compileTail compiles ORDER BY and the counts.
func (c *compiler) compileTail(p *plan, stmt *selectStmt) {
	tail := stmt.Tail
	for _, ordered := range tail.Order {
		p.order = append(p.order, orderKey{c.compileExpr(ordered.Expr), ordered.Desc})
	}
	switch {
	case len(tail.Order) > 0 && len(p.groups) > 0:
		c.failFirst(failf(tail.Order[0].Expr.Pos.Offset, "'ORDER BY' is not supported in presence of GROUP BY."))
	case p.grouped():
		p.order = nil // of a single row
	}
	if stmt.Top != nil && tail.Offset != nil {
		c.failFirst(failf(tail.Offset.Pos.Offset, "'TOP' and 'OFFSET LIMIT' are not allowed in one query."))
	}
	p.top, p.offset, p.limit = c.compileCount("TOP", stmt.Top), c.compileCount("OFFSET", tail.Offset), c.compileCount("LIMIT", tail.Limit)
}

// count is a number or parameter of TOP, OFFSET or LIMIT. Its value is checked by Bind,
// because a parameter has none before.
type count struct {
	clause string
	node   node
	at     int
}

// compileCount compiles a count, or returns nil if there is none.
func (c *compiler) compileCount(clause string, o *operand) node {
	if o == nil {
		return nil
	}
	if !isNumeral(o.Value[0]) && o.Value[0] != '@' {
		c.failFirst(failf(o.Pos.Offset, "Syntax error, incorrect syntax near %s.", clip(o.Value)))
		return nil
	}
	n := c.compileScalar(o.Value, o.Pos.Offset)
	c.counts = append(c.counts, count{clause, n, o.Pos.Offset})
	return n
}
