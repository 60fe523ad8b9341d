package sql

// Computed properties: members that no document has, and that a query may name. Each is a query of the form
// SELECT VALUE expression FROM c, which is evaluated when a path of the query begins with the name.

// Computed is a computed property of a container. A Computed never changes, so several goroutines may use it.
type Computed struct {
	name  string
	query *Query
}

// ParseComputed parses the query of a computed property. As in the service, the query must make a single value from
// each document. Errors are *Error.
func ParseComputed(name, text string) (*Computed, error) {
	q, err := Parse(text)
	if err != nil {
		return nil, err
	}
	p, stmt := q.plan, q.statement()
	if stmt == nil || stmt.List.Value == nil || p.inputs != 1 || len(p.sources) > 0 || p.where != nil ||
		p.collectsRows() || p.limits() || len(q.params) > 0 || len(q.apart) > 0 {
		return nil, failf(-1, "The query of the computed property %s is not of the form SELECT VALUE expression FROM c.",
			clip(name))
	}
	if _, err := q.Bind(nil); err != nil {
		return nil, err
	}
	return &Computed{name, q}, nil
}

// Name returns the name of the property.
func (c *Computed) Name() string { return c.name }

// Compute sets the computed properties of the container that the query reads.
func (b *Bound) Compute(all []*Computed) {
	for _, c := range all {
		if b.f.computed == nil {
			b.f.computed = map[string]*computation{}
		}
		b.f.computed[c.name] = &computation{row: c.query.plan.row, f: frame{
			slots: make([]value, c.query.slots), memo: make([]memo, c.query.memos), now: b.f.now, perRow: b.f.perRow,
		}}
	}
}

// computation evaluates a computed property, in a frame of its own.
type computation struct {
	row node
	f   frame
}

// of is the value for a document. The work counts for the query's own frame.
func (c *computation) of(f *frame, doc value) value {
	c.f.slots[rootSlot] = doc
	c.f.round++
	c.f.work, c.f.most, c.f.err = f.work, f.work, nil
	v := c.row.eval(&c.f).decode()
	if c.f.err != nil {
		f.failWith(c.f.err)
		return value{}
	}
	if !f.spendWork(f.work - c.f.work) {
		return value{}
	}
	return v
}
