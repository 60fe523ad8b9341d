package sql_test

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// Kinds of terms that a place wants, and mostly gets.
const (
	wantAny  = "*"
	wantBool = "b"
	wantNum  = "n"
	wantText = "s"
	wantList = "a"
	wantObj  = "o"
)

// term draws an expression.
func (d *draw) term(want string, depth int) *term {
	if want == wantAny || d.chance(8) {
		want = pick(d, wantBool, wantNum, wantNum, wantText, wantText, wantList, wantObj)
	}
	t := d.ofKind(want, depth)
	t.group = d.chance(5)
	return t
}

func (d *draw) ofKind(want string, depth int) *term {
	if depth <= 0 || d.chance(25) {
		return d.leaf(want)
	}
	switch n := d.IntN(20); {
	case n == 0:
		return &term{op: "choice", kids: []*term{
			d.term(wantBool, depth-1), d.term(want, depth-1),
			d.term(want, depth-1),
		}}
	case n == 1:
		return infixed("??", d.term(want, depth-1), d.term(want, depth-1))
	case n == 2 && !d.flat && d.deep < 2:
		return &term{op: "scalar", sub: d.valued(want, depth-1)}
	case n < 9:
		return d.function(want, depth-1)
	}
	switch want {
	case wantBool:
		return d.condition(depth)
	case wantNum:
		return d.numeric(depth)
	case wantText:
		return infixed("||", d.term(wantText, depth-1), d.term(wantText, depth-1))
	case wantList:
		if !d.flat && d.deep < 2 && d.chance(60) {
			return &term{op: "all", sub: d.query(depth-1, false)}
		}
		return &term{op: "array", kids: d.terms(d.IntN(4), wantAny, depth-1)}
	}
	t := &term{op: "object", names: pick(d, []string{}, []string{"p"}, []string{"p", "q"}, []string{`"`, "é x", "n"})}
	t.kids = d.terms(len(t.names), wantAny, depth-1)
	return t
}

func infixed(op string, l, r *term) *term { return &term{op: "infix", text: op, kids: []*term{l, r}} }

func (d *draw) terms(n int, want string, depth int) (all []*term) {
	for range n {
		all = append(all, d.term(want, depth))
	}
	return all
}

func (d *draw) leaf(want string) *term {
	if d.chance(65) {
		switch want {
		case wantBool:
			return d.path("b", "b", "b", "m", "none")
		case wantNum:
			return d.path("n", "n", "n", "m", "k")
		case wantText:
			return d.path("s", "s", "id", "k", "m", "é x")
		case wantList:
			return d.path("t", "l", "kids", "value")
		}
		return d.path("o", "o", "value")
	}
	switch want {
	case wantBool:
		return d.literal(pick(d, "true", "false", "true", "false", "null", "undefined"))
	case wantNum:
		return d.literal(d.numeral())
	case wantText:
		return d.literal(d.text())
	case wantList:
		return d.literal(d.list(d.scalar))
	}
	return d.literal(d.object(1, "p", "q"))
}

func (d *draw) numeric(depth int) *term {
	if d.chance(20) {
		return &term{op: "prefix", text: pick(d, "-", "-", "+", "~"), kids: d.terms(1, wantNum, depth-1)}
	}
	op := pick(d, "+", "+", "-", "-", "*", "*", "/", "%", "&", "|", "^", "<<", ">>", ">>>")
	if strings.ContainsAny(op, "<>") && d.chance(50) {
		return infixed(op, d.term(wantNum, depth-1), d.literal(pick(d, "0", "1", "4", "31", "32", "33")))
	}
	return infixed(op, d.term(wantNum, depth-1), d.term(wantNum, depth-1))
}

func (d *draw) condition(depth int) *term {
	kind := pick(d, wantNum, wantNum, wantText, wantText, wantBool, wantAny, wantList, wantObj)
	switch d.IntN(12) {
	case 0, 1, 2, 3:
		op := pick(d, "=", "=", "=", "!=", "<>", "<", "<=", ">", ">=")
		return infixed(op, d.term(kind, depth-1), d.term(kind, depth-1))
	case 4, 5:
		return infixed("AND", d.term(wantBool, depth-1), d.term(wantBool, depth-1))
	case 6, 7:
		return infixed("OR", d.term(wantBool, depth-1), d.term(wantBool, depth-1))
	case 8:
		return &term{op: "in", not: d.chance(30), kids: d.terms(2+d.IntN(3), kind, depth-1)}
	case 9:
		return &term{op: "between", not: d.chance(30), kids: d.terms(3, kind, depth-1)}
	case 10:
		if !d.flat && d.deep < 2 {
			return &term{op: "exists", sub: d.query(depth-1, false)}
		}
		return d.like(depth)
	}
	if d.chance(50) {
		return d.like(depth)
	}
	return &term{op: "prefix", text: "NOT", kids: d.terms(1, wantBool, depth-1)}
}

func (d *draw) like(depth int) *term {
	t := &term{op: "like", not: d.chance(30), kids: []*term{d.term(wantText, depth-1)}}
	if d.chance(60) {
		var text strings.Builder
		for range d.IntN(6) {
			text.WriteString(pick(d, "a", "a", "b", "c"))
		}
		t.kids[0] = d.literal(quote(text.String(), 0))
	}
	var pattern strings.Builder
	for range d.IntN(6) {
		pattern.WriteString(pick(d, "%", "%", "_", "a", "b", "c", "B", "é", "[ab]", "[a-c]", "[^a-b]", "[%]", "[[]",
			" ", "]"))
	}
	if d.chance(20) {
		escape := pick(d, "!", "\\", "^")
		pattern.WriteString(escape + pick(d, "%", "_", "a", escape) + pick(d, "", "%"))
		t.kids = append(t.kids, d.literal(quote(pattern.String(), 0)), d.literal(quote(escape, 0)))
		return t
	}
	t.kids = append(t.kids, d.literal(quote(pattern.String(), 0)))
	return t
}

// functions by what they return, with what they are given mostly.
var functions = map[string][][2]string{
	wantBool: {
		{"IS_DEFINED", "*"},
		{"is_null", "*"},
		{"IS_BOOL", "*"},
		{"IS_NUMBER", "*"},
		{"IS_STRING", "*"},
		{"IS_ARRAY", "*"},
		{"IS_OBJECT", "*"},
		{"IS_PRIMITIVE", "*"},
		{"IS_INTEGER", "n"},
		{"IS_FINITE_NUMBER", "n"},
		{"CONTAINS", "ss"},
		{"Contains", "ssb"},
		{"STARTSWITH", "ss"},
		{"STARTSWITH", "ssb"},
		{"ENDSWITH", "ss"},
		{"EndsWith", "ssb"},
		{"STRINGEQUALS", "ssb"},
		{"StringEquals", "ss"},
		{"ARRAY_CONTAINS", "a*"},
		{"ARRAY_CONTAINS", "an"},
		{"ARRAY_CONTAINS", "aob"},
		{"ARRAY_CONTAINS_ANY", "a**"},
		{"ARRAY_CONTAINS_ALL", "a**"},
		{"StringToBoolean", "s"},
		{"IIF", "bbb"},
		{"CHOOSE", "nbb"},
	},
	wantNum: {
		{"ABS", "n"},
		{"CEILING", "n"},
		{"FLOOR", "n"},
		{"ROUND", "n"},
		{"TRUNC", "n"},
		{"SIGN", "n"},
		{"SQRT", "n"},
		{"SQUARE", "n"},
		{"POWER", "nn"},
		{"NumberBin", "nn"},
		{"LENGTH", "s"},
		{"INDEX_OF", "ss"},
		{"INDEX_OF", "ssn"},
		{"ARRAY_LENGTH", "a"},
		{"StringToNumber", "s"},
		{"IIF", "bnn"},
		{"CHOOSE", "nnn"},
	},
	wantText: {
		{"LOWER", "s"},
		{"upper", "s"},
		{"TRIM", "s"},
		{"LTRIM", "s"},
		{"RTRIM", "s"},
		{"REVERSE", "s"},
		{"CONCAT", "ss"},
		{"CONCAT", "sss"},
		{"LEFT", "sn"},
		{"RIGHT", "sn"},
		{"SUBSTRING", "snn"},
		{"REPLACE", "sss"},
		{"ToString", "*"},
		{"REPLICATE", "sn"},
		{"StringJoin", "as"},
		{"IIF", "bss"},
		{"CHOOSE", "nss"},
	},
	wantList: {
		{"ARRAY_CONCAT", "aa"},
		{"ARRAY_CONCAT", "aaa"},
		{"ARRAY_SLICE", "an"},
		{"ARRAY_SLICE", "ann"},
		{"SetUnion", "aa"},
		{"SetIntersect", "aa"},
		{"SETDIFFERENCE", "aa"},
		{"StringSplit", "ss"},
		{"StringToArray", "s"},
		{"ObjectToArray", "o"},
		{"IIF", "baa"},
	},
	wantObj: {{"StringToObject", "s"}, {"IIF", "boo"}, {"CHOOSE", "noo"}},
}

// unlisted are the second evaluations that are not in functions, each with its fewest and its most arguments. So random
// queries call a function that has no line above, too.
var unlisted = sync.OnceValue(func() (all [][2]string) {
	listed := map[string]bool{}
	for _, some := range functions {
		for _, f := range some {
			listed[strings.ToUpper(f[0])] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(builtins)) {
		if listed[name] {
			continue
		}
		kinds := strings.NewReplacer("?", "*", "+", "").Replace(builtins[name].kinds)
		fewest, _, _ := strings.Cut(kinds, "/")
		all = append(all, [2]string{name, fewest}, [2]string{name, strings.ReplaceAll(kinds, "/", "")})
	}
	return all
})

func (d *draw) function(want string, depth int) *term {
	f := pick(d, functions[want]...)
	if others := unlisted(); len(others) > 0 && d.chance(10) {
		f = pick(d, others...)
	}
	t := &term{op: "call", text: f[0]}
	for i, kind := range f[1] {
		switch {
		case kind == 'n' && i > 0 || f[0] == "CHOOSE" && i == 0: // a place or a length
			t.kids = append(t.kids, pick(d, d.literal(pick(d, "0", "1", "2", "3", "-1", "1.5")),
				d.term(wantNum, depth-1)))
		default:
			t.kids = append(t.kids, d.term(string(kind), depth))
		}
	}
	return t
}

// valued is a subquery of at most one row, mostly.
func (d *draw) valued(want string, depth int) *query {
	q := d.query(depth, false)
	if q.folds() && len(q.groups) == 0 {
		return q
	}
	return d.aggregated(&query{from: q.from, where: q.where, top: -1, offset: -1, limit: -1}, want)
}

func (d *draw) aggregated(q *query, want string) *query {
	q.single = d.within(q).aggregate(want)
	return q
}

// aggregate draws an aggregate of the rows that are in scope.
func (d *draw) aggregate(want string) *term {
	name := pick(d, "COUNT", "COUNT", "SUM", "AVG", "MIN", "MAX", "COUNTIF", "MAKELIST", "MAKESET")
	switch {
	case name == "COUNTIF":
		want = wantBool
	case d.chance(70) && name != "COUNT":
		want = wantNum
	}
	flat := *d
	flat.flat = true
	return &term{op: "aggregate", text: name, kids: flat.terms(1, want, 1)}
}

// within draws terms that see the rows of a query.
func (d *draw) within(q *query) *draw {
	inner := *d
	inner.scope = slices.Clone(d.scope)
	for _, s := range q.from {
		inner.scope = append(inner.scope, s.alias)
	}
	return &inner
}

// query draws a SELECT, or a subquery that sees what is in scope.
func (d *draw) query(depth int, outermost bool) *query {
	if !outermost {
		sub := *d
		sub.deep++
		d = &sub
	}
	q := &query{top: -1, offset: -1, limit: -1}
	d.sources(q, depth, outermost)
	in := d.within(q)
	if d.chance(40) {
		q.where = in.term(wantBool, depth)
	}
	switch n := d.IntN(10); {
	case n == 0 && len(q.from) > 0:
		in.grouped(q)
	case n == 1:
		in.columnsOf(q, in.aggregates(1+d.IntN(3)))
	case n == 2 && len(q.from) == 1:
		q.star = true
	case n < 7:
		q.single = in.term(wantAny, depth)
	default:
		in.columnsOf(q, in.terms(1+d.IntN(3), wantAny, depth))
	}
	q.distinct = d.chance(15)
	if !q.folds() && len(q.from) > 0 && d.chance(30) {
		in.sorted(q)
	}
	d.counts(q)
	return q
}

func (d *draw) counts(q *query) {
	switch d.IntN(8) {
	case 0:
		q.top = d.IntN(4)
	case 1:
		q.offset, q.limit = d.IntN(3), d.IntN(5)
	}
}

// sources draws FROM and JOIN.
func (d *draw) sources(q *query, depth int, outermost bool) {
	switch {
	case d.chance(5):
		return
	case len(d.scope) == 0:
		q.from = append(q.from, d.container(depth, outermost))
	default:
		q.from = append(q.from, d.source(q, depth))
	}
	for d.chance(20) {
		in := d.within(q)
		q.from = append(q.from, in.source(q, depth))
	}
}

// container is FROM over the container.
func (d *draw) container(depth int, outermost bool) source {
	root := &term{op: "name", text: pick(d, "c", "c", "root", "docs")}
	switch d.IntN(10) {
	case 0:
		return source{alias: pick(d, "t", "kids", "o"), bare: true, path: root}.below(d)
	case 1:
		return source{alias: d.name("x"), each: true, path: member(d, root, pick(d, "t", "kids", "value"))}
	case 2, 3:
		if depth > 0 && outermost {
			return source{alias: d.name("x"), each: d.chance(20), sub: d.query(depth-1, false)}
		}
	case 4, 5, 6:
		return source{alias: "c", path: root}
	}
	return source{alias: root.text, bare: true, path: root}
}

// below is a source without a name of its own.
func (s source) below(d *draw) source {
	s.path = member(d, s.path, s.alias)
	return s
}

// source is FROM in a subquery, or a JOIN.
func (d *draw) source(q *query, depth int) source {
	s := source{alias: d.name("x"), each: true}
	if d.chance(15) && d.deep > 0 && !slices.ContainsFunc(q.from, func(s source) bool { return s.alias == "c" }) {
		s.alias = "c" // as one outside is called
	}
	switch n := d.IntN(10); {
	case n == 0 && depth > 0 && d.deep < 2:
		s.sub, s.each = d.query(depth-1, false), d.chance(50)
	case n == 1:
		s.sub = &query{single: d.term(wantList, 1), top: -1, offset: -1, limit: -1}
	case n == 2:
		s.each = false
		s.path = d.simplePath("o", "n", "s", "none", "t")
	default:
		s.path = d.simplePath("t", "t", "l", "kids", "kids", "value")
	}
	return s
}

// simplePath has nothing to compute, as FROM wants it.
func (d *draw) simplePath(names ...string) *term {
	t := member(d, &term{op: "name", text: d.scope[d.IntN(len(d.scope))]}, pick(d, names...))
	if d.chance(10) {
		t = &term{op: "element", kids: []*term{t, {op: "literal", text: "0", value: 0.0}}}
	}
	return t
}

// columnsOf makes the terms a SELECT list, or VALUE if it is one.
func (d *draw) columnsOf(q *query, terms []*term) {
	if len(terms) == 1 && d.chance(50) {
		q.single = terms[0]
		return
	}
	for _, t := range terms {
		q.columns = append(q.columns, column{term: t, alias: d.name("v")})
		col := &q.columns[len(q.columns)-1]
		if last, named := t.last(); named {
			col.plain = !slices.Contains(q.names()[:len(q.columns)-1], last)
		} else {
			col.plain = !t.group && t.op != "element" && d.chance(50)
		}
	}
}

// last is the name at the end of a path.
func (t *term) last() (string, bool) {
	switch {
	case !t.isPath():
	case t.op == "name":
		return t.text, true
	case t.op == "member":
		name, _ := t.kids[1].value.(string)
		return name, true
	}
	return "", false
}

func (t *term) isPath() bool {
	return !t.group && (t.op == "name" || (t.op == "member" || t.op == "element") && t.kids[0].isPath())
}

func (d *draw) aggregates(n int) (all []*term) {
	for range n {
		t := d.aggregate(wantAny)
		switch d.IntN(8) {
		case 0:
			t = infixed(pick(d, "+", "=", ">", "??"), t, d.literal(d.scalar()))
		case 1:
			t = &term{op: "array", kids: []*term{t, d.aggregate(wantNum)}}
		}
		all = append(all, t)
	}
	return all
}

// grouped has GROUP BY; what is selected are its expressions, what is made of them, and aggregates.
func (d *draw) grouped(q *query) {
	flat := *d
	flat.flat = true
	for range 1 + d.IntN(2) {
		g := flat.path("k", "k", "n", "m", "s", "b", "none")
		if d.chance(30) {
			g = flat.term(wantAny, 1)
		}
		q.groups = append(q.groups, g)
	}
	var terms []*term
	for _, g := range q.groups {
		switch d.IntN(4) {
		case 0:
			terms = append(terms, infixed(pick(d, "=", "??", "+"), g, d.literal(d.scalar())))
		case 1:
		default:
			terms = append(terms, g)
		}
	}
	terms = append(terms, flat.aggregates(d.IntN(3))...)
	if len(terms) == 0 {
		terms = append(terms, q.groups[0])
	}
	d.columnsOf(q, terms)
	for d.chance(40) {
		o := pick(d, q.groups...)
		switch d.IntN(4) {
		case 0:
			o = infixed(pick(d, "??", "+"), o, d.literal(d.scalar()))
		case 1:
			o = flat.aggregate(wantAny)
		}
		q.order = append(q.order, sorting{o, d.chance(40)})
	}
}

func (d *draw) sorted(q *query) {
	flat := *d
	flat.flat = true
	for range 1 + d.IntN(2) {
		o := flat.path("n", "k", "s", "m", "b", "id", "none", "t")
		if d.chance(20) {
			o = flat.term(wantAny, 1)
		}
		q.order = append(q.order, sorting{o, d.chance(40)})
	}
}
