package sql

import (
	"bytes"
	"slices"
)

// Rows that depend on each other, for ORDER BY, DISTINCT and groups, are held until the last document was read. Their
// size is counted and limited, because any client may send such a query.

// maxHeld limits the bytes that a query holds before its last document. A query that exceeds the limit ends with an
// error, because all requests share the memory.
const maxHeld = 160 << 20

// rowCost is about the bytes of a held row in addition to its text: the structs, their slices and their entry in a
// map.
const rowCost = 200

// collector holds rows that depend on each other, to sort, group, compare (for DISTINCT) or limit them.
type collector struct {
	p      *plan
	resume resume
	rows   []*row         // pointers, because moving many large rows would stop the process while the slice grows
	seen   map[string]int // rows of DISTINCT, by canonical text: index in rows
	groups map[string]*group
	ranks  []*group // in the order of their first rows
	offset int64    // number of rows to skip
	limit  int64    // largest number of rows; -1 means no limit
	held   int

	doc  uint64 // number of the present document
	next int    // number of rows so far, for rows without a document

	documents  int              // of ORDER BY RANK
	statistics []rankStatistics // of its components
	parts      []rankPart       // of the present document
}

// row is a row of SELECT with its place: the sort keys, the document, and the number among the rows of that document.
type row struct {
	v    value
	keys []value // of ORDER BY or GROUP BY
	doc  uint64
	at   int // among the rows of its document

	parts []rankPart // of ORDER BY RANK
}

// newCollector returns the collector of a plan. TOP, OFFSET and LIMIT may come from the frame's parameters.
func newCollector(p *plan, f *frame) *collector {
	c := &collector{p: p, seen: map[string]int{}, groups: map[string]*group{}}
	c.offset, c.limit = p.rowBounds(f)
	return c
}

// resumed makes the collector continue after earlier pages, which have already skipped the rows of OFFSET, and
// returned some of the rows of TOP or LIMIT.
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

// addRow adds the row in the frame's slots, and reports whether to go on.
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
	if f.leavesOut(r.v) {
		return f.err == nil
	}
	if c.p.distinct && len(c.p.order) == 0 {
		if old, ok := c.isFirst(r.v, f); !ok {
			if old != nil && r.doc < old.doc { // the first place of equal rows counts
				old.doc, old.at = r.doc, r.at
			}
			return f.err == nil
		}
	}
	if c.p.rank != nil {
		r.parts = c.rowParts(f)
		return c.holdRow(r, f)
	}
	for _, o := range c.p.order {
		key := o.node.eval(f)
		if o.required && key.kind == undefined {
			return f.err == nil
		}
		if !f.spendWork(deepWork * len(key.raw)) {
			return false
		}
		r.keys = append(r.keys, sortKey(key))
	}
	// With DISTINCT, a row of an earlier page must stay for now, because that row removes equal rows from this page.
	if !c.p.distinct && !c.resume.showsRow(c.p, r) {
		return f.err == nil
	}
	return c.holdRow(r, f)
}

// holdRow keeps a row, and reports whether to go on.
func (c *collector) holdRow(r *row, f *frame) bool {
	r.v = own(r.v)
	c.held += r.size()
	c.rows = append(c.rows, r)
	c.pruneRows()
	return c.checkFits(f)
}

// pruneSlack is how many rows, in addition to twice the wanted number, are held before the surplus is dropped, so
// many rows share the cost of sorting.
const pruneSlack = 1000

// pruneRows drops rows that TOP or LIMIT would cut off. With DISTINCT all rows stay, because any row may still turn
// out to be a duplicate. With ORDER BY RANK the order is not known yet.
func (c *collector) pruneRows() {
	wanted := c.offset + c.limit
	if c.limit < 0 || c.p.distinct || c.p.rank != nil || int64(len(c.rows)) < 2*wanted+pruneSlack {
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

// checkFits fails if too many bytes are held, and reports whether to go on.
func (c *collector) checkFits(f *frame) bool {
	if c.held > maxHeld {
		f.failWith(failf(-1, "The query needs more than %d MB of memory.", maxHeld>>20))
	}
	return f.err == nil
}

// own copies a value out of the document, because the document's bytes belong to the caller.
func own(v value) value {
	v.raw, v.text = bytes.Clone(v.raw), bytes.Clone(v.text)
	return v
}

// sortKey returns a value in the form for repeated comparisons: decoded, and independent of the document. An array or
// object is reduced to its hash, because its order depends only on the hash.
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

// size returns about how many bytes a row holds.
func (r *row) size() int {
	n := rowCost + len(r.v.raw) + len(r.v.text)
	for _, key := range r.keys {
		n += rowCost + len(key.raw) + len(key.text)
	}
	for _, part := range r.parts {
		n += valueSize + 8*len(part.counts)
	}
	return n
}

// isFirst reports whether the value is new for DISTINCT, and records a new value as that of the next row. If the
// value is not new, isFirst returns its row.
func (c *collector) isFirst(v value, f *frame) (old *row, ok bool) {
	key := appendCanonical(nil, v, 0)
	if i, seen := c.seen[string(key)]; seen {
		return c.rows[i], false
	}
	c.seen[string(key)] = len(c.rows)
	c.held += rowCost + len(key)
	return nil, c.checkFits(f)
}

// finishRows returns the rows of the result. DISTINCT after ORDER BY keeps the first of equal rows in that order, so
// DISTINCT can be applied only now.
func (c *collector) finishRows(f *frame) []*row {
	if c.p.grouped() {
		c.rows = c.groupRows(f)
	}
	if c.p.rank != nil {
		c.rankRows(f)
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

// sortRows sorts the rows by place. Rows without a document keep their order.
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

// rowBounds returns OFFSET, and TOP or LIMIT; limit is -1 if there is neither.
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
