package sql

import (
	"bytes"
	"slices"
)

// maxHeld bounds what a query keeps until all documents were seen, in bytes.
const maxHeld = 256 << 20

// rowCost is what a kept row costs besides its text.
const rowCost = 200

// collector keeps rows that depend on each other: to sort, fold, tell apart, cut.
type collector struct {
	p      *plan
	rows   []row
	seen   map[string]struct{} // rows of DISTINCT
	groups map[string]*group
	ranks  []*group // in order of first row
	wanted int64    // rows at most, -1 without a bound
	held   int
}

type row struct {
	v    value
	keys []value // of ORDER BY
}

type group struct {
	keys []value
	acc  []accumulator
}

func newCollector(p *plan, f *frame) *collector {
	c := &collector{p: p, seen: map[string]struct{}{}, groups: map[string]*group{}, wanted: -1}
	if offset, limit := p.bounds(f); limit >= 0 {
		c.wanted = offset + limit
	}
	return c
}

// add takes the row that the frame's slots hold.
func (c *collector) add(f *frame) bool {
	if c.p.folds() {
		return c.fold(f)
	}
	r := row{v: c.p.row.eval(f)}
	if r.v.kind == undefined {
		return f.err == nil
	}
	if c.p.distinct && len(c.p.order) == 0 && !c.first(r.v, f) {
		return f.err == nil
	}
	r.v = own(r.v)
	for _, o := range c.p.order {
		key := o.node.eval(f)
		if !f.spend(deepWork * len(key.raw)) {
			return false
		}
		r.keys = append(r.keys, sortKey(key))
	}
	c.held += r.size()
	c.rows = append(c.rows, r)
	c.prune()
	return c.fits(f)
}

// pruneSlack is how many rows more than twice those wanted are kept before the others are dropped.
const pruneSlack = 1000

// prune drops rows that TOP or LIMIT would cut off. Those of DISTINCT may be dropped yet by its own rule, so they stay.
func (c *collector) prune() {
	if c.wanted < 0 || c.p.distinct || int64(len(c.rows)) < 2*c.wanted+pruneSlack {
		return
	}
	slices.SortStableFunc(c.rows, c.compare)
	clear(c.rows[c.wanted:])
	c.rows = c.rows[:c.wanted]
	c.held = 0
	for _, r := range c.rows {
		c.held += r.size()
	}
}

func (c *collector) fits(f *frame) bool {
	if c.held > maxHeld {
		f.fail(failf(-1, "The query needs more than %d MB of memory.", maxHeld>>20))
	}
	return f.err == nil
}

// own copies a value out of the document, whose bytes are the caller's.
func own(v value) value {
	v.raw, v.text = bytes.Clone(v.raw), bytes.Clone(v.text)
	return v
}

// sortKey is a value that is often compared: decoded, and its own.
func sortKey(v value) value {
	switch v.kind {
	case number:
		v.num = v.float()
	case str:
		v.text = bytes.Clone(v.bytes())
	case array, object:
		v.text = appendCanonical(nil, v, 0)
	}
	v.raw, v.decoded = nil, true
	return v
}

func (r row) size() int {
	n := rowCost + len(r.v.raw) + len(r.v.text)
	for _, k := range r.keys {
		n += rowCost + len(k.raw) + len(k.text)
	}
	return n
}

// first tells whether DISTINCT sees the value for the first time.
func (c *collector) first(v value, f *frame) bool {
	key := appendCanonical(nil, v, 0)
	if _, ok := c.seen[string(key)]; ok {
		return false
	}
	c.seen[string(key)] = struct{}{}
	c.held += rowCost + len(key)
	return c.fits(f)
}

func (c *collector) fold(f *frame) bool {
	keys := make([]value, len(c.p.groups))
	var id []byte
	for i, g := range c.p.groups {
		keys[i] = g.eval(f)
		id = append(appendCanonical(id, keys[i], 0), 0)
	}
	g, ok := c.groups[string(id)]
	if !ok {
		for i := range keys {
			keys[i] = own(keys[i])
		}
		c.held += 2*len(id) + rowCost*(1+len(keys)+len(c.p.aggregates))
		g = &group{keys, make([]accumulator, len(c.p.aggregates))}
		c.groups[string(id)] = g
		c.ranks = append(c.ranks, g)
	}
	for i, a := range c.p.aggregates {
		g.acc[i].add(a, a.arg.eval(f))
	}
	return c.fits(f)
}

// finish returns the rows of the result.
func (c *collector) finish(f *frame) []value {
	if c.p.folds() {
		return c.cut(f, c.folded(f))
	}
	if len(c.p.order) > 0 {
		slices.SortStableFunc(c.rows, c.compare)
	}
	out := make([]value, 0, len(c.rows))
	for _, r := range c.rows {
		if !c.p.distinct || len(c.p.order) == 0 || c.first(r.v, f) {
			out = append(out, r.v)
		}
	}
	return c.cut(f, out)
}

func (c *collector) compare(a, b row) int {
	for i, o := range c.p.order {
		d := order(a.keys[i], b.keys[i])
		if d != 0 && o.desc {
			return -d
		}
		if d != 0 {
			return d
		}
	}
	return 0
}

// folded makes a row of each group. Without GROUP BY there is one group, even of no rows.
func (c *collector) folded(f *frame) []value {
	if len(c.p.groups) == 0 && len(c.ranks) == 0 {
		c.ranks = []*group{{acc: make([]accumulator, len(c.p.aggregates))}}
	}
	keys, folded := f.keys, f.folded
	defer func() { f.keys, f.folded = keys, folded }()
	var out []value
	for _, g := range c.ranks {
		f.keys, f.folded = g.keys, make([]value, len(g.acc))
		for i, a := range c.p.aggregates {
			f.folded[i] = g.acc[i].result(a)
		}
		v := c.p.row.eval(f)
		if v.kind != undefined && (!c.p.distinct || c.first(v, f)) {
			out = append(out, v)
		}
	}
	return out
}

// cut applies TOP or OFFSET LIMIT.
func (c *collector) cut(f *frame, rows []value) []value {
	offset, limit := c.p.bounds(f)
	rows = rows[min(offset, int64(len(rows))):]
	if limit >= 0 {
		rows = rows[:min(limit, int64(len(rows)))]
	}
	return rows
}

// bounds are OFFSET, and TOP or LIMIT; limit is -1 without.
func (p *plan) bounds(f *frame) (offset, limit int64) {
	limit = -1
	if p.offset != nil {
		offset = int64(p.offset.eval(f).float())
	}
	if p.limit != nil {
		limit = int64(p.limit.eval(f).float())
	}
	if p.top != nil {
		limit = int64(p.top.eval(f).float())
	}
	return offset, limit
}
