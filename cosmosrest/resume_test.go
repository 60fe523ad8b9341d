package cosmosrest

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/changefeed/docstore"
)

// Random queries are paged with random sizes in every way in which SDKs go on, and give
// each row of the unpaged result once.

var (
	resumeQueries = flag.Int("resume.queries", 480, "how many random queries are paged")
	resumeSeed    = flag.Uint64("resume.seed", 1, "seed of the first of them")
)

const queriesOfWorld = 6

func TestResumedQueriesGiveEachRowOnce(t *testing.T) {
	for n := 0; n < *resumeQueries; n += queriesOfWorld {
		seed := *resumeSeed + uint64(n/queriesOfWorld)
		ok := t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			p := newPager(t, seed)
			for range queriesOfWorld {
				p.random(t)
			}
		})
		if !ok {
			t.Fatalf("again: go test ./cosmosrest -run %s -resume.queries %d -resume.seed %d", t.Name(), queriesOfWorld,
				seed)
		}
	}
}

// pager pages queries over a container with random documents.
type pager struct {
	*world
	cont  *docstore.Container
	path  string // of the partition key
	rnd   *rand.Rand
	moved bool // partitions have changed since the query began
	most  int  // pages that a query may have
}

func newPager(t *testing.T, seed uint64) *pager {
	t.Helper()
	p := &pager{world: newWorld(t, Options{Lenient: true}), rnd: rand.New(rand.NewPCG(seed, 7))}
	p.path = pick(p, "/pk", "/pk", "/pk", "/id") // by which ids have an index
	p.cont = p.create(t, "db", `{"id":"c","partitionKey":{"paths":["`+p.path+`"],"kind":"Hash","version":2}}`, nil)
	var bodies []string
	for i := range p.rnd.IntN(40) {
		bodies = append(bodies, p.document(i))
	}
	for i, body := range bodies {
		p.upsert(t, body)
		if p.chance(20) { // one is written again, and so scanned later
			p.upsert(t, bodies[p.rnd.IntN(i+1)])
		}
	}
	for range p.rnd.IntN(4) {
		p.move(t, 100)
	}
	return p
}

func (p *pager) upsert(t *testing.T, body string) {
	t.Helper()
	if _, err := p.cont.Upsert(t.Context(), []byte(body)); err != nil {
		t.Fatal(err)
	}
}

func pick[T any](p *pager, of ...T) T { return of[p.rnd.IntN(len(of))] }

func (p *pager) chance(percent int) bool { return p.rnd.IntN(100) < percent }

var lengthy = strings.Repeat("long ", 200)

// document has few different values, so that many rows sort the same.
func (p *pager) document(i int) string {
	members := []string{fmt.Sprintf(`"id":"i%02d","pk":"k%d","b":%d`, p.rnd.IntN(100)*100+i, p.rnd.IntN(8),
		p.rnd.IntN(4))}
	if v := pick(p, "", "null", "false", "true", "0", "1", "-1.5", `""`, `"x"`, `"é"`, `"`+lengthy+`a"`,
		`"`+lengthy+`b"`,
		"[]", "[1]", `[1,"x"]`, "{}", `{"y":1}`, `{"y":[null],"z":true}`); v != "" {
		members = append(members, `"a":`+v)
	}
	if p.chance(80) {
		members = append(members, `"s":"`+pick(p, "p", "q", "it's", `\"`, lengthy+"1", lengthy+"2", lengthy+"3")+`"`)
	}
	var tags []string
	for k := range p.rnd.IntN(4) {
		tags = append(tags, fmt.Sprintf(`{"k":%d,"v":%d}`, k, p.rnd.IntN(3)))
	}
	return "{" + strings.Join(append(members, `"tags":[`+strings.Join(tags, ",")+"]"), ",") + "}"
}

// move splits or merges partitions, now and then.
func (p *pager) move(t *testing.T, percent int) {
	t.Helper()
	if !p.chance(percent) {
		return
	}
	parts, err := p.cont.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := p.rnd.IntN(len(parts))
	if len(parts) < 5 && p.chance(60) {
		_, err = p.cont.Split(t.Context(), parts[i].ID)
	} else if i > 0 {
		_, err = p.cont.Merge(t.Context(), parts[i-1].ID, parts[i].ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.moved = true
}

// wild is a random query.
type wild struct {
	list, from, where, group string
	order                    []wildOrder
	distinct                 bool
	top, offset, limit       int // -1 for none
}

type wildOrder struct {
	expr string
	desc bool
}

func (p *pager) wild() wild {
	q := wild{
		list: "c.id", from: "c", where: pick(p, "true", "true", "c.b > 0", "IS_DEFINED(c.a)", "c.s != 'q'"),
		top: -1, offset: -1, limit: -1,
	}
	sorts := []string{"c.a", "c.a", "c.b", "c.s", "c.id", "c.b % 2"}
	if p.chance(35) {
		q.list, q.from = "c.id, t.k", "c JOIN t IN c.tags"
		q.where = pick(p, q.where, "t.v > 0")
		sorts = append(sorts, "t.v", "t.v")
	}
	for range pick(p, 0, 1, 1, 1, 2, 3) {
		q.order = append(q.order, wildOrder{pick(p, sorts...), p.chance(50)})
	}
	switch {
	case p.chance(20):
		q.distinct, q.list = true, "VALUE "+pick(p, sorts[:3]...)
		if len(q.order) > 0 {
			q.order[0].expr = strings.TrimPrefix(q.list, "VALUE ")
		}
	case len(q.order) == 0 && p.chance(30):
		q.group = pick(p, "c.b", "c.a", "c.s")
		q.list = q.group + " AS k, COUNT(1) AS n"
	}
	switch p.rnd.IntN(4) {
	case 0:
		q.top = p.rnd.IntN(30)
	case 1:
		q.offset, q.limit = p.rnd.IntN(10), p.rnd.IntN(30)
	}
	return q
}

func (q wild) text() string {
	var b strings.Builder
	b.WriteString("SELECT ")
	if q.distinct {
		b.WriteString("DISTINCT ")
	}
	if q.top >= 0 {
		fmt.Fprintf(&b, "TOP %d ", q.top)
	}
	fmt.Fprintf(&b, "%s FROM %s WHERE %s", q.list, q.from, q.where)
	if q.group != "" {
		b.WriteString(" GROUP BY " + q.group)
	}
	for i, o := range q.order {
		b.WriteString([]string{" ORDER BY ", ", "}[min(i, 1)] + o.expr)
		if o.desc {
			b.WriteString(" DESC")
		}
	}
	if q.limit >= 0 {
		fmt.Fprintf(&b, " OFFSET %d LIMIT %d", q.offset, q.limit)
	}
	return b.String()
}

// unlimited is the query without TOP and OFFSET LIMIT.
func (q wild) unlimited() wild {
	q.top, q.offset, q.limit = -1, -1, -1
	return q
}

func (q wild) scans() bool { return len(q.order) == 0 && !q.distinct && q.group == "" }

// filtered is the query with one more condition.
func (q wild) filtered(cond string) wild {
	q.where = "(" + q.where + ") AND " + cond
	return q
}

// post sends a query and returns its rows and what goes on after them.
func (p *pager) post(t *testing.T, headers map[string]string, query, resume string) (rows []string, next string) {
	t.Helper()
	text, err := json.Marshal(query)
	if err != nil {
		t.Fatal(err)
	}
	body := `{"query":` + string(text)
	if resume != "" {
		body += `,"resumeFilter":` + resume
	}
	a := p.do(t, "POST", docs, headers, body+"}").want(t, 200)
	var page struct{ Documents []json.RawMessage }
	a.into(t, &page)
	for _, row := range page.Documents {
		rows = append(rows, string(row))
	}
	if next = a.header.Get("x-ms-continuation"); len(next) > 1024 {
		t.Fatalf("%s: the continuation has %d bytes, want at most 1024", query, len(next))
	}
	if len(rows) == 0 && next != "" {
		t.Fatalf("%s: a page without rows says that another follows", query)
	}
	return rows, next
}

// all is the unpaged result.
func (p *pager) all(t *testing.T, headers map[string]string, query string) []string {
	t.Helper()
	headers = across(append(pairs(headers), "x-ms-max-item-count", "-1")...)
	rows, next := p.post(t, headers, query, "")
	if next != "" {
		t.Fatalf("%s: the result has more than one page", query)
	}
	return rows
}

// random pages one query in one way.
func (p *pager) random(t *testing.T) {
	q := p.wild()
	p.moved = false
	p.most = 0
	switch way := p.rnd.IntN(10); {
	case way < 2:
		q.order, q.distinct, q.group, q.list = nil, false, "", "c.id"
		if q.from != "c" {
			q.list = "c.id, t.k"
		}
		p.native(t, q)
	case way < 6:
		p.native(t, q)
	case len(q.order) > 0:
		p.sorted(t, q)
	default:
		p.parallel(t, q)
	}
}

func (p *pager) size() string { return fmt.Sprint(pick(p, 1, 2, 3, 5, 8, 50)) }

// native pages the query's own text, and may put another filter in.
func (p *pager) native(t *testing.T, q wild) {
	headers := map[string]string{}
	moves := false
	keys := []string{
		fmt.Sprintf("k%d", p.rnd.IntN(8)), fmt.Sprintf("k%d", p.rnd.IntN(8)),
		fmt.Sprintf("k%d", p.rnd.IntN(8)),
	}
	switch p.rnd.IntN(5) {
	case 0:
		headers["x-ms-documentdb-partitionkey"] = `["` + keys[0] + `"]`
	case 1:
		parts, err := p.cont.Partitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		headers["x-ms-documentdb-partitionkeyrangeid"] = pick(p, parts...).ID
		q = q.filtered(pick(p, "(true)", "STARTSWITH(c.id, 'i')", "c.pk IN ('"+strings.Join(keys, "','")+"')"))
	case 2:
		q = q.filtered("c.pk IN ('" + strings.Join(keys, "','") + "')")
	case 3:
		q = q.filtered(fmt.Sprintf("STARTSWITH(c.id, 'i%d')", p.rnd.IntN(9)))
	case 4:
		moves = true
	}
	want := p.all(t, headers, q.text())
	var got []string
	asked := q
	for next := ""; ; {
		h := across(append(pairs(headers), "x-ms-max-item-count", p.size(), "x-ms-continuation", next)...)
		rows, more := p.post(t, h, asked.text(), "")
		if got = append(got, rows...); more == "" {
			break
		}
		if len(got) > len(want) {
			break
		}
		next = more
		if p.chance(30) {
			p.restart(t)
		}
		if moves {
			p.move(t, 15)
		}
		if !p.moved && (p.chance(30) || q.from != "c" && p.chance(40)) {
			p.counted(t, asked, headers, next, want[len(got):])
			asked, want = p.narrowed(t, q, asked, headers, want, len(got))
		}
	}
	switch {
	case !p.moved || !q.scans():
		same(t, q.text(), got, want)
	case q.top < 0 && q.limit < 0: // a scan goes range by range
		sameSet(t, q.text(), got, want)
	default:
		subset(t, q.text(), got, p.all(t, headers, q.unlimited().text()), len(want))
	}
}

// restart serves the store by another server, which has none of the rows that were kept between pages.
func (w *world) restart(t testing.TB) {
	t.Helper()
	var err error
	if w.Server, err = New(w.db, w.o); err != nil {
		t.Fatal(err)
	}
}

// counted counts with the continuation of a page what is left, as LINQ does.
func (p *pager) counted(t *testing.T, q wild, headers map[string]string, next string, left []string) {
	t.Helper()
	if !q.scans() || q.top >= 0 || q.limit >= 0 {
		return
	}
	count := q
	count.list = "VALUE COUNT(1)"
	h := across(append(pairs(headers), "x-ms-continuation", next)...)
	rows, more := p.post(t, h, count.text(), "")
	if len(rows) != 1 || rows[0] != fmt.Sprint(len(left)) || more != "" {
		t.Fatalf("%s behind a page of %s: %s, want %d", count.text(), q.text(), rows, len(left))
	}
}

// narrowed is the query with another filter, and the rows that are then to come.
func (p *pager) narrowed(t *testing.T, q, asked wild, headers map[string]string, want []string, had int) (wild,
	[]string,
) {
	t.Helper()
	if q.distinct || q.group != "" { // whose rows are others under another filter
		return asked.filtered("(true)"), want
	}
	conds := []string{"(true)", "c.b > 0", "c.b < 3", "c.s >= 'q'", "NOT IS_DEFINED(c.a)"}
	if q.from != "c" {
		conds = []string{"t.v > 0", "t.k != 0", "t.k < 2", "c.b > 0"}
	}
	next := asked.filtered(pick(p, conds...))
	whole := p.all(t, headers, asked.unlimited().text())
	passing := p.all(t, headers, next.unlimited().text())
	at := had + max(q.offset, 0)
	if asked.where != q.where { // rows that came before are no longer in it
		at = slices.Index(whole, want[had-1]) + 1
		if at == 0 {
			return asked, want
		}
	}
	rest := slices.Clone(want[:had])
	for _, row := range whole[min(at, len(whole)):] {
		if most := max(q.top, q.limit); slices.Contains(passing, row) && (most < 0 || len(rest) < most) {
			rest = append(rest, row)
		}
	}
	return next, rest
}

func same(t *testing.T, query string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s\npages have %d rows: %s\nwant      %d rows: %s", query, len(got), short(got), len(want),
			short(want))
	}
}

func sameSet(t *testing.T, query string, got, want []string) {
	t.Helper()
	same(t, query, slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want)))
}

// subset wants so many of some rows, each once.
func subset(t *testing.T, query string, got, of []string, want int) {
	t.Helper()
	seen := map[string]int{}
	for _, row := range of {
		seen[row]++
	}
	for _, row := range got {
		if seen[row]--; seen[row] < 0 {
			t.Fatalf("%s: row %s comes too often", query, short([]string{row}))
		}
	}
	if len(got) != want {
		t.Fatalf("%s: %d rows, want %d", query, len(got), want)
	}
}

func short(rows []string) string {
	return strings.ReplaceAll(strings.Join(rows, " "), lengthy, "long…")
}
