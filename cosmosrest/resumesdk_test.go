package cosmosrest

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cosmosrest/internal/sql"
	"github.com/millrace/changefeed/feed"
)

// What SDKs do with the plan of a query over several ranges: they ask each range for its
// rows, merge them, and go on later, by a state that they give to their user, with new
// requests for each range.

// sdkPlan is what of a plan a client goes by.
type sdkPlan struct {
	Info struct {
		Top, Offset, Limit *int
		RewrittenQuery     string
		DistinctType       string
		GroupByExpressions []string
		OrderByExpressions []string
	} `json:"queryInfo"`
}

func (p *pager) plan(t *testing.T, query string) sdkPlan {
	t.Helper()
	var plan sdkPlan
	can := planned("Aggregate,Distinct,MultipleOrderBy,OffsetAndLimit,OrderBy,Top,GroupBy,NonValueAggregate")
	p.ask(t, can, query).want(t, 200).into(t, &plan)
	if plan.Info.RewrittenQuery == "" {
		plan.Info.RewrittenQuery = query
	}
	return plan
}

// cut is what TOP and OFFSET LIMIT leave of merged rows.
func (plan sdkPlan) cut(rows []string) []string {
	if n := plan.Info.Top; n != nil {
		rows = rows[:min(*n, len(rows))]
	}
	if n := plan.Info.Limit; n != nil {
		rows = rows[min(*plan.Info.Offset, len(rows)):]
		rows = rows[:min(*n, len(rows))]
	}
	return rows
}

// sdkRow is a row of a rewritten query.
type sdkRow struct {
	text    string
	rid     string
	doc     uint64
	values  string // of a resume filter
	class   int    // rows of one class sort the same; lower ones come first
	payload string
	raw     json.RawMessage // the first sort value
}

// sdkCursor is a client's way through one range.
type sdkCursor struct {
	rng   feed.Range
	token string // of the page that comes next
	sdkFilter

	begun   bool
	start   string // token that the present page came by
	atStart sdkFilter
	page    []sdkRow
	taken   int     // rows of it that were emitted or dropped
	last    *sdkRow // that was emitted

	seen    sdkRow // of the last document, with those of earlier states:
	seenAll int    // how many rows that sort like it
}

// sdkFilter is how a request goes on besides its token.
type sdkFilter struct {
	where  string            // in the place for a filter
	resume *sql.ResumeFilter // and what it says:
	class  int
	doc    uint64
	skip   int  // rows of its document to drop, which were emitted
	drops  bool // all before them, too, as the JavaScript SDK does
}

// sdk is a client on its way through a query with ORDER BY.
type sdk struct {
	*pager
	query    string // rewritten
	desc     bool   // the first order
	sortedBy string
	filters  bool // the JavaScript SDK's filters suit what it sorts by
	classes  map[string]int
	cursors  []*sdkCursor
	emitted  []sdkRow
	bound    int // how many rows the client wants; -1 for all
	mixed    int // class of which a part of the rows has come when a range was split; -1 is none
	newest   *sdkCursor
}

// sorted pages a query with ORDER BY as SDKs do.
func (p *pager) sorted(t *testing.T, q wild) {
	plan := p.plan(t, q.text())
	whole := p.plan(t, q.unlimited().text()).Info.RewrittenQuery
	c := &sdk{
		pager: p, query: plan.Info.RewrittenQuery, desc: q.order[0].desc, mixed: -1, sortedBy: q.order[0].expr,
		classes: map[string]int{},
	}
	c.filters = len(q.order) == 1 && slices.Contains([]string{"c.b", "c.id", "c.b % 2"}, q.order[0].expr)
	c.cursors = []*sdkCursor{{rng: feed.FullRange(), sdkFilter: sdkFilter{where: "true"}}}
	var want []string
	for _, text := range p.all(t, nil, strings.Replace(whole, filterPlaceholder, "true", 1)) {
		row := c.parse(t, text)
		if n := len(want); n == 0 || want[n-1] != row.values {
			c.classes[row.values] = len(c.classes)
		}
		want = append(want, row.values)
	}
	if c.bound = max(q.top, q.limit+max(q.offset, 0)); q.distinct {
		c.bound = -1 // the client counts those that it tells apart
	}
	for p.most = 3*len(want) + 40; c.page(t); p.most-- {
		if p.most == 0 {
			t.Fatalf("%s: the query has no end", c.query)
		}
		p.move(t, 15)
	}
	c.judge(t, q, plan, p.all(t, nil, strings.Replace(whole, filterPlaceholder, "true", 1)))
}

const filterPlaceholder = "{documentdb-formattableorderbyquery-filter}"

// judge compares what was emitted with all rows.
func (c *sdk) judge(t *testing.T, q wild, plan sdkPlan, whole []string) {
	t.Helper()
	var all, payloads []string
	for i, row := range c.emitted {
		if all = append(all, row.text); i > 0 && c.emitted[i-1].class > row.class {
			t.Fatalf("%s: row %s comes after %s", c.query, short([]string{row.text}),
				short([]string{c.emitted[i-1].text}))
		}
		if !q.distinct || !slices.Contains(payloads, row.payload) {
			payloads = append(payloads, row.payload)
		}
	}
	if c.bound < 0 {
		sameSet(t, c.query, all, whole)
	} else {
		subset(t, c.query, all, whole, min(c.bound, len(whole)))
	}
	if got, want := plan.cut(payloads), c.all(t, nil, q.text()); len(got) != len(want) {
		t.Fatalf("%s: %d rows, want %d", q.text(), len(got), len(want))
	}
}

// parse reads a row of the rewritten query.
func (c *sdk) parse(t *testing.T, text string) sdkRow {
	t.Helper()
	var row struct {
		RID          string `json:"_rid"`
		OrderByItems []struct{ Item json.RawMessage }
		Payload      json.RawMessage
	}
	if err := json.Unmarshal([]byte(text), &row); err != nil {
		t.Fatal(err)
	}
	r := sdkRow{text: text, rid: row.RID, payload: string(row.Payload), raw: row.OrderByItems[0].Item}
	rid, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(row.RID, "-", "/"))
	if err != nil || len(rid) != 16 {
		t.Fatalf("%s: row %s: want a resource id", c.query, text)
	}
	r.doc = binary.LittleEndian.Uint64(rid[8:])
	var values []json.RawMessage
	for _, it := range row.OrderByItems {
		values = append(values, sql.ResumeValue(it.Item))
	}
	b, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	r.values = string(b)
	r.class = c.classes[r.values]
	return r
}

// page emits a page, and goes on from what a user would have stored, or with the same
// iterator. It tells whether there may be more.
func (c *sdk) page(t *testing.T) bool {
	if c.newest != nil && c.chance(60) {
		c.store()
	}
	for n := pick(c.pager, 1, 1, 2, 3, 7, 40); n > 0; n-- {
		best := c.next(t)
		if best == nil || len(c.emitted) == c.bound {
			return false
		}
		row := best.page[best.taken]
		best.take(row)
		best.last, c.newest = &row, best
		c.emitted = append(c.emitted, row)
		if c.mixed != row.class {
			c.mixed = -1
		}
	}
	return true
}

// take counts a row that is emitted or dropped.
func (k *sdkCursor) take(row sdkRow) {
	k.taken++
	if k.seen.doc != row.doc || k.seen.class != row.class {
		k.seen, k.seenAll = row, 0
	}
	k.seenAll++
}

// next is the cursor whose row comes first, of equal ones the leftmost.
func (c *sdk) next(t *testing.T) (best *sdkCursor) {
	for i := 0; i < len(c.cursors); i++ {
		for k := c.cursors[i]; k.taken == len(k.page) && (!k.begun || k.token != ""); k = c.cursors[i] {
			c.fill(t, i)
		}
		k := c.cursors[i]
		if k.taken < len(k.page) && (best == nil || k.page[k.taken].class < best.page[best.taken].class) {
			best = k
		}
	}
	return best
}

// fill fetches a page of a cursor. One whose range was split becomes several.
func (c *sdk) fill(t *testing.T, i int) {
	t.Helper()
	k := c.cursors[i]
	headers, ranges := c.route(t, k.rng)
	if len(ranges) > 1 {
		var children []*sdkCursor
		for _, r := range ranges {
			child := *k
			child.rng = r
			children = append(children, &child)
		}
		c.cursors = slices.Replace(c.cursors, i, i+1, children...)
		if len(c.emitted) > 0 {
			c.mixed = c.emitted[len(c.emitted)-1].class
		}
		return
	}
	headers["x-ms-max-item-count"], headers["x-ms-continuation"] = c.size(), k.token
	resume := ""
	if k.resume != nil && (!k.begun || c.chance(50)) { // in later pages the token is enough
		b, err := json.Marshal(k.resume)
		if err != nil {
			t.Fatal(err)
		}
		resume = string(b)
	}
	texts, next := c.post(t, headers, strings.Replace(c.query, filterPlaceholder, k.where, 1), resume)
	if next != "" && next == k.token {
		t.Fatalf("%s: the continuation is that of the page before", c.query)
	}
	k.start, k.atStart, k.token = k.token, k.sdkFilter, next
	k.page, k.taken, k.begun = nil, 0, true
	for _, text := range texts {
		row := c.parse(t, text)
		if resume != "" && !c.passes(k, row) {
			t.Fatalf("%s: %s is sent in spite of the filter %s", c.query, short([]string{text}),
				short([]string{resume}))
		}
		k.page = append(k.page, row)
	}
	for k.taken < len(k.page) && c.drop(k, k.page[k.taken]) {
		k.take(k.page[k.taken])
	}
}

// before tells which of two documents whose rows sort the same comes first.
func (c *sdk) before(a, b uint64) bool { return a != b && a < b != c.desc }

// passes tells whether a row obeys the filter of its request.
func (c *sdk) passes(k *sdkCursor, row sdkRow) bool {
	if row.class != k.class {
		return row.class > k.class
	}
	return !k.resume.Exclude && (k.resume.RID == "" || !c.before(row.doc, k.doc))
}

// drop tells whether the client has emitted a row that the server sends.
func (c *sdk) drop(k *sdkCursor, row sdkRow) bool {
	switch {
	case row.class == k.class && row.doc == k.doc && k.skip > 0:
		k.skip--
		return true
	case k.drops && (row.class < k.class || row.class == k.class && c.before(row.doc, k.doc)):
		return true
	}
	k.skip, k.drops = 0, false
	return false
}

// route are the headers for a range, and what of it is in which partition.
func (p *pager) route(t *testing.T, r feed.Range) (headers map[string]string, ranges []feed.Range) {
	t.Helper()
	parts, err := p.cont.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range parts {
		own := r.Intersect(part.Range)
		if own.Empty() {
			continue
		}
		ranges = append(ranges, own)
		headers = across("x-ms-documentdb-partitionkeyrangeid", part.ID)
		if own != part.Range {
			headers["x-ms-start-epk"], headers["x-ms-end-epk"] = own.Min, own.Max
		}
	}
	return headers, ranges
}

// store puts new cursors for the present ones, as if a user had kept the state.
func (c *sdk) store() {
	last := c.emitted[len(c.emitted)-1]
	target := slices.Index(c.cursors, c.newest)
	way := c.rnd.IntN(3)
	if target < 0 || c.mixed >= 0 || way == 2 && !c.filters {
		way = 0
	}
	for i, k := range c.cursors {
		fresh := &sdkCursor{
			rng: k.rng, sdkFilter: sdkFilter{where: "true", class: last.class}, seen: k.seen,
			seenAll: k.seenAll,
		}
		switch {
		case way == 0 && (!k.begun || k.taken == len(k.page) && k.token == "" && c.chance(50)):
			continue
		case way == 0 && k.last == nil: // nothing of it was emitted
			fresh.token, fresh.sdkFilter = k.start, k.atStart
			fresh.seenAll = 0
		case way == 0 || way == 1 && i == target:
			c.resume(k, fresh)
		case way == 1:
			fresh.resume = last.filter(i < target)
			fresh.resume.RID = ""
		default:
			c.javascript(k, fresh, last, i-target)
		}
		c.cursors[i] = fresh
	}
	c.newest = nil
}

// filter is a resume filter at a row.
func (r sdkRow) filter(exclude bool) *sql.ResumeFilter {
	f := &sql.ResumeFilter{RID: r.rid, Exclude: exclude}
	if err := json.Unmarshal([]byte(r.values), &f.Values); err != nil {
		panic(err) // it is what parse made
	}
	return f
}

// like is how many rows of the present page were taken that are of the last row's document
// and sort like it.
func (k *sdkCursor) like() (n int) {
	for _, row := range k.page[:k.taken] {
		if row.doc == k.last.doc && row.class == k.last.class {
			n++
		}
	}
	return n
}

// resume goes on after the last row of a cursor: by a token, a resume filter or both.
func (c *sdk) resume(k, fresh *sdkCursor) {
	way := c.rnd.IntN(3)
	drained := k.taken == len(k.page) && k.token != ""
	if drained {
		fresh.token = k.token
	} else {
		fresh.token, fresh.skip = k.start, k.like()
	}
	if way == 0 && drained {
		return
	}
	if fresh.resume, fresh.class, fresh.doc = k.last.filter(false), k.last.class, k.last.doc; way == 1 {
		fresh.token, fresh.skip = "", k.seenAll
	}
	fresh.seenAll -= fresh.skip
}

// javascript goes on by a filter in the text, and in the range of the last row by a token.
func (c *sdk) javascript(k, fresh *sdkCursor, last sdkRow, side int) {
	op := ">"
	if c.desc {
		op = "<"
	}
	if side >= 0 {
		op += "="
	}
	fresh.where = fmt.Sprintf("(%s %s %s)", c.sortedBy, op, last.raw)
	if side != 0 {
		return
	}
	fresh.class, fresh.doc, fresh.token = last.class, last.doc, k.token
	if k.taken < len(k.page) || k.token == "" {
		fresh.token, fresh.drops, fresh.skip = k.start, true, k.like()
	}
	fresh.seenAll -= fresh.skip
}

// parallel pages a query without ORDER BY as SDKs do: range after range, or several at the
// same time, each by its own continuation.
func (p *pager) parallel(t *testing.T, q wild) {
	plan := p.plan(t, q.text())
	cursors := []*sdkCursor{{rng: feed.FullRange()}}
	var got []string
	for p.most = 600; len(cursors) > 0; p.most-- {
		if p.most == 0 {
			t.Fatalf("%s: the query has no end", q.text())
		}
		p.move(t, 15)
		i := p.rnd.IntN(len(cursors))
		k := cursors[i]
		headers, ranges := p.route(t, k.rng)
		if len(ranges) > 1 {
			cursors = slices.Delete(cursors, i, i+1)
			for _, r := range ranges {
				cursors = append(cursors, &sdkCursor{rng: r, token: k.token})
			}
			continue
		}
		headers["x-ms-max-item-count"], headers["x-ms-continuation"] = p.size(), k.token
		rows, next := p.post(t, headers, plan.Info.RewrittenQuery, "")
		if got = append(got, rows...); next == "" {
			cursors = slices.Delete(cursors, i, i+1)
		}
		k.token = next
	}
	switch {
	case q.group != "":
		got = mergedGroups(t, got)
	case q.distinct:
		slices.Sort(got)
		got = slices.Compact(got)
	}
	whole := p.all(t, nil, q.unlimited().text())
	if want := p.all(t, nil, q.text()); len(want) < len(whole) {
		subset(t, q.text(), plan.cut(got), whole, len(want))
	} else {
		sameSet(t, q.text(), got, whole)
	}
}

// mergedGroups adds the counts of groups of several ranges.
func mergedGroups(t *testing.T, rows []string) (merged []string) {
	t.Helper()
	counts := map[string]int{}
	for _, text := range rows {
		var row struct {
			Payload struct {
				K json.RawMessage
				N struct{ Item int }
			}
		}
		if err := json.Unmarshal([]byte(text), &row); err != nil {
			t.Fatal(err)
		}
		counts[string(row.Payload.K)] += row.Payload.N.Item
	}
	for k, n := range counts {
		if k != "" {
			k = `"k":` + k + ","
		}
		merged = append(merged, fmt.Sprintf(`{%s"n":%d}`, k, n))
	}
	return merged
}
