package sql_test

import "slices"

// shrink makes a pair smaller while it still fails.
func (p *pair) shrink(fails func() bool) {
	for again := true; again; {
		again = p.shrinkDocuments(fails)
		p.q.visit(func(q *query) { again = q.shrink(fails) || again })
		p.q.walk(func(t *term) { again = t.shrink(fails) || again })
	}
}

func (p *pair) shrinkDocuments(fails func() bool) (smaller bool) {
	for i := 0; i < len(p.docs); {
		before := p.docs
		p.docs = slices.Delete(slices.Clone(p.docs), i, i+1)
		if fails() {
			smaller = true
			continue
		}
		p.docs = before
		i++
	}
	return smaller
}

// visit calls what visits the queries in a query, and the query itself.
func (q *query) visit(call func(*query)) {
	call(q)
	for _, s := range q.from {
		if s.sub != nil {
			s.sub.visit(call)
		}
	}
	q.walk(func(t *term) {
		if t.sub != nil {
			call(t.sub)
		}
	})
}

// shrink leaves out what the query can do without.
func (q *query) shrink(fails func() bool) (smaller bool) {
	try := func(change func()) {
		before := *q
		if change(); fails() {
			smaller = true
		} else {
			*q = before
		}
	}
	if q.where != nil {
		try(func() { q.where = nil })
	}
	if q.distinct {
		try(func() { q.distinct = false })
	}
	if q.top >= 0 || q.limit >= 0 {
		try(func() { q.top, q.offset, q.limit = -1, -1, -1 })
	}
	for i := len(q.order) - 1; i >= 0; i-- {
		try(func() { q.order = slices.Delete(slices.Clone(q.order), i, i+1) })
	}
	for i := len(q.columns) - 1; i >= 0 && len(q.columns) > 1; i-- {
		try(func() { q.columns = slices.Delete(slices.Clone(q.columns), i, i+1) })
	}
	for i := len(q.from) - 1; i > 0; i-- {
		try(func() { q.from = slices.Delete(slices.Clone(q.from), i, i+1) })
	}
	return smaller
}

// shrink puts a part of a term, or null, in its place.
func (t *term) shrink(fails func() bool) bool {
	before := *t
	if before.op == "literal" && len(before.text) <= len("null") {
		return false
	}
	smaller := []*term{}
	if t.op != "in" && t.op != "aggregate" {
		smaller = append(smaller, t.kids...)
	}
	if t.op != "name" {
		smaller = append(smaller, &term{op: "literal", text: "null"}, &term{op: "literal", text: "1", value: 1.0})
	}
	for _, s := range smaller {
		*t = *s
		if fails() {
			return true
		}
		*t = before
	}
	if t.group {
		t.group = false
		if fails() {
			return true
		}
		t.group = true
	}
	return false
}
