package sql_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cosmosrest/internal/sql"
)

// The same random queries, by the other ways to their rows.

const differShare = 4 // one of so many queries goes each of these ways

// each tries pairs, and shows the first that fails, made small.
func eachPair(t *testing.T, runs int, draw func(seed uint64) *pair, fails func(p *pair) string) {
	t.Helper()
	for seed := *differSeed; seed < *differSeed+uint64(runs); seed++ {
		p := draw(seed)
		if fails(p) == "" {
			continue
		}
		refused := p.refused()
		p.shrink(func() bool { return p.refused() == refused && fails(p) != "" })
		t.Fatalf("%s\nagain: go test ./cosmosrest/internal/sql -run %s -differ.runs %d -differ.seed %d", fails(p),
			t.Name(), differShare, seed)
	}
}

func TestQueriesAgreeWithTheObviousEvaluator(t *testing.T) {
	eachPair(t, *differRuns, newPair, (*pair).differs)
}

// A client that runs a query by its plan over two ranges, and merges, has the rows of the query.
func TestRandomQueriesByTheirPlans(t *testing.T) {
	eachPair(t, *differRuns/differShare, newPair, (*pair).merges)
}

func (p *pair) merges() string {
	docs := slices.Clone(p.docs)
	for i := range docs { // rows that sort the same come as they do in the ranges
		docs[i].text = strings.Replace(docs[i].text, `"_rid"`, `"rid"`, 1)
	}
	whole := pair{p.q, docs}
	b, err := whole.bind()
	if err != nil || p.oneRange() {
		return ""
	}
	info, err := sql.PlanOf(b)
	if err != nil || b.Streams() && info.RewrittenQuery == "" {
		return ""
	}
	want, err := whole.engine()
	// A client does not sort groups: those of several ranges have no order, although each range sorts its own.
	sortsGroups := len(p.q.groups) > 0 && len(p.q.order) > 0
	if err != nil || sortsGroups && (p.q.top >= 0 || p.q.limit >= 0) {
		return ""
	}
	for cut := range len(docs) + 1 {
		got, err := whole.inParts(info, cut)
		if err != nil {
			return whole.tell("by its plan: " + err.Error())
		}
		if !alike(got, want, sortsGroups) {
			return whole.tell(fmt.Sprintf("of the first %d documents and the others, by %s: %s\nof all: %s", cut,
				info.RewrittenQuery, write(got), write(want)))
		}
	}
	return ""
}

// oneRange tells of a query that is not about documents: a plan has one range for it.
func (p *pair) oneRange() bool {
	q, err := sql.Parse(p.q.text())
	return err == nil && q.WithoutFrom()
}

// inParts runs the rewritten query over the first documents and over the others, and merges.
func (p *pair) inParts(info sql.QueryInfo, cut int) ([]any, error) {
	text := strings.Replace(info.RewrittenQuery, sql.FilterPlace, "true", 1)
	if text == "" {
		text = p.q.text()
	}
	var parts [][]string
	for _, docs := range [][]document{p.docs[:cut], p.docs[cut:]} {
		q, err := sql.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", text, err)
		}
		b, err := q.Bind(p.q.parameters())
		if err != nil {
			return nil, err
		}
		rows, err := rowsOf(b, docs)
		if err != nil {
			return nil, err
		}
		parts = append(parts, rows)
	}
	return decode(sql.Merge(info, parts))
}

// A page that goes on after any row has the rows behind it.
func TestRandomQueriesGoOnAfterARow(t *testing.T) {
	eachPair(t, *differRuns/differShare, newPair, (*pair).goesOn)
}

func (p *pair) goesOn() string {
	b, err := p.bind()
	if err != nil || b.Streams() || len(p.docs) == 0 || p.docs[0].born == 0 {
		return ""
	}
	rows, err := collected(b, p.docs)
	if err != nil {
		return ""
	}
	for i, row := range rows {
		rest, err := p.after(row.Place(), i+1)
		if err != nil {
			return p.tell(fmt.Sprintf("after row %d: %v", i+1, err))
		}
		if want := texts(rows[i+1:]); !slices.Equal(texts(rest), want) {
			return p.tell(fmt.Sprintf("after row %d: %s\nof all: %s", i+1, texts(rest), texts(rows)))
		}
		if failed := p.resumes(rows, i); failed != "" {
			return failed
		}
	}
	return ""
}

// resumes says what is wrong when a client goes on from a row by a filter of .NET's, with its document and without all
// that sort the same.
func (p *pair) resumes(rows []sql.Row, i int) string {
	at := rows[i].Place()
	if len(p.q.order) == 0 || p.q.distinct || p.q.top >= 0 || p.q.limit >= 0 || p.q.from[0].sub != nil {
		return ""
	}
	with := slices.IndexFunc(rows, func(r sql.Row) bool {
		return r.Place().Doc == at.Doc && sorted(r) == sorted(rows[i])
	})
	without := i
	for without < len(rows) && sorted(rows[without]) == sorted(rows[i]) {
		without++
	}
	for _, try := range []struct {
		filter sql.ResumeFilter
		begin  int
	}{
		{sql.ResumeFilter{Values: at.Values, RID: rid(at.Doc)}, with},
		{sql.ResumeFilter{Values: at.Values, RID: rid(at.Doc), Exclude: true}, without},
	} {
		b, err := p.bind()
		if err == nil {
			err = b.From(try.filter)
		}
		if err != nil {
			return p.tell(err.Error())
		}
		got, err := collected(b, p.docs)
		if want := texts(rows[try.begin:]); err != nil || !slices.Equal(texts(got), want) {
			return p.tell(fmt.Sprintf("from %+v: %s, %v\nof all: %s", try.filter, texts(got), err, texts(rows)))
		}
	}
	return ""
}

// sorted is what a row is sorted by.
func sorted(r sql.Row) string { return fmt.Sprintf("%s", r.Place().Values) }

func (p *pair) after(place sql.Place, taken int) ([]sql.Row, error) {
	b, err := p.bind()
	if err != nil {
		return nil, err
	}
	token, err := json.Marshal(place)
	if err != nil {
		return nil, err
	}
	var read sql.Place
	if err := json.Unmarshal(token, &read); err != nil {
		return nil, err
	}
	if err := b.After(read, int64(taken)); err != nil {
		return nil, err
	}
	return collected(b, p.docs)
}

func texts(rows []sql.Row) (all []string) {
	for _, r := range rows {
		all = append(all, string(r.JSON))
	}
	return all
}

// A document that has a row is one of those that the filter pins.
func TestRandomFiltersPinTheirDocuments(t *testing.T) {
	eachPair(t, *differRuns/differShare, newPinningPair, (*pair).pins)
}

func (p *pair) pins() string {
	b, err := p.bind()
	if err != nil || p.q.where == nil {
		return ""
	}
	for _, d := range p.docs {
		one := &container{docs: []document{d}}
		if !one.passes(p.q) {
			continue
		}
		if lost := loses(b, d); lost != "" {
			return p.tell(lost + " has a row")
		}
	}
	return ""
}

// newPinningPair draws a query with a filter about ids and keys, whose values the documents have.
func newPinningPair(seed uint64) *pair {
	d := newDraw(seed)
	p := &pair{&query{star: true, top: -1, offset: -1, limit: -1}, d.documents()}
	alias := pick(d, "c", "c", "o") // of the last, a path in a row is not one in the document
	p.q.from = []source{{alias: alias, path: &term{op: "name", text: "c"}, bare: true}}
	if alias == "o" {
		p.q.from[0].path = member(d, p.q.from[0].path, "o")
	}
	d.scope = []string{alias}
	p.q.where = d.pinning(p.docs, 3)
	return p
}

// pinning draws a filter.
func (d *draw) pinning(docs []document, depth int) *term {
	if depth > 0 {
		switch d.IntN(8) {
		case 0, 1, 2:
			return infixed("AND", d.pinning(docs, depth-1), d.pinning(docs, depth-1))
		case 3, 4:
			return infixed("OR", d.pinning(docs, depth-1), d.pinning(docs, depth-1))
		case 5:
			return &term{op: "prefix", text: "NOT", kids: []*term{d.pinning(docs, depth-1)}}
		case 6:
			return d.term(wantBool, 1)
		}
	}
	name := pick(d, "id", "id", "k", "n", "m", "o")
	path := member(d, &term{op: "name", text: d.scope[0]}, name)
	if name == "o" {
		path = member(d, path, "p")
	}
	switch d.IntN(10) {
	case 0:
		return &term{op: "call", text: pick(d, "IS_NULL", "IS_BOOL"), kids: []*term{path}}
	case 7:
		return infixed("=", &term{op: "call", text: "ABS", kids: []*term{path}}, d.found(docs, path))
	case 8:
		return path
	case 9:
		return infixed(pick(d, "=", "!="), d.literal(d.scalar()), d.literal(d.scalar()))
	case 1:
		return &term{
			op: "call", text: "STARTSWITH",
			kids: append([]*term{path, d.literal(pick(d, `"a"`, `"ab"`, `""`, `"A"`))},
				pick(d, nil, []*term{d.literal(pick(d, "true", "false"))})...),
		}
	case 2:
		list := &term{op: "array", kids: []*term{d.found(docs, path), d.found(docs, path)}}
		return &term{op: "call", text: "ARRAY_CONTAINS", kids: []*term{list, path}}
	case 3:
		return &term{op: "in", not: d.chance(20), kids: []*term{path, d.found(docs, path), d.found(docs, path)}}
	case 4:
		return infixed(pick(d, "!=", ">=", "<="), path, d.found(docs, path))
	case 5:
		return infixed("=", d.found(docs, path), path)
	}
	return infixed("=", path, d.found(docs, path))
}

// found is a literal or parameter with what a document has at a path, or something else.
func (d *draw) found(docs []document, path *term) *term {
	if len(docs) == 0 || d.chance(15) {
		return d.term(wantAny, 1)
	}
	v := (&container{}).eval(path, &scope{name: d.scope[0], value: docs[d.IntN(len(docs))].value})
	b, err := json.Marshal(v)
	if v == undefined || err != nil {
		return d.literal("undefined")
	}
	return d.literal(string(b))
}

// passes tells whether the filter leaves a row.
func (c *container) passes(q *query) (some bool) {
	defer func() {
		if _, known := recover().(unclear); known {
			some = false
		}
	}()
	for _, s := range c.combine(q.from, []*scope{{}}) {
		some = some || c.eval(q.where, s) == true
	}
	return some
}

// loses says for what a document is not looked at.
func loses(b *sql.Bound, d document) string {
	id, _ := inside(d.value, "id").(string)
	if ids, ok := b.IDs(); ok && !slices.Contains(ids, id) {
		return fmt.Sprintf("the ids are %q: %s", ids, d.text)
	}
	if prefix, ok := b.IDPrefix(); ok && !strings.HasPrefix(id, prefix) {
		return fmt.Sprintf("the ids begin with %q: %s", prefix, d.text)
	}
	for _, path := range [][]string{{"k"}, {"n"}, {"s"}, {"m"}, {"b"}, {"o", "p"}} {
		pinned, ok := sql.PinsOf(b, path)
		v := any(d.value)
		for _, name := range path {
			v = inside(v, name)
		}
		if ok && !slices.ContainsFunc(pinned, func(raw json.RawMessage) bool {
			var w any
			return json.Unmarshal(raw, &w) == nil && same(v, w)
		}) {
			return fmt.Sprintf("%v is one of %s: %s", path, pinned, d.text)
		}
	}
	return losesKey(b, d)
}

// losesKey says for what hierarchical key a document is not looked at.
func losesKey(b *sql.Bound, d document) string {
	for _, paths := range [][][]string{{{"k"}, {"n"}}, {{"n"}, {"m"}, {"k"}}, {{"o", "p"}, {"k"}}} {
		keys, ok := b.Keys(paths, 1000)
		if !ok {
			continue
		}
		var own []any
		for _, path := range paths {
			v := any(d.value)
			for _, name := range path {
				v = inside(v, name)
			}
			own = append(own, v)
		}
		if !slices.ContainsFunc(keys, func(key []json.RawMessage) bool {
			for i, raw := range key {
				var w any
				if json.Unmarshal(raw, &w) != nil || !same(own[i], w) {
					return false
				}
			}
			return true
		}) {
			return fmt.Sprintf("the keys at %v are %s: %s", paths, keys, d.text)
		}
	}
	return ""
}

// Equal rows of DISTINCT have the place of the first document, in whatever order the documents are read.
func TestDistinctKeepsTheFirstPlace(t *testing.T) {
	q, err := sql.Parse("SELECT DISTINCT VALUE c.v FROM c")
	if err != nil {
		t.Fatal(err)
	}
	var docs []document
	for i, v := range []string{"b", "a", "b", "c", "a"} {
		docs = append(docs, document{text: fmt.Sprintf(`{"v":%q,"_rid":%q,"_ts":1}`, v, rid(uint64(i+1)))})
	}
	for _, order := range [][]int{{0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, {2, 4, 0, 3, 1}} {
		b, err := q.Bind(nil)
		if err != nil {
			t.Fatal(err)
		}
		var read []document
		for _, i := range order {
			read = append(read, docs[i])
		}
		rows, err := rowsOf(b, read)
		if got := strings.Join(rows, " "); err != nil || got != `"b" "a" "c"` {
			t.Errorf("read in the order %v: %s, %v", order, got, err)
		}
	}
}
