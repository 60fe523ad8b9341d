package sql

import (
	"bytes"
	"slices"
)

// Rows that depend on each other are held until the last document was seen: for ORDER BY,
// DISTINCT and groups. The amount held is counted and bounded, because every client may
// send such a query.

// maxHeld bounds the bytes that a query holds before its last document. A query beyond it
// is ended, because the memory is that of all requests.
const maxHeld = 160 << 20

// rowCost is about the bytes of a held row besides its text: the structs, their slices and
// their entry in a map.
const rowCost = 200

// collector holds rows that depend on each other: to sort, group, compare for DISTINCT, or
// cut them.
type collector struct {
	p      *plan
	resume resume
	rows   []*row         // not the rows themselves: to make room for many would stop the process while they are moved
	seen   map[string]int // rows of DISTINCT, by index
	groups map[string]*group
	ranks  []*group // in order of first row
	offset int64    // rows to leave out
	limit  int64    // rows at most, -1 without a bound
	held   int

	doc  uint64 // number of the document
	next int    // how many rows came, without a document
}

// row is a row of SELECT with its place: the keys by which it is sorted, the document it
// comes from, and its number among the rows of that document.
type row struct {
	v    value
	keys []value // of ORDER BY or GROUP BY
	doc  uint64
	at   int // among the rows of its document
}

// newCollector makes the collector of a plan, whose counts come from the frame's
// parameters.
func newCollector(p *plan, f *frame) *collector {
	c := &collector{p: p, seen: map[string]int{}, groups: map[string]*group{}}
	c.offset, c.limit = p.rowBounds(f)
	return c
}

// resumed has the collector go on after earlier pages. Those have passed over the rows of
// OFFSET, and taken some of the rows of TOP or LIMIT.
func (c *collector) resumed(r resume) *collector {
	c.resume = r
	if r.after == nil {
		return c
	}
	c.offset = 0
	if c.limit >= 0 {
		c.limit = max(c.limit-r.taken, 0)
	}
	return c
}

// addRow takes the row that the frame's slots hold, and reports whether to go on.
func (c *collector) addRow(f *frame) bool {
	if c.p.firstRow && len(c.rows) > 0 {
		return false
	}
	if c.p.grouped() {
		return c.addToGroup(f)
	}
	r := &row{v: c.p.row.eval(f), doc: c.doc, at: c.next}
	if c.p.outer {
		r.at = f.combination
	}
	c.next++
	if r.v.kind == undefined {
		return f.err == nil
	}
	if c.p.distinct && len(c.p.order) == 0 {
		if old, ok := c.isFirst(r.v, f); !ok {
			if old != nil && r.doc < old.doc { // whose place is the first
				old.doc, old.at = r.doc, r.at
			}
			return f.err == nil
		}
	}
	for _, o := range c.p.order {
		key := o.node.eval(f)
		if !f.spendWork(deepWork * len(key.raw)) {
			return false
		}
		r.keys = append(r.keys, sortKey(key))
	}
	// With DISTINCT a row of an earlier page stays for now: it keeps its equals away
	// from this page.
	if !c.p.distinct && !c.resume.showsRow(c.p, r) {
		return f.err == nil
	}
	r.v = own(r.v)
	c.held += r.size()
	c.rows = append(c.rows, r)
	c.pruneRows()
	return c.checkFits(f)
}

// pruneSlack is how many rows are held beyond twice the wanted number before the surplus is
// dropped, so that the cost of sorting is shared by many rows.
const pruneSlack = 1000

// pruneRows drops rows that TOP or LIMIT would cut off. With DISTINCT any row may still drop
// out because of another, so all stay.
func (c *collector) pruneRows() {
	wanted := c.offset + c.limit
	if c.limit < 0 || c.p.distinct || int64(len(c.rows)) < 2*wanted+pruneSlack {
		return
	}
	c.sortRows()
	clear(c.rows[wanted:])
	c.rows = c.rows[:wanted]
	c.held = 0
	for _, r := range c.rows {
		c.held += r.size()
	}
}

// checkFits fails if too much is held, and reports whether to go on.
func (c *collector) checkFits(f *frame) bool {
	if c.held > maxHeld {
		f.failWith(failf(-1, "The query needs more than %d MB of memory.", maxHeld>>20))
	}
	return f.err == nil
}

// own copies a value out of the document, whose bytes are the caller's.
func own(v value) value {
	v.raw, v.text = bytes.Clone(v.raw), bytes.Clone(v.text)
	return v
}

// sortKey is a value in the form in which it is often compared: decoded, and independent of
// the document. An array or object is reduced to its hash, which is all that its order
// depends on.
func sortKey(v value) value {
	switch v.kind {
	case number:
		v.num = v.float()
	case str:
		v.text = bytes.Clone(v.bytes())
	case array, object:
		v.text = distinctHash(v).bytes()
	}
	v.raw, v.decoded = nil, true
	return v
}

// size is about how many bytes a row holds.
func (r *row) size() int {
	n := rowCost + len(r.v.raw) + len(r.v.text)
	for _, key := range r.keys {
		n += rowCost + len(key.raw) + len(key.text)
	}
	return n
}

// isFirst reports whether DISTINCT sees the value for the first time, as that of the next
// row; else it returns the row that has it.
func (c *collector) isFirst(v value, f *frame) (old *row, ok bool) {
	key := appendCanonical(nil, v, 0)
	if i, seen := c.seen[string(key)]; seen {
		return c.rows[i], false
	}
	c.seen[string(key)] = len(c.rows)
	c.held += rowCost + len(key)
	return nil, c.checkFits(f)
}

// finishRows returns the rows of the result. DISTINCT after ORDER BY keeps the first of equal
// rows in that order, so it can be applied only now.
func (c *collector) finishRows(f *frame) []*row {
	if c.p.grouped() {
		c.rows = c.groupRows(f)
	}
	c.sortRows()
	if c.p.distinct && (c.p.grouped() || len(c.p.order) > 0) {
		sorted := c.rows
		c.rows = c.rows[:0]
		for _, r := range sorted {
			if _, ok := c.isFirst(r.v, f); ok {
				c.rows = append(c.rows, r)
			}
		}
	}
	return c.cutRows(slices.DeleteFunc(c.rows, func(r *row) bool { return !c.resume.showsRow(c.p, r) }))
}

// sortRows orders the rows by place; rows of no document stay in the order in which they came.
func (c *collector) sortRows() {
	slices.SortStableFunc(c.rows, c.p.compareRows)
}

// cutRows applies TOP or OFFSET LIMIT.
func (c *collector) cutRows(rows []*row) []*row {
	rows = rows[min(c.offset, int64(len(rows))):]
	if c.limit >= 0 {
		rows = rows[:min(c.limit, int64(len(rows)))]
	}
	return rows
}

// rowBounds are OFFSET, and TOP or LIMIT; limit is -1 without either.
func (p *plan) rowBounds(f *frame) (offset, limit int64) {
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
