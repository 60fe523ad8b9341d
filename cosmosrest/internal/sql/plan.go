package sql

import "strconv"

// Plans: a compiled SELECT, and the compiler for its clauses.
//
// A plan reads rows from FROM and JOIN, filters them by WHERE, and makes a row of SELECT from each. If rows depend on
// each other (ORDER BY, GROUP BY, DISTINCT, aggregates), they are collected first (orderby.go, groupby.go). A plan
// never changes after its compilation, because queries are cached and shared; all state is in the frame.

// rootSlot is the slot of the document.
const rootSlot = 0

// plan is a compiled SELECT.
type plan struct {
	outer      bool  // plan of the query itself, or of a base
	apart      int   // number of a subquery that reads the container itself; 0 for other plans
	firstRow   bool  // a single row of this subquery is enough
	base       *plan // the subquery of FROM, if that must end before this plan begins; its rows are those of sources[0]
	sources    []source
	inputs     int // number of sources in FROM and JOIN, including the plain document
	where      node
	groups     []node
	aggregates []aggregate
	distinct   bool
	columns    bool // SELECT has a list, not VALUE or *
	row        node // makes the result from a row
	order      []orderKey
	rank       *ranking // of ORDER BY RANK; nil if there is none
	top        node     // nil if there is none
	offset     node
	limit      node
}

// source is a FROM or JOIN that binds a slot: to a value, to each element of a value (IN), or to each row of a
// subquery. A subquery without FROM, such as IN (SELECT VALUE c.tags), is an expression: IN visits the elements of
// its value.
type source struct {
	slot int
	node node
	each bool
	sub  *plan
}

// orderKey is an expression of ORDER BY. The service leaves out documents that lack the sort path, unless the
// indexing policy names the path. Here every path counts as named, so such documents come first.
type orderKey struct {
	node node
	desc bool

	required bool // rows without the key are left out
}

// collectsRows reports whether rows depend on each other, so no row is known before the last document.
func (p *plan) collectsRows() bool {
	return p.distinct || len(p.order) > 0 || p.grouped() || p.inputs == 0 || p.base != nil
}

// limits reports whether rows are limited, by TOP or OFFSET LIMIT.
func (p *plan) limits() bool { return p.top != nil || p.limit != nil }

// grouped reports whether rows are grouped; aggregates without GROUP BY make a single group.
func (p *plan) grouped() bool { return len(p.groups) > 0 || len(p.aggregates) > 0 }

// compileSubquery compiles a SELECT within another. Its names are visible only there. Its slots come after all slots
// in use, because both queries are evaluated in the same frame.
func (c *compiler) compileSubquery(stmt *selectStmt) *plan {
	names := c.names
	p := c.compileQuery(stmt, c.slots+1)
	c.names = names
	return p
}

// compileExpression compiles a subquery used as a value. If the outer query has no FROM, there is no document
// for the subquery. So the subquery's own FROM is the container, and the subquery runs over all documents before the
// outer query. If firstRow is set, the caller needs only a single row, which may end that scan early.
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

// compileQuery compiles a SELECT whose slots begin at base. The order of the steps matters: FROM binds the names.
// GROUP BY must be compiled before SELECT, so its expressions are found there and sealed. A path that no group covers
// can be reported only after the whole SELECT was compiled.
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
		c.failFirst(failf(stmt.Tail.Group[maxGroups].Pos.Offset, "The query has more than %d expressions in GROUP BY.",
			maxGroups))
	}
	agg.open = true
	c.sealGroups(p, stmt.Tail.Group)
	c.compileSelect(p, stmt)
	agg.open = false
	if p.grouped() && len(agg.strays) > 0 {
		c.failFirst(strayError(agg.strays, "select list"))
	}
	c.compileTail(p, stmt)
	c.agg = agg.outer
	return p
}

// compileSelect compiles the list after SELECT, with the service's restrictions of *.
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
			err := failf(stmt.List.Pos.Offset, "'SELECT *' is not allowed with GROUP BY.")
			err.End = err.At + len("*")
			c.failFirst(err)
		}
	}
}

// starSlot returns the slot that * means: the only source or, without exactly one source, the document.
func (p *plan) starSlot() int {
	if len(p.sources) == 1 {
		return p.sources[0].slot
	}
	return rootSlot
}

// compileColumns compiles a list of columns. As in the service, columns without names are $1, $2, …
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

// lastName returns the column name of a path: the name of its last member.
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
	if len(p.groups) > 0 {
		c.compileGroupOrder(p, tail.Order)
	} else {
		p.order = c.compileKeys(tail.Order)
	}
	if tail.Rank != nil {
		compileRank(c, p, tail.Rank)
	}
	if p.grouped() && len(p.groups) == 0 {
		p.order = nil // the result is a single row
	}
	if stmt.Top != nil && tail.Offset != nil {
		c.failFirst(failf(tail.Offset.Pos.Offset, "'TOP' and 'OFFSET LIMIT' are not allowed in one query."))
	}
	p.top, p.offset, p.limit = c.compileCount("TOP", stmt.Top), c.compileCount("OFFSET", tail.Offset),
		c.compileCount("LIMIT", tail.Limit)
}

// compileKeys compiles the keys of ORDER BY.
func (c *compiler) compileKeys(list []*orderRef) (keys []orderKey) {
	for _, ordered := range list {
		keys = append(keys, compileKey(c, ordered))
	}
	return keys
}

// compileKey compiles a key of ORDER BY.
func compileKey(c *compiler, ordered *orderRef) orderKey {
	n := c.compileExpr(ordered.Expr)
	if v, ok := n.(vectorDistance); ok {
		return v.sortKey(c, ordered)
	}
	return orderKey{node: n, desc: ordered.Desc, required: isScore(n)}
}

// count is a number or parameter of TOP, OFFSET or LIMIT. Bind checks its value, because a parameter has no value
// before.
type count struct {
	clause string
	node   node
	at     int
	text   string
}

// compileCount compiles a count; nil means that there is none.
func (c *compiler) compileCount(clause string, o *operand) node {
	if o == nil {
		return nil
	}
	if !isNumeral(o.Value[0]) && o.Value[0] != '@' {
		c.failFirst(failf(o.Pos.Offset, "Syntax error, incorrect syntax near %s.", clip(o.Value)))
		return nil
	}
	n := c.compileScalar(o.Value, o.Pos.Offset)
	c.counts = append(c.counts, count{clause, n, o.Pos.Offset, o.Value})
	return n
}
