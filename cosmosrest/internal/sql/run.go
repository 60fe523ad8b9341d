package sql

import "bytes"

// Runs: queries whose rows depend on each other. A run receives document by document, and is finished at the end.
//
// A query may consist of several plans. Subqueries without a document of their own read the container separately,
// before the query, from the same documents. Subqueries in FROM form a chain, in which the rows of a plan are the
// input of the next.

// Run collects the documents of a query that does not stream.
type Run struct {
	f     *frame
	apart []*collection // of the subqueries that read the container themselves
	query *collection
}

// collection collects the rows of a chain of plans.
type collection struct {
	f     *frame
	plans []*plan // the innermost subquery of FROM first, the query last
	c     *collector

	resume resume
}

// NewRun begins a run. A Bound may have only a single run at a time.
func (b *Bound) NewRun() *Run {
	r := &Run{f: &b.f, query: newCollection(b.q.plan, &b.f, b.resume)}
	for _, p := range b.q.apart {
		r.apart = append(r.apart, newCollection(p, &b.f, resume{}))
	}
	b.f.apart = make([][]value, len(r.apart))
	return r
}

// newCollection builds the chain of a plan and the plans in its FROM, the innermost first.
func newCollection(p *plan, f *frame, from resume) *collection {
	held := &collection{f: f, plans: []*plan{p}, resume: from}
	for held.plans[0].base != nil {
		held.plans = append([]*plan{held.plans[0].base}, held.plans...)
	}
	held.c = held.collector(0)
	return held
}

// collector returns the collector of a plan. Only the last plan continues where earlier pages ended. The plans before
// it must see all their rows again, because their result depends on each row.
func (s *collection) collector(i int) *collector {
	c := newCollector(s.plans[i], s.f)
	if i == len(s.plans)-1 {
		c.resumed(s.resume)
	}
	return c
}

// Add adds a document, whose bytes still belong to the caller. An *Error means that the query cannot be run to its
// end, for example because the run holds more than 160 MB.
func (r *Run) Add(doc []byte) error { return r.AddRest(doc, 0) }

// AddRest adds the rest of a document, after the first done combinations of the rows of FROM and JOIN.
func (r *Run) AddRest(doc []byte, done int) error {
	for _, s := range r.apart {
		if err := s.feedDocument(doc, 0); err != nil {
			return err
		}
	}
	return r.query.feedDocument(doc, done)
}

// feedDocument feeds a document to the innermost plan.
func (s *collection) feedDocument(doc []byte, done int) error {
	if s.plans[0].inputs == 0 {
		return nil // without FROM, there is a single row, of no document
	}
	s.f.beginDocument(doc)
	s.c.doc = DocumentNumber(doc)
	if s.plans[0].rank != nil {
		s.c.noteRanked(s.f)
	}
	s.plans[0].eachRow(s.f, func() bool { return s.f.combination <= done || s.c.addRow(s.f) })
	return s.f.endError()
}

// Held returns about how many bytes the run holds.
func (r *Run) Held() int {
	held := r.query.c.held
	for _, s := range r.apart {
		held += s.c.held
	}
	return held
}

// Finish returns the rows of the result in the order of their places, and ends the run. The run has then released the
// values of its rows, and kept only their places.
func (r *Run) Finish() ([]Row, error) {
	for i, s := range r.apart {
		for _, own := range s.finish() {
			r.f.apart[i] = append(r.f.apart[i], own.v)
		}
		if err := r.f.endError(); err != nil {
			return nil, err
		}
	}
	found := r.query.finish()
	if err := r.f.endError(); err != nil {
		return nil, err
	}
	rows := make([]Row, len(found))
	for i, own := range found {
		rows[i].JSON, own.v = bytes.Clone(own.v.json()), value{}
		rows[i].row = own
	}
	return rows, nil
}

// finish returns the rows of the last plan in the chain.
func (s *collection) finish() []*row {
	s.f.beginDocument(nil)
	if s.plans[0].inputs == 0 {
		s.plans[0].eachRow(s.f, func() bool { return s.c.addRow(s.f) })
	}
	found := s.c.finishRows(s.f)
	for i := range s.plans[1:] {
		found = s.runOver(i+1, found)
	}
	return found
}

// runOver runs plan i over the rows of the previous plan. Like a document, each row has its own allowance of work.
func (s *collection) runOver(i int, rows []*row) []*row {
	p, f, c := s.plans[i], s.f, s.collector(i)
	f.combination = 0
	from := &p.sources[0]
	for _, own := range rows {
		f.work = f.most
		next := func(v value) bool {
			f.slots[from.slot] = v
			return p.from(f, 1, func() bool { return c.addRow(f) })
		}
		if !from.bind(f, own.v, next) {
			return nil
		}
	}
	return c.finishRows(f)
}
