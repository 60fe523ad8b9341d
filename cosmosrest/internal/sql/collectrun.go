package sql

import (
	"bytes"
	"encoding/json"
)

// Run collects the documents of a query that does not stream.
type Run struct {
	f     *frame
	plans []*plan // the innermost subquery of FROM first, the query last
	c     *collector
}

// NewRun begins a run. A Bound has at most one at a time.
func (b *Bound) NewRun() *Run {
	plans := []*plan{b.q.plan}
	for plans[0].base != nil {
		plans = append([]*plan{plans[0].base}, plans...)
	}
	return &Run{&b.f, plans, newCollector(plans[0], &b.f)}
}

// Add takes a document, whose bytes remain the caller's. An *Error means that the query cannot be run to its end; more than
// 256 MB to keep is one.
func (r *Run) Add(doc []byte) error {
	if r.plans[0].inputs == 0 {
		return nil // without FROM, there is one row, of no document
	}
	r.f.begin(doc)
	r.plans[0].each(r.f, func() bool { return r.c.add(r.f) })
	return r.f.failure()
}

// Held is how much the run keeps, about, in bytes.
func (r *Run) Held() int { return r.c.held }

// Finish returns the rows of the result. The run is over.
func (r *Run) Finish() ([]json.RawMessage, error) {
	r.f.begin(nil)
	if r.plans[0].inputs == 0 {
		r.plans[0].each(r.f, func() bool { return r.c.add(r.f) })
	}
	values := r.c.finish(r.f)
	for _, p := range r.plans[1:] {
		values = p.over(r.f, values)
	}
	if err := r.f.failure(); err != nil {
		return nil, err
	}
	rows := make([]json.RawMessage, len(values))
	for i, v := range values {
		rows[i] = bytes.Clone(v.json())
	}
	return rows, nil
}

// over runs the plan over the rows of its base.
func (p *plan) over(f *frame, rows []value) []value {
	c := newCollector(p, f)
	for _, v := range rows {
		f.slots[p.sources[0].slot] = v
		f.work = f.most
		if !p.from(f, 1, func() bool { return c.add(f) }) {
			return nil
		}
	}
	return c.finish(f)
}
