package cosmosrest

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

// Rows without ORDER BY come in the order of creation, also after replaces, patches and upserts, and a document that
// is written between two pages comes once: in a query, in a query of one key, and in a feed of items.
func TestRowsKeepTheirPlacesWhenDocumentsAreWritten(t *testing.T) {
	for name, c := range map[string]struct {
		method, query string
		headers       map[string]string
	}{
		"a query":            {"POST", "SELECT * FROM c", across("x-ms-documentdb-partitionkeyrangeid", "0")},
		"a query of one key": {"POST", "SELECT * FROM c", queryOf("p")},
		"a query of ids":     {"POST", "SELECT * FROM c WHERE c.id IN ('i0','i1','i2','i3','i4','i5','i6')", across()},
		"a feed of items":    {"GET", "", map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			w, cont := newContainer(t, Options{})
			for i := range 7 {
				w.item(t, fmt.Sprint("i", i), "")
			}
			w.do(t, "PUT", docs+"/i0", under("p"), `{"id":"i0","pk":"p","v":2}`).want(t, 200)
			w.do(t, "PATCH", docs+"/i2", under("p"), `[{"op":"set","path":"/v","value":3}]`).want(t, 200)
			w.do(t, "POST", docs, under("p", "x-ms-documentdb-is-upsert", "true"), `{"id":"i4","pk":"p","v":4}`).want(t,
				200)
			headers := map[string]string{"x-ms-max-item-count": "2"}
			maps.Copy(headers, c.headers)
			body := ""
			if c.query != "" {
				body = fmt.Sprintf(`{"query":%q}`, c.query)
			}
			var got []string
			for page := 0; ; page++ {
				a := w.do(t, c.method, docs, headers, body).want(t, 200)
				if ids := column(t, a.list(t, "Documents"), "id"); ids != "" {
					got = append(got, ids)
				}
				next := a.header.Get("x-ms-continuation")
				if next == "" || page > 9 {
					break
				}
				headers["x-ms-continuation"] = next
				for _, id := range []string{"i1", "i3", "i6"} { // between two pages
					w.do(t, "PUT", docs+"/"+id, under("p"), `{"id":"`+id+`","pk":"p","v":5}`).want(t, 200)
				}
				if page == 0 && name != "a query" {
					if _, err := cont.Split(t.Context(), "0"); err != nil {
						t.Fatal(err)
					}
				}
			}
			if ids, want := strings.Join(got, " "), "i0 i1 i2 i3 i4 i5 i6"; ids != want {
				t.Errorf("the rows are %s, want %s", ids, want)
			}
		})
	}
}

// A strict server refuses what the service refuses; a lenient server serves it.
func TestStrictQueries(t *testing.T) {
	strict, _ := newContainer(t, Options{})
	lenient, _ := newContainer(t, Options{Lenient: true})
	ofKey := queryOf("p")
	for _, w := range []*world{strict, lenient} {
		w.create(t, "db", `{"id":"sorted","partitionKey":`+simpleKey+`,"indexingPolicy":{"indexingMode":"consistent",`+
			`"includedPaths":[{"path":"/*"}],"compositeIndexes":[[{"path":"/a","order":"ascending"},`+
			`{"path":"/b/c","order":"descending"}]]}}`, nil)
	}
	for query, says := range map[string]string{
		"SELECT * FROM c ORDER BY c.n + 1": `"code":2206,"message":"Unsupported ORDER BY clause.`,
		"SELECT * FROM c ORDER BY c.a, c.b": "The order by query does not have a corresponding composite index that " +
			"it can be served from.",
		"SELECT * FROM (SELECT TOP 1 * FROM c) AS d": `"code":"SC2203"`,
	} {
		if m := strict.ask(t, ofKey, query).refused(t, 400, "0", "BadRequest"); !strings.Contains(m, says) {
			t.Errorf("%s: %s, want %s", query, m, says)
		}
		lenient.ask(t, ofKey, query).want(t, 200)
	}
	for query, status := range map[string]int{
		"SELECT * FROM c ORDER BY c.a, c.b.c DESC":      200,
		"SELECT * FROM c ORDER BY c.a DESC, c.b.c":      200,
		"SELECT * FROM c ORDER BY c.a, c.b.c":           400,
		"SELECT * FROM c ORDER BY c.b.c DESC, c.a":      400,
		"SELECT * FROM c ORDER BY c.a":                  200,
		"SELECT * FROM c ORDER BY c.a, c.b.c DESC, c.d": 400,
	} {
		strict.do(t, "POST", "/dbs/db/colls/sorted/docs", ofKey, fmt.Sprintf(`{"query":%q}`, query)).want(t, status)
	}
	for limit, status := range map[string]int{"0": 400, "-1": 400, "x": 400, "1": 200} {
		h := queryOf("p")
		h["x-ms-documentdb-responsecontinuationtokenlimitinkb"] = limit
		strict.ask(t, h, "SELECT * FROM c").want(t, status)
	}
	direct := across("x-ms-documentdb-partitionkeyrangeid", "0", "x-ms-cosmos-query-optimisticdirectexecute", "True")
	header := strict.ask(t, direct, "SELECT * FROM c").header
	if got := header.Get("x-ms-cosmos-query-requiresdistribution"); got != "False" {
		t.Errorf("a query of one range requires distribution: %q, want False", got)
	}
	a := strict.ask(t, ofKey, "SELECT 1/0 AS x, 1 AS y")
	if m := a.refused(t, 400, "4001", "BadRequest"); !strings.Contains(m, "a numeric value that cannot be") {
		t.Errorf("1/0: %s", m)
	}
}

func TestItemsThatAreLookedUpArePagedInTheOrderOfTheirWrites(t *testing.T) {
	w, cont := newContainer(t, Options{})
	upsert(t, cont, "p/d", "p/b", "p/c", "p/a", "p/e")
	headers := across("x-ms-documentdb-partitionkey", `["p"]`, "x-ms-max-item-count", "2")
	const query = "SELECT * FROM c WHERE c.id IN ('a', 'b', 'c', 'd')"
	if got := w.pages(t, "POST", headers, query); got != "d b|c a" {
		t.Errorf("pages are %s", got)
	}
	// The second page counts its own items only.
	headers["x-ms-continuation"] = w.ask(t, headers, query).header.Get("x-ms-continuation")
	if n := w.ask(t, headers, query).read(t); n != 2 {
		t.Errorf("the second page has read %d items, want 2", n)
	}
}
