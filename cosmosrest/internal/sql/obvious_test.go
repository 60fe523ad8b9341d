package sql_test

import (
	"cmp"
	"slices"
	"strconv"
)

// The obvious evaluator: what the documentation says of a query, over decoded values, one step after another, however
// slow. It shares nothing with the engine, not even the syntax: a query is made as a tree, which is written as text for
// the engine and evaluated as it stands here.
//
// A value is nil for null, bool, float64, string, []any, map[string]any, or undefined.

type nothing struct{}

var undefined = nothing{}

// term is an expression.
type term struct {
	// literal, parameter, name, member, element, prefix, infix, choice, in, between, like, array, object, call,
	// aggregate, exists, all, scalar
	op    string
	text  string // how it is written: a literal, a name, an operator
	value any    // of a literal or parameter
	names []string
	kids  []*term
	sub   *query
	not   bool
	group bool // in brackets that nobody needs
}

// query is a SELECT. A count of -1 is none.
type query struct {
	distinct           bool
	top, offset, limit int
	star               bool
	single             *term // of SELECT VALUE
	columns            []column
	from               []source
	where              *term
	groups             []*term
	order              []sorting
}

type column struct {
	term  *term
	alias string
	plain bool // no alias: the name follows from the term
}

// source is FROM or a JOIN.
type source struct {
	alias string
	each  bool // IN: the elements
	path  *term
	sub   *query
	bare  bool // the alias follows from the path
}

type sorting struct {
	term *term
	desc bool
}

// scope is what names stand for in a row. rows are those of a group, for aggregates.
type scope struct {
	name  string
	value any
	up    *scope
	rows  []*scope
	born  int // number of the document, 0 for none
}

func (s *scope) find(name string) (any, bool) {
	for ; s != nil; s = s.up {
		if s.name == name {
			return s.value, true
		}
	}
	return undefined, false
}

// document is one of the container.
type document struct {
	text  string
	value any
	born  int // in the order of creation, 0 if its text does not say
}

// container evaluates queries over documents.
type container struct {
	docs  []document
	loose bool // the order of the rows is not documented: a hash has it
}

// unclear ends the evaluation of what no documentation tells.
type unclear struct{ why string }

// rows are those of a query; up is the row in which a subquery stands.
func (c *container) rows(q *query, up *scope) []any {
	found := c.combine(q.from, []*scope{{up: up}})
	found = slices.DeleteFunc(found, func(s *scope) bool { return q.where != nil && c.eval(q.where, s) != true })
	if q.folds() {
		found = c.group(q, found, up)
	} else if q.distinct || len(q.order) > 0 || up != nil {
		c.sort(q, found)
	}
	var out []any
	for _, s := range found {
		if row := c.project(q, s); row != undefined && !(q.distinct && slices.ContainsFunc(out, func(v any) bool {
			return same(v, row)
		})) {
			out = append(out, row)
		}
	}
	return c.cut(q, out)
}

func (q *query) folds() bool {
	return len(q.groups) > 0 || slices.ContainsFunc(q.selected(), (*term).aggregates)
}

// streams tells whether each document's rows are its own.
func (q *query) streams() bool {
	counted := q.top >= 0 || q.limit >= 0
	return !q.distinct && len(q.order) == 0 && !counted && !q.folds() && (q.from[0].sub == nil ||
		q.from[0].sub.streams())
}

func (q *query) selected() (all []*term) {
	if q.single != nil {
		all = append(all, q.single)
	}
	for _, col := range q.columns {
		all = append(all, col.term)
	}
	return all
}

func (t *term) aggregates() bool {
	return t.op == "aggregate" || slices.ContainsFunc(t.kids, (*term).aggregates)
}

// combine makes every combination of the sources' values.
func (c *container) combine(sources []source, so []*scope) []*scope {
	for _, src := range sources {
		var more []*scope
		for _, s := range so {
			for _, v := range c.values(src, s) {
				more = append(more, &scope{name: src.alias, value: v.value, up: s, born: max(s.born, v.born)})
			}
		}
		so = more
	}
	return so
}

// values are those that a source binds.
func (c *container) values(src source, s *scope) (out []document) {
	for _, d := range c.wholes(src, s) {
		items, isArray := d.value.([]any)
		switch {
		case src.rows() || !src.each && d.value != undefined:
			out = append(out, d)
		case src.each && isArray:
			for _, v := range items {
				out = append(out, document{value: v, born: d.born})
			}
		}
	}
	return out
}

// rows tells of IN before a subquery over rows: it goes over these. Before one without FROM it goes over its value.
func (s source) rows() bool {
	return s.sub != nil && s.each && (len(s.sub.from) > 0 || s.sub.single == nil)
}

// wholes are what a source has, before IN takes it apart.
func (c *container) wholes(src source, s *scope) (out []document) {
	switch {
	case src.sub == nil:
		return c.paths(src.path, s)
	case src.sub.reads(s) && src.sub.streams():
		for _, d := range c.docs {
			one := container{docs: []document{d}}
			for _, v := range one.rows(src.sub, s) {
				out = append(out, document{value: v, born: d.born})
			}
		}
		return out
	}
	for _, v := range c.rows(src.sub, s) {
		out = append(out, document{value: v})
	}
	return out
}

// reads tells whether a subquery's FROM is the container.
func (q *query) reads(s *scope) bool {
	if len(q.from) == 0 {
		return false
	}
	if q.from[0].sub != nil {
		return q.from[0].sub.reads(s)
	}
	_, known := s.find(q.from[0].path.root())
	return !known
}

func (t *term) root() string {
	for t.op != "name" {
		t = t.kids[0]
	}
	return t.text
}

// paths are the values of a path of FROM: one of a row, or one of each document.
func (c *container) paths(path *term, s *scope) (out []document) {
	if _, known := s.find(path.root()); known {
		return []document{{value: c.eval(path, s)}}
	}
	for _, d := range c.docs {
		v := c.eval(path, &scope{name: path.root(), value: d.value, up: s})
		out = append(out, document{value: v, born: d.born})
	}
	return out
}

// group makes one row of each group, which come in the order of their keys.
func (c *container) group(q *query, found []*scope, up *scope) []*scope {
	if len(q.groups) == 0 {
		return []*scope{{up: up, rows: append([]*scope{}, found...)}}
	}
	keysOf := func(s *scope) (keys []any) {
		for _, g := range q.groups {
			keys = append(keys, c.eval(g, s))
		}
		return keys
	}
	var groups []*scope
	for _, s := range found {
		keys := keysOf(s)
		i := slices.IndexFunc(groups, func(g *scope) bool { return slices.EqualFunc(keysOf(g.rows[0]), keys, same) })
		if i < 0 {
			groups = append(groups, &scope{up: s, rows: []*scope{s}})
			continue
		}
		groups[i].rows = append(groups[i].rows, s)
	}
	slices.SortStableFunc(groups, func(a, b *scope) int { return slices.CompareFunc(keysOf(a), keysOf(b), c.rank) })
	c.sort(q, groups)
	return groups
}

// sort puts rows into order; those that sort the same come in the order in which their documents were created.
func (c *container) sort(q *query, found []*scope) {
	slices.SortStableFunc(found, func(a, b *scope) int {
		for _, o := range q.order {
			d := c.rank(c.eval(o.term, a), c.eval(o.term, b))
			if o.desc {
				d = -d
			}
			if d != 0 {
				return d
			}
		}
		if len(q.order) > 0 && q.order[0].desc {
			return cmp.Compare(b.born, a.born)
		}
		return cmp.Compare(a.born, b.born)
	})
}

// project makes the row of SELECT.
func (c *container) project(q *query, s *scope) any {
	switch {
	case q.star:
		v, _ := s.find(q.from[0].alias)
		return v
	case q.single != nil:
		return c.eval(q.single, s)
	}
	row := map[string]any{}
	for i, name := range q.names() {
		if v := c.eval(q.columns[i].term, s); v != undefined {
			row[name] = v
		}
	}
	return row
}

// names are the columns': by AS, by the end of a path, or $1, $2, …
func (q *query) names() (names []string) {
	unnamed := 0
	for _, col := range q.columns {
		last, named := col.term.last()
		switch {
		case !col.plain:
			names = append(names, col.alias)
		case named:
			names = append(names, last)
		default:
			unnamed++
			names = append(names, "$"+strconv.Itoa(unnamed))
		}
	}
	return names
}

func (c *container) cut(q *query, rows []any) []any {
	if (q.top >= 0 || q.limit >= 0) && c.loose {
		panic(unclear{"a cut among hashes"})
	}
	if q.offset > 0 {
		rows = rows[min(q.offset, len(rows)):]
	}
	for _, most := range []int{q.top, q.limit} {
		if most >= 0 {
			rows = rows[:min(most, len(rows))]
		}
	}
	return rows
}

// rank is the order of ORDER BY: by type, then by value. That of two arrays or two objects is a hash's.
func (c *container) rank(a, b any) int {
	if d := cmp.Compare(typeOf(a), typeOf(b)); d != 0 {
		return d
	}
	switch x := a.(type) {
	case float64:
		return cmp.Compare(x+0, b.(float64)+0)
	case string:
		return cmp.Compare(x, b.(string))
	case []any, map[string]any:
		c.loose = c.loose || !same(a, b)
	}
	return 0
}

// Types in the order of ORDER BY.
const (
	isUndefined = iota
	isNull
	isFalse
	isTrue
	isNumber
	isString
	isArray
	isObject
)

func typeOf(v any) int {
	switch v := v.(type) {
	case nil:
		return isNull
	case bool:
		if v {
			return isTrue
		}
		return isFalse
	case float64:
		return isNumber
	case string:
		return isString
	case []any:
		return isArray
	case map[string]any:
		return isObject
	}
	return isUndefined
}

// same tells whether two values are equal, arrays and objects in depth.
func same(a, b any) bool {
	if typeOf(a) != typeOf(b) {
		return false
	}
	switch x := a.(type) {
	case []any:
		return slices.EqualFunc(x, b.([]any), same)
	case map[string]any:
		y := b.(map[string]any)
		for k, v := range x {
			if w, ok := y[k]; !ok || !same(v, w) {
				return false
			}
		}
		return len(x) == len(y)
	}
	return a == b
}
