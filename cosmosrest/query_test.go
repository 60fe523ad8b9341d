package cosmosrest

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/meter"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// across are the headers of a query over all partitions, and others in pairs.
func across(more ...string) map[string]string {
	h := map[string]string{
		"content-type": wire.QueryType, "x-ms-documentdb-isquery": "true",
		"x-ms-documentdb-query-enablecrosspartition": "true", "x-ms-documentdb-populatequerymetrics": "true",
	}
	for i := 0; i+1 < len(more); i += 2 {
		h[more[i]] = more[i+1]
	}
	return h
}

// ask sends a query; parameters are pairs of a name and JSON.
func (w *world) ask(t testing.TB, headers map[string]string, query string, params ...string) answer {
	t.Helper()
	var values []string
	for i := 0; i+1 < len(params); i += 2 {
		values = append(values, fmt.Sprintf(`{"name":%q,"value":%s}`, params[i], params[i+1]))
	}
	return w.do(t, "POST", docs, headers, fmt.Sprintf(`{"query":%q,"parameters":[%s]}`, query,
		strings.Join(values, ",")))
}

// pages are the ids of a query's rows, page by page, with a bar between pages.
func (w *world) pages(t testing.TB, method string, headers map[string]string, query string) string {
	t.Helper()
	headers = maps.Clone(headers)
	if headers == nil {
		headers = map[string]string{}
	}
	var all []string
	for range 100 {
		body := ""
		if query != "" {
			body = fmt.Sprintf(`{"query":%q}`, query)
		}
		a := w.do(t, method, docs, headers, body)
		all = append(all, column(t, a.list(t, "Documents"), "id"))
		next := a.header.Get("x-ms-continuation")
		if next == "" {
			return strings.Join(all, "|")
		}
		if len(next) > 1024 {
			t.Fatalf("continuation has %d bytes, want at most 1024", len(next))
		}
		headers["x-ms-continuation"] = next
	}
	t.Fatal("the query has no end")
	return ""
}

var retrieved = regexp.MustCompile(`retrievedDocumentCount=(\d+);`)

// read is how many documents the server has read for an answer.
func (a answer) read(t testing.TB) int {
	t.Helper()
	m := retrieved.FindStringSubmatch(a.header.Get("x-ms-documentdb-query-metrics"))
	if m == nil {
		t.Fatalf("%s: metrics are %q", a.request, a.header.Get("x-ms-documentdb-query-metrics"))
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestQueryAnswer(t *testing.T) {
	w, cont := newContainer(t, Options{})
	a := w.item(t, "a", `, "n":1.0`)
	got := w.ask(t, across(), "SELECT * FROM c WHERE c.n = @n", "@n", "1").want(t, 200)
	if want := `{"_rid":"` + cont.RID() + `","Documents":[` + string(a.body) +
		`],"_count":1}`; string(got.body) != want {
		t.Errorf("answer is\n%s\nwant\n%s", got.body, want)
	}
	for name, want := range map[string]string{
		"x-ms-item-count": "1", "x-ms-session-token": "0:-1#1", "lsn": "1", "x-ms-continuation": "",
		"x-ms-cosmos-index-utilization": "",
	} {
		if got.header.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, got.header.Get(name), want)
		}
	}
	scalars := w.ask(t, across("x-ms-cosmos-populateindexmetrics", "true"), "SELECT VALUE c.n FROM c").want(t, 200)
	if !strings.Contains(string(scalars.body), `"Documents":[1],"_count":1`) {
		t.Errorf("values are %s", scalars.body)
	}
	if scalars.header.Get("x-ms-cosmos-index-utilization") == "" {
		t.Error("no index metrics, which were asked for")
	}
}

func TestQueryPages(t *testing.T) {
	w, cont := newContainer(t, Options{})
	upsert(t, cont, "p/0", "p/10", "p/1", "p/11")
	for _, test := range []struct{ query, size, pages string }{
		{"SELECT * FROM c", "", "0 10 1 11"},
		{"SELECT * FROM c", "-1", "0 10 1 11"},
		{"SELECT * FROM c", "3", "0 10 1|11"},
		{"SELECT * FROM c", "2", "0 10|1 11"}, // a full page that is the last
		{"SELECT * FROM c ORDER BY c.id", "2", "0 1|10 11"},
		{"SELECT * FROM c ORDER BY c.id", "4", "0 1 10 11"},
		{"SELECT * FROM c ORDER BY c.id DESC", "3", "11 10 1|0"},
		{"SELECT * FROM c WHERE c.id != '10'", "1", "0|1|11"},
		{"SELECT TOP 3 * FROM c", "2", "0 10|1"},
		{"SELECT TOP 2 * FROM c", "2", "0 10"},
		{"SELECT TOP 0 * FROM c", "2", ""},
		{"SELECT * FROM c OFFSET 1 LIMIT 2", "1", "10|1"},
		{"SELECT * FROM c OFFSET 3 LIMIT 9", "1", "11"},
		{"SELECT DISTINCT c.id FROM c", "3", "0 10 1|11"},
		{"SELECT * FROM c WHERE c.pk = 'q'", "1", ""},
	} {
		for name, headers := range map[string]map[string]string{"one key": across("x-ms-documentdb-partitionkey",
			`["p"]`), "its range": across("x-ms-documentdb-partitionkeyrangeid", "0")} {
			headers["x-ms-max-item-count"] = test.size
			if got := w.pages(t, "POST", headers, test.query); got != test.pages {
				t.Errorf("%s of %s by %s: %s, want %s", test.query, name, test.size, got, test.pages)
			}
		}
	}
}

// newThousand is a server whose container has one item more than a page has without a number.
func newThousand(t *testing.T) *world {
	t.Helper()
	w, cont := newContainer(t, Options{})
	for i := range wire.UsualRows + 1 {
		upsert(t, cont, fmt.Sprintf("p/%d", i))
	}
	return w
}

// Who asks for no number, or for 0, gets as many rows as from the service.
func TestAPageWithoutANumberHasAThousandRows(t *testing.T) {
	w := newThousand(t)
	for size, want := range map[string]string{"": "1000", "0": "1000", "-1": "1001"} {
		a := w.ask(t, under("p", pairs(across("x-ms-max-item-count", size))...), "SELECT c.id FROM c").want(t,
			http.StatusOK)
		if got := a.header.Get("x-ms-item-count"); got != want {
			t.Errorf("x-ms-max-item-count %q: %s rows, want %s", size, got, want)
		}
	}
}

// A client that knows an old range must read the ranges again, and not get rows of others.
func TestARangeOfKeysBesideTheNamedRangeIsGone(t *testing.T) {
	w, cont := newRanges(t, Options{})
	parts, err := cont.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	headers := across("x-ms-documentdb-partitionkeyrangeid", parts[1].ID,
		"x-ms-start-epk", parts[1].Range.Min, "x-ms-end-epk", parts[2].Range.Max)
	w.ask(t, headers, "SELECT * FROM c").refused(t, http.StatusGone, "1002", "Gone")
}

func TestQueryPagesCutTheRowsOfADocument(t *testing.T) {
	w, _ := newContainer(t, Options{})
	for _, id := range []string{"a", "b", "c"} {
		w.item(t, id, `,"xs":[1,2]`)
	}
	if got := w.pages(t, "POST", across("x-ms-max-item-count", "3"),
		"SELECT c.id FROM c JOIN x IN c.xs"); got != "a a b|b c c|" {
		t.Errorf("pages are %s", got)
	}
	headers := across("x-ms-max-item-count", "2", "x-ms-documentdb-partitionkeyrangeid", "0")
	if got := w.pages(t, "POST", headers, "SELECT c.id FROM c JOIN x IN c.xs OFFSET 1 LIMIT 4"); got != "a b|b c" {
		t.Errorf("pages behind the first row are %s", got)
	}
}

func TestQueryPagesEndAtFourMegabytes(t *testing.T) {
	w, cont := newContainer(t, Options{})
	for i := range 9 {
		body := fmt.Appendf(nil, `{"id":"%d","pk":"p","x":%q}`, i, strings.Repeat("x", 1<<20))
		if _, err := cont.Upsert(t.Context(), body); err != nil {
			t.Fatal(err)
		}
	}
	const want = "0 1 2|3 4 5|6 7 8"
	if got := w.pages(t, "POST", across("x-ms-max-item-count", "-1"), "SELECT * FROM c"); got != want {
		t.Errorf("pages are %s, want %s", got, want)
	}
	if got := w.pages(t, "POST", under("p", "content-type", wire.QueryType),
		"SELECT * FROM c ORDER BY c.id"); got != want {
		t.Errorf("sorted pages are %s, want %s", got, want)
	}
	if got := w.pages(t, "GET", nil, ""); got != want {
		t.Errorf("pages of the feed are %s, want %s", got, want)
	}
}

func TestQueryReadsOnlyWhatItCanBeAbout(t *testing.T) {
	w, cont := newContainer(t, Options{})
	for i := range 50 {
		upsert(t, cont, fmt.Sprintf("k%d/x", i), fmt.Sprintf("k%d/y", i))
	}
	key := under("k7", pairs(across())...)
	for _, test := range []struct {
		headers    map[string]string
		query, ids string
		read       int
	}{
		{across(), "SELECT * FROM c WHERE c.id = 'x' AND c.pk = 'k7'", "x", 1},
		{across(), "SELECT * FROM c WHERE c.pk = 'k7' AND c.id IN ('y','x','z')", "x y", 2},
		{across(), "SELECT * FROM c WHERE (c.id = 'x' AND c.pk = 'k7') OR (c.id = 'x' AND c.pk = 'k8')", "x x", 2},
		{across(), "SELECT * FROM c WHERE (c.id = 'x' AND c.pk = 'k7') OR (c.id = 'y' AND c.pk = 'k8')", "x y", 4},
		{across(), "SELECT * FROM c WHERE c.pk IN ('k7','k8','k7')", "x y x y", 4},
		{across(), "SELECT * FROM c WHERE c.pk = 'k7' AND c.id > 'x'", "y", 2},
		{across(), "SELECT * FROM c WHERE c.pk = 'k7' ORDER BY c.id DESC", "y x", 2},
		{across(), "SELECT * FROM c WHERE c.pk = 'none'", "", 0},
		{across(), "SELECT * FROM c WHERE IS_NULL(c.pk)", "", 0},
		{key, "SELECT * FROM c", "x y", 2},
		{key, "SELECT * FROM c WHERE c.id = 'y'", "y", 1},
		{key, "SELECT * FROM c WHERE c.pk = 'k8'", "", 2},
		{across(), "SELECT * FROM c WHERE c.id = 'x' AND c.pk > 'k8' AND c.pk < 'k90'", "x", 50},
	} {
		a := w.ask(t, test.headers, test.query)
		if ids := column(t, a.list(t, "Documents"), "id"); ids != test.ids || a.read(t) != test.read {
			t.Errorf("%s: rows %q of %d documents, want %q of %d", test.query, ids, a.read(t), test.ids, test.read)
		}
	}
}

// pairs are the entries of a map in pairs.
func pairs(m map[string]string) (list []string) {
	for k, v := range m {
		list = append(list, k, v)
	}
	return list
}

func TestQueryFindsLeasesByTheirIDs(t *testing.T) {
	w := newWorld(t, Options{})
	cont := w.create(t, "db", `{"id":"c","partitionKey":{"paths":["/partitionKey"],"kind":"Hash","version":2}}`, nil)
	for i := range 50 {
		if _, err := cont.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"unit%d..%d","partitionKey":"k%d"}`, i%10, i,
			i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		query, ids string
		read       int
	}{
		{"SELECT * FROM c WHERE STARTSWITH(c.id, 'unit3.')", "unit3..3 unit3..13 unit3..23 unit3..33 unit3..43", 5},
		{"SELECT * FROM c WHERE c.id = 'unit3..13'", "unit3..13", 1},
		{"SELECT * FROM c WHERE c.id IN ('unit3..13', 'unit3..3', 'none3')", "", 50},
		{"SELECT * FROM c WHERE c.id IN ('unit3..13', 'unit3..3')", "unit3..3 unit3..13", 5},
	} {
		a := w.ask(t, across(), test.query)
		ids := column(t, a.list(t, "Documents"), "id")
		if test.ids == "" {
			test.ids = "unit3..3 unit3..13"
		}
		if ids != test.ids || a.read(t) != test.read {
			t.Errorf("%s: rows %q of %d documents, want %q of %d", test.query, ids, a.read(t), test.ids, test.read)
		}
	}
}

func TestQueryOfHierarchicalKeys(t *testing.T) {
	w := newWorld(t, Options{})
	cont := w.create(t, "db", `{"id":"c","partitionKey":{"paths":["/pk","/id"],"kind":"MultiHash","version":2}}`, nil)
	upsert(t, cont, "p/a", "q/b", "p/c", "r/d")
	for _, test := range []struct {
		key, query, ids string
		read            int
	}{
		{"", "SELECT * FROM c WHERE c.pk = 'p'", "a c", 2},
		{"", "SELECT * FROM c WHERE c.pk = 'p' AND c.id = 'c'", "c", 1},
		{"", "SELECT * FROM c WHERE c.id = 'c'", "c", 1},
		{"", "SELECT * FROM c WHERE (c.pk = 'p' AND c.id = 'a') OR (c.pk = 'q' AND c.id = 'b')", "b a", 2},
		{"", "SELECT * FROM c WHERE (c.pk = 'p' AND c.id > '') OR (c.pk = 'q' AND c.id = 'b')", "b a c", 3},
		{"", "SELECT * FROM c WHERE c.pk = 'p' OR (c.pk = 'p' AND c.id = 'a')", "a c", 2},
		{"", "SELECT * FROM c WHERE c.pk = 'p' ORDER BY c.id DESC", "c a", 2},
		{`["p"]`, "SELECT * FROM c", "a c", 2},
		{`["p","a"]`, "SELECT * FROM c", "a", 1},
	} {
		a := w.ask(t, across("x-ms-documentdb-partitionkey", test.key), test.query)
		if ids := column(t, a.list(t, "Documents"), "id"); ids != test.ids || a.read(t) != test.read {
			t.Errorf("%s of %s: rows %q of %d documents, want %q of %d", test.query, test.key, ids, a.read(t), test.ids,
				test.read)
		}
	}
}

// An id is not looked up under a key that lacks its last levels.
func TestAnIDUnderTheFirstLevelOfAKeyIsFound(t *testing.T) {
	w := newWorld(t, Options{})
	cont := w.create(t, "db", `{"id":"c","partitionKey":{"paths":["/pk","/n"],"kind":"MultiHash","version":2}}`, nil)
	for _, body := range []string{
		`{"id":"a","pk":"p","n":"x"}`, `{"id":"a","pk":"p","n":"y"}`,
		`{"id":"a","pk":"q","n":"x"}`, `{"id":"b","pk":"p","n":"x"}`,
	} {
		if _, err := cont.Upsert(t.Context(), []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	a := w.ask(t, across(), "SELECT * FROM c WHERE c.pk = 'p' AND c.id = 'a'")
	if ns := column(t, a.list(t, "Documents"), "n"); ns != "x y" || a.read(t) != 3 {
		t.Errorf("rows %s of %d documents, want x y of 3", ns, a.read(t))
	}
}

func TestDocumentsWithOneIDUnderTwoKeysAreTwo(t *testing.T) {
	w, cont := newContainer(t, Options{Lenient: true})
	upsert(t, cont, "p/a", "q/a", "q/b")
	a := w.ask(t, across(), "SELECT VALUE COUNT(1) FROM c").want(t, http.StatusOK)
	if !strings.Contains(string(a.body), `"Documents":[3]`) {
		t.Errorf("count is %s, want 3", a.body)
	}
}

func TestQueryRefuses(t *testing.T) {
	w, _ := newContainer(t, Options{})
	plain := map[string]string{"content-type": wire.QueryType}
	for _, test := range []struct {
		headers        map[string]string
		query          string
		status         int
		sub, code, has string
	}{
		{plain, "SELECT * FROM c", 400, "0", "BadRequest", "Cross partition query is required but disabled"},
		{
			across("x-ms-documentdb-query-enablecrosspartition", "false"), "SELECT * FROM c", 400, "0", "BadRequest",
			"disabled",
		},
		{
			across(), "SELECT * FROM c ORDER BY c.id", 400, "1004", "BadRequest",
			"cross partition query can not be directly served by the gateway",
		},
		{across(), "SELECT TOP 1 * FROM c", 400, "1004", "BadRequest", "TOP"},
		{across(), "SELECT VALUE COUNT(1) FROM c", 400, "1004", "BadRequest", "aggregate"},
		{across(), "SELECT * FROM c WHERE c.pk IN ('a','b') ORDER BY c.id", 400, "1004", "BadRequest", "ORDER BY"},
		{across(), "SELECT COUNT(1) FROM c WHERE c.pk = 'a'", 400, "0", "BadRequest", "VALUE <AggregateFunc>"},
		{across(), "SELECT * FORM c", 400, "0", "BadRequest", "FORM"},
		{across(), "", 400, "0", "BadRequest", ""},
		{across("x-ms-continuation", "AAAA"), "SELECT * FROM c", 400, "0", "BadRequest", "x-ms-continuation"},
		{across("x-ms-continuation", "?"), "SELECT * FROM c", 400, "0", "BadRequest", "x-ms-continuation"},
		{across("x-ms-documentdb-partitionkeyrangeid", "9"), "SELECT * FROM c", 410, "1002", "Gone", "gone"},
		{across("x-ms-session-token", "0:-1#9"), "SELECT * FROM c", 404, "1002", "NotFound", "session"},
	} {
		t.Run(test.query+test.has, func(t *testing.T) {
			if m := w.ask(t, test.headers, test.query).refused(t, test.status, test.sub,
				test.code); !strings.Contains(m, test.has) {
				t.Errorf("%q does not tell of %q", m, test.has)
			}
		})
	}
	w.do(t, "POST", docs, across(), `[1]`).refused(t, 400, "0", "BadRequest")
	for _, query := range []string{"SELECT * FROM c WHERE c.pk = 'a' ORDER BY c.id", "SELECT * FROM c"} {
		w.ask(t, across("x-ms-documentdb-partitionkey", `["a"]`, "x-ms-documentdb-query-enablecrosspartition", ""),
			query).want(t, 200)
	}
	w.ask(t, plain, "SELECT VALUE COUNT(1) FROM c WHERE c.pk = 'a'").want(t, 200)
	w.ask(t, across(), "SELECT VALUE COUNT(1) FROM c WHERE c.pk = 'a'").want(t, 200)
	w.ask(t, across("x-ms-documentdb-partitionkey", `["a"]`), "SELECT COUNT(1) FROM c").want(t, 200)
	w.ask(t, across("x-ms-documentdb-partitionkeyrangeid", "0", "x-ms-documentdb-query-enablecrosspartition", ""),
		"SELECT VALUE COUNT(1) FROM c").want(t, 200)
}

func TestLenientQueriesCrossPartitions(t *testing.T) {
	w, _ := newRanges(t, Options{Lenient: true})
	plain := map[string]string{"content-type": wire.QueryType, "x-ms-max-item-count": "2"}
	if got := w.pages(t, "POST", plain, "SELECT * FROM c ORDER BY c.id DESC"); got != "e d|c b|a" {
		t.Errorf("sorted pages are %s", got)
	}
	a := w.ask(t, plain, "SELECT VALUE COUNT(1) FROM c").want(t, http.StatusOK)
	if !strings.Contains(string(a.body), `"Documents":[5]`) {
		t.Errorf("count is %s, want 5", a.body)
	}
}

// sorted is text with its words in order, and without the bars between pages.
func sortedWords(pages string) string {
	words := strings.Fields(strings.ReplaceAll(pages, "|", " "))
	counted := map[string]int{}
	for _, w := range words {
		counted[w]++
	}
	return fmt.Sprint(counted)
}

func TestQueryAndReadFeedOverRanges(t *testing.T) {
	w, cont := newRanges(t, Options{})
	want := sortedWords("a b c d e")
	for _, size := range []string{"", "1", "2", "3"} {
		if got := w.pages(t, "POST", across("x-ms-max-item-count", size), "SELECT * FROM c"); sortedWords(got) != want {
			t.Errorf("query by %s: %s", size, got)
		}
		if got := w.pages(t, "GET", map[string]string{"x-ms-max-item-count": size}, ""); sortedWords(got) != want {
			t.Errorf("feed by %s: %s", size, got)
		}
	}
	parts, err := cont.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var each []string
	for _, p := range parts {
		headers := across("x-ms-documentdb-partitionkeyrangeid", p.ID, "x-ms-documentdb-query-enablecrosspartition", "",
			"x-ms-max-item-count", "1")
		query := w.pages(t, "POST", headers, "SELECT * FROM c")
		feed := w.pages(t, "GET", map[string]string{
			"x-ms-documentdb-partitionkeyrangeid": p.ID,
			"x-ms-max-item-count":                 "1",
		}, "")
		keys := w.pages(t, "POST", headers, "SELECT * FROM c WHERE c.pk IN ('p','q','r','s','t') AND c.id > ''")
		if query != feed || sortedWords(keys) != sortedWords(query) {
			t.Errorf("range %s has %s by query, %s by keys, %s by feed", p.ID, query, keys, feed)
		}
		each = append(each, query)
	}
	if got := strings.Join(each, " "); sortedWords(got) != want {
		t.Errorf("all ranges have %s", got)
	}
	if got := w.pages(t, "GET", under("p"), ""); got != "a" {
		t.Errorf("feed of key p is %s", got)
	}
}

// TestPagesThroughSplits reads pages while the partitions are cut and joined between
// them, and while items move to the end: none that stays is missed.
func TestPagesThroughSplits(t *testing.T) {
	w, cont := newContainer(t, Options{})
	for i := range 40 {
		upsert(t, cont, fmt.Sprintf("k%d/i%d", i, i))
	}
	headers := across("x-ms-max-item-count", "3")
	seen := map[string]int{}
	moved := ""
	for page := 0; ; page++ {
		a := w.ask(t, headers, "SELECT * FROM c")
		for _, row := range a.list(t, "Documents") {
			seen[fmt.Sprint(row["id"])]++
		}
		next := a.header.Get("x-ms-continuation")
		if next == "" {
			break
		}
		headers["x-ms-continuation"] = next
		parts, err := cont.Partitions(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		switch page {
		case 2, 3, 6:
			_, err = cont.Split(t.Context(), parts[0].ID)
		case 4, 8:
			_, err = cont.Merge(t.Context(), parts[0].ID, parts[1].ID)
		case 5: // the last row of the page is written again
			rows := a.list(t, "Documents")
			moved = fmt.Sprint(rows[len(rows)-1]["id"])
			upsert(t, cont, "k"+moved[1:]+"/"+moved)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 40 {
		if id := fmt.Sprintf("i%d", i); seen[id] != 1 && (id != moved || seen[id] != 2) {
			t.Errorf("item %s came %d times", id, seen[id])
		}
	}
}

func TestPagesCutTransactions(t *testing.T) {
	w, _ := newContainer(t, Options{})
	batch := `[{"operationType":"Create","resourceBody":{"id":"a","pk":"p"}},{"operationType":"Create","resourceBody":{"id":"b","pk":"p"}},{"operationType":"Create","resourceBody":{"id":"c","pk":"p"}}]`
	w.do(t, "POST", docs, under("p", "x-ms-cosmos-is-batch-request", "true", "x-ms-cosmos-batch-atomic", "true"),
		batch).want(t, 200)
	w.item(t, "d", "")
	for want, headers := range map[string]map[string]string{
		"a b|c d|": across(),
		"a b|c d":  under("p", pairs(across())...),
	} {
		headers["x-ms-max-item-count"] = "2"
		if got := w.pages(t, "POST", headers, "SELECT * FROM c"); got != want {
			t.Errorf("pages are %s, want %s", got, want)
		}
	}
}

func TestContinuationsBelongToTheirContainer(t *testing.T) {
	w, cont := newContainer(t, Options{})
	other := w.create(t, "db", `{"id":"other","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}`, nil)
	for _, c := range []*docstore.Container{cont, other} {
		upsert(t, c, "p/a", "p/b", "p/c")
	}
	headers := across("x-ms-max-item-count", "1")
	token := w.ask(t, headers, "SELECT * FROM c WHERE c.pk = @p", "@p", `"p"`).want(t,
		200).header.Get("x-ms-continuation")
	headers["x-ms-continuation"] = token
	w.ask(t, headers, "SELECT * FROM c WHERE c.pk = @p", "@p", `"p"`).want(t, 200)
	w.do(t, "POST", "/dbs/db/colls/other/docs", headers,
		`{"query":"SELECT * FROM c WHERE c.pk = @p","parameters":[{"name":"@p","value":"p"}]}`).refused(t, 400, "0",
		"BadRequest")
	for i := range token {
		wrong := []byte(token)
		wrong[i] ^= 1
		headers["x-ms-continuation"] = string(wrong)
		if a := w.ask(t, headers, "SELECT * FROM c WHERE c.pk = @p", "@p", `"p"`); a.status != 400 &&
			string(wrong) != token && i < len(token)-1 {
			t.Fatalf("a token with byte %d changed is taken: %d", i, a.status)
		}
	}
}

func TestSortedRowsAreKeptBetweenPages(t *testing.T) {
	w, cont := newContainer(t, Options{})
	upsert(t, cont, "p/a", "p/b", "p/c")
	headers := under("p", pairs(across("x-ms-max-item-count", "1"))...)
	const query = "SELECT * FROM c ORDER BY c.id"
	first := w.ask(t, headers, query)
	headers["x-ms-continuation"] = first.want(t, 200).header.Get("x-ms-continuation")
	second := w.ask(t, headers, query)
	if ids := column(t, second.list(t, "Documents"), "id"); ids != "b" || second.read(t) != 0 {
		t.Errorf("second page is %s of %d documents, want b of none", ids, second.read(t))
	}
	w.restart(t)
	again := w.ask(t, headers, query)
	if ids := column(t, again.list(t, "Documents"), "id"); ids != "b" || again.read(t) != 3 {
		t.Errorf("second page without the kept rows is %s of %d documents, want b of 3", ids, again.read(t))
	}
	headers["x-ms-continuation"] = again.header.Get("x-ms-continuation")
	if got := w.pages(t, "POST", headers, query); got != "c" {
		t.Errorf("the rest is %s", got)
	}
	if bytes, queries := w.results.Kept(); bytes != 0 || queries != 0 {
		t.Errorf("%d bytes of %d queries are kept after the last page", bytes, queries)
	}
}

// A client goes on in the new ranges of a split with the continuation of the old one:
// each of the rows that were left comes once.
func TestSortedPagesGoOnBehindASplit(t *testing.T) {
	for _, test := range []struct {
		query, first, rest string
		kept               bool
	}{
		{"SELECT * FROM c ORDER BY c.id", "a b c", "d e f g h i", true},
		{"SELECT * FROM c ORDER BY c.id", "a b c", "d e f g h i", false},
		{"SELECT c.pk AS id, COUNT(1) AS n FROM c GROUP BY c.pk", "p q r", "s t u v w x", true},
	} {
		w, cont := newContainer(t, Options{})
		upsert(t, cont, "p/a", "q/b", "r/c", "s/d", "t/e", "u/f", "v/g", "w/h", "x/i")
		headers := across("x-ms-documentdb-partitionkeyrangeid", "0", "x-ms-max-item-count", "3")
		a := w.ask(t, headers, test.query)
		if got := column(t, a.list(t, "Documents"), "id"); got != test.first {
			t.Fatalf("%s: first page is %s, want %s", test.query, got, test.first)
		}
		parts, err := cont.Split(t.Context(), "0")
		if err != nil {
			t.Fatal(err)
		}
		if !test.kept {
			w.restart(t)
		}
		var rest []string
		for _, part := range parts {
			headers := across("x-ms-documentdb-partitionkeyrangeid", part.ID, "x-ms-max-item-count", "2",
				"x-ms-continuation", a.header.Get("x-ms-continuation"))
			rest = append(rest, strings.FieldsFunc(w.pages(t, "POST", headers, test.query), func(r rune) bool {
				return r == ' ' || r == '|'
			})...)
		}
		slices.Sort(rest)
		if got := strings.Join(rest, " "); got != test.rest {
			t.Errorf("%s, rows kept %v: the new ranges have %s, want %s", test.query, test.kept, got, test.rest)
		}
	}
}

func TestQueriesHoldSoMuchTogether(t *testing.T) {
	w, cont := newContainer(t, Options{})
	upsert(t, cont, "p/a", "p/b")
	others := w.load.Request(t.Context())
	if err := others.Hold(meter.MaxHeld - 100); err != nil {
		t.Fatal(err)
	}
	const query = "SELECT * FROM c ORDER BY c.id"
	a := w.ask(t, across("x-ms-documentdb-partitionkeyrangeid", "0"), query)
	a.refused(t, http.StatusTooManyRequests, "3200", "TooManyRequests")
	if got := a.header.Get("x-ms-retry-after-ms"); got != "1000" {
		t.Errorf("x-ms-retry-after-ms is %q, want 1000", got)
	}
	others.End()
	if got := w.pages(t, "POST", across("x-ms-documentdb-partitionkeyrangeid", "0"), query); got != "a b" ||
		w.load.Usage().Held != 0 {
		t.Errorf("rows are %s, and %d bytes are held afterwards", got, w.load.Usage().Held)
	}
}

func TestEachRowThatAQueryHoldsCountsOnce(t *testing.T) {
	w := newThousand(t)
	headers := across("x-ms-documentdb-partitionkeyrangeid", "0", "x-ms-max-item-count", "-1")
	a := w.ask(t, headers, "SELECT * FROM c ORDER BY c.id").want(t, http.StatusOK)
	if n := a.header.Get("x-ms-item-count"); n != "1001" {
		t.Errorf("%s rows, want 1001", n)
	}
}

// To look for ids takes its time also where there are none.
func TestIDsThatDoNotExistAreCharged(t *testing.T) {
	w, _ := newContainer(t, Options{})
	ids := make([]string, 5000)
	for i := range ids {
		ids[i] = fmt.Sprintf(`"%d"`, i)
	}
	const query = "SELECT * FROM c WHERE ARRAY_CONTAINS(@ids, c.id)"
	a := w.ask(t, under("p", pairs(across())...), query, "@ids", "["+strings.Join(ids, ",")+"]").want(t, http.StatusOK)
	if ru := a.charge(t); ru < 30 || a.read(t) != 0 {
		t.Errorf("5,000 lookups that find %d items are %.2f RU, want 30 or more", a.read(t), ru)
	}
}

// Clients give up on a page that does not come, and a filter may match nothing in millions of documents.
func TestAPageEndsAfterAWhileWithWhatWasFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := newContainer(t, Options{})
		for _, id := range []string{"a", "b", "c"} { // each so large that its reader needs a turn
			w.item(t, id, `,"n":1,"text":"`+strings.Repeat("x", meter.FreeWork)+`"`)
		}
		others := make([]meter.Request, w.load.Usage().MaxTurns)
		for i := range others {
			others[i] = w.load.Request(t.Context())
			if err := others[i].Work(meter.FreeWork); err != nil {
				t.Fatal(err)
			}
		}
		go func() {
			time.Sleep(6 * time.Second)
			for i := range others {
				others[i].End()
			}
		}()
		a := w.ask(t, across("x-ms-documentdb-partitionkeyrangeid", "0"), "SELECT c.id FROM c WHERE c.n = 2")
		if rows := a.list(t, "Documents"); len(rows) > 0 || a.header.Get("x-ms-continuation") == "" {
			t.Errorf("%d rows and the continuation %q after 6 s, want none and one", len(rows),
				a.header.Get("x-ms-continuation"))
		}
	})
}

func TestManyLargeDocumentsAreLookedUp(t *testing.T) {
	w, _ := newContainer(t, Options{})
	var ids, want []string
	for i := range 6 {
		id := string(rune('f' - i))
		w.item(t, id, `,"v":"`+strings.Repeat("x", 2_000_000)+`"`)
		ids, want = append(ids, "'"+id+"'"), append(want, id)
	}
	query := "SELECT c.id FROM c WHERE c.id IN (" + strings.Join(ids, ",") + ")"
	if got := w.pages(t, "POST", map[string]string{
		"content-type":                 wire.QueryType,
		"x-ms-documentdb-partitionkey": `["p"]`,
	}, query); got != strings.Join(want, " ") {
		t.Errorf("ids are %s, want %s", got, want)
	}
}

func TestQueryOfAPartIsNotConfusedWithOneOfTheWhole(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.item(t, "a", `,"xs":[{"id":"z","pk":"q"}]`)
	for _, query := range []string{
		"SELECT VALUE x FROM x IN c.xs WHERE x.pk = 'q' AND x.id = 'z'",
		"SELECT x.id FROM c JOIN x IN c.xs WHERE x.pk = 'q' AND x.id = 'z'",
	} {
		if got := column(t, w.ask(t, across(), query).list(t, "Documents"), "id"); got != "z" {
			t.Errorf("%s has %q, want z", query, got)
		}
	}
}

// A client that merges ranges reads a key whose last levels are open in each range that has a part of it.
func TestAKeyThatLacksLevelsIsReadRangeByRange(t *testing.T) {
	w := newWorld(t, Options{})
	cont := w.create(t, "db", `{"id":"c","partitionKey":{"paths":["/pk","/id"],"kind":"MultiHash","version":2}}`, nil)
	for i := range 20 {
		upsert(t, cont, fmt.Sprintf("p/%d", i))
	}
	cut, err := cont.Locate(t.Context(), feed.Key("p", "7"))
	if err != nil {
		t.Fatal(err)
	}
	parts, err := cont.SplitAt(t.Context(), "0", cut)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, part := range parts {
		headers := across("x-ms-documentdb-partitionkey", `["p"]`, "x-ms-documentdb-partitionkeyrangeid", part.ID)
		for _, row := range w.ask(t, headers, "SELECT * FROM c").list(t, "Documents") {
			seen[fmt.Sprint(row["id"])]++
		}
	}
	for i := range 20 {
		if n := seen[fmt.Sprint(i)]; n != 1 {
			t.Errorf("item %d came %d times", i, n)
		}
	}
}

func TestQueryWithoutFrom(t *testing.T) {
	w, cont := newContainer(t, Options{})
	upsert(t, cont, "p/a", "p/b")
	a := w.ask(t, across(), "SELECT VALUE 1 + 1").want(t, 200)
	if !strings.Contains(string(a.body), `"Documents":[2],"_count":1`) {
		t.Errorf("answer is %s, want 2 once", a.body)
	}
}

// The one row of a query without FROM comes once, and its subqueries read the container: all of it, whichever range is
// asked, or the partition key that a header names.
func TestASubqueryOfAQueryWithoutFromReadsTheContainer(t *testing.T) {
	w, cont := newRanges(t, Options{})
	const query = "SELECT VALUE (SELECT VALUE COUNT(1) FROM root c)"
	var p plan
	w.ask(t, planned(""), query).want(t, 200).into(t, &p)
	parts, err := cont.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(parts) < 2 || len(p.Ranges) != 1 || p.Ranges[0].Max != parts[0].Range.Min || p.Info.RewrittenQuery != "" {
		t.Errorf("the plan is %+v for ranges %v, want the begin of the first and the query as it is", p,
			parts)
	}
	for _, headers := range []map[string]string{across(), across("x-ms-documentdb-partitionkeyrangeid", parts[1].ID)} {
		if a := w.ask(t, headers, query).want(t, 200); !strings.Contains(string(a.body), `"Documents":[5],"_count":1`) {
			t.Errorf("with %v: %s, want 5 once", headers, a.body)
		}
	}
	rows := w.ask(t, across(), "SELECT * FROM c WHERE c.id = 'a'").list(t, "Documents")
	ofKey := across("x-ms-documentdb-partitionkey", fmt.Sprintf("[%q]", rows[0]["pk"]))
	of := len(w.ask(t, ofKey, "SELECT * FROM c").list(t, "Documents"))
	if a := w.ask(t, ofKey, query).want(t, 200); of == 5 ||
		!strings.Contains(string(a.body), fmt.Sprintf(`"Documents":[%d],"_count":1`, of)) {
		t.Errorf("of one key: %s, want %d", a.body, of)
	}
}

// Clients that merge ranges want the resource id of each row's document, whatever FROM makes of it.
func TestSortedRowsOfAnyFromHaveTheirDocumentsResourceID(t *testing.T) {
	w, cont := newRanges(t, Options{})
	parts, err := cont.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{
		"c", "(SELECT c.id, c.pk FROM c) c", "(SELECT VALUE d FROM d) c",
		"c IN (SELECT VALUE [d] FROM d)",
	} {
		var p plan
		w.ask(t, planned("OrderBy"), "SELECT * FROM "+from+" ORDER BY c.id").want(t, 200).into(t, &p)
		query := strings.ReplaceAll(p.Info.RewrittenQuery, "{documentdb-formattableorderbyquery-filter}", "true")
		rids := map[string]bool{}
		for _, part := range parts {
			for _, row := range w.ask(t, across("x-ms-documentdb-partitionkeyrangeid", part.ID), query).list(t,
				"Documents") {
				rid, _ := row["_rid"].(string)
				rids[rid] = true
			}
		}
		if len(rids) != 5 || rids[""] {
			t.Errorf("FROM %s: the resource ids are %v, want those of 5 documents", from, rids)
		}
	}
}
