package sql

import "bytes"

// Run collects the documents of a query that does not stream.
type Run struct {
	f     *frame
	plans []*plan // the innermost subquery of FROM first, the query last
	c     *collector

	resume resume
}

// NewRun begins a run. A Bound has at most one at a time.
func (b *Bound) NewRun() *Run {
	plans := []*plan{b.q.plan}
	for plans[0].base != nil {
		plans = append([]*plan{plans[0].base}, plans...)
	}
	r := &Run{f: &b.f, plans: plans, resume: b.resume}
	r.c = r.collector(0)
	return r
}

// collector is that of a plan; the rows of the last one begin where those of the pages before ended.
func (r *Run) collector(i int) *collector {
	c := newCollector(r.plans[i], r.f)
	if i == len(r.plans)-1 {
		c.resumed(r.resume)
	}
	return c
}

// Add takes a document, whose bytes remain the caller's. An *Error means that the query cannot be run to its end; more than
// 256 MB to keep is one.
func (r *Run) Add(doc []byte) error { return r.AddRest(doc, 0) }

// AddRest takes what of a document comes after so many combinations of the rows of FROM and JOIN.
func (r *Run) AddRest(doc []byte, done int) error {
	if r.plans[0].inputs == 0 {
		return nil // without FROM, there is one row, of no document
	}
	r.f.begin(doc)
	r.c.doc = documentNumber(doc)
	r.plans[0].each(r.f, func() bool { return r.f.combination <= done || r.c.add(r.f) })
	return r.f.failure()
}

// Held is how much the run keeps, about, in bytes.
func (r *Run) Held() int { return r.c.held }

// Finish returns the rows of the result, in the order of their places. The run is over.
func (r *Run) Finish() ([]Row, error) {
	r.f.begin(nil)
	if r.plans[0].inputs == 0 {
		r.plans[0].each(r.f, func() bool { return r.c.add(r.f) })
	}
	found := r.c.finish(r.f)
	for i := range r.plans[1:] {
		found = r.over(i+1, found)
	}
	if err := r.f.failure(); err != nil {
		return nil, err
	}
	rows := make([]Row, len(found))
	for i, own := range found {
		rows[i].JSON, own.v = bytes.Clone(own.v.json()), value{}
		rows[i].row = own
	}
	return rows, nil
}

// over runs a plan over the rows of its base.
func (r *Run) over(i int, rows []row) []row {
	p, f, c := r.plans[i], r.f, r.collector(i)
	f.combination = 0
	for _, own := range rows {
		f.slots[p.sources[0].slot] = own.v
		f.work = f.most
		if !p.from(f, 1, func() bool { return c.add(f) }) {
			return nil
		}
	}
	return c.finish(f)
}
