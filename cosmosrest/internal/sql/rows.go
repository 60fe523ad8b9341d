package sql

import "github.com/millrace/changefeed/internal/cosmosdb/rawjson"

// The rows of a plan: nested loops over FROM and JOIN, in the order of the text, with WHERE inside.

// eachRow visits every row of FROM and JOIN that passes WHERE, until visit returns false. eachRow returns false if
// stopped by visit or by an error of the frame.
func (p *plan) eachRow(f *frame, visit func() bool) bool { return p.from(f, 0, visit) }

// from is the loop over source i and the sources after it. Rows are counted before WHERE, so the number of a row does
// not depend on the filter, because continuations contain the number.
func (p *plan) from(f *frame, i int, visit func() bool) bool {
	if !f.spendWork(f.perRow) {
		return false
	}
	if i == len(p.sources) {
		if p.outer {
			f.combination++
		}
		if p.where != nil && p.where.eval(f).kind != isTrue {
			return f.err == nil
		}
		return visit() && f.err == nil
	}
	s := &p.sources[i]
	next := func(v value) bool {
		f.slots[s.slot] = v
		return p.from(f, i+1, visit)
	}
	if s.sub != nil {
		return s.sub.eachResult(f, func(v value) bool { return s.bind(f, v, next) })
	}
	return s.bind(f, s.node.eval(f), next)
}

// bind visits the values that the source makes from a value: the value itself, or each of its elements. If the value
// is undefined, or if IN is applied to anything but an array, there are no values, and the document makes no rows.
func (s *source) bind(f *frame, v value, next func(value) bool) bool {
	switch {
	case v.kind == undefined, s.each && v.kind != array:
		return f.err == nil
	case !s.each:
		return next(v)
	}
	if !f.spendWork(len(v.raw)) {
		return false
	}
	for raw := range rawjson.Elements(v.raw) {
		if !next(rawValue(raw)) {
			return false
		}
	}
	return true
}

// eachResult visits the rows of the whole query as SELECT makes them, until visit returns false. Only subqueries use
// eachResult. If a subquery reads the container itself, its rows have been computed before.
func (p *plan) eachResult(f *frame, visit func(value) bool) bool {
	if p.apart > 0 {
		for _, v := range f.apart[p.apart-1] {
			if !visit(v) {
				return false
			}
		}
		return f.err == nil
	}
	if p.collectsRows() || p.limits() {
		return p.eachCollected(f, visit)
	}
	return p.eachRow(f, func() bool {
		v := p.row.eval(f)
		return v.kind == undefined || visit(v)
	})
}

// eachCollected visits the rows of a subquery that sorts, groups, compares or limits them.
func (p *plan) eachCollected(f *frame, visit func(value) bool) bool {
	c := newCollector(p, f)
	if !p.eachRow(f, func() bool { return c.addRow(f) }) {
		return false
	}
	for _, r := range c.finishRows(f) {
		if !visit(r.v) {
			return false
		}
	}
	return f.err == nil
}
