package cosmosrest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Each clause of a query sees computed properties; SELECT * and the documents do not have them.
func TestQueriesNameComputedProperties(t *testing.T) {
	w := newWorld(t, Options{})
	const low = `{"name":"low","query":"SELECT VALUE LOWER(x.name) FROM x"}`
	const container = `{"id":"c","partitionKey":{"paths":["/pk"]},"computedProperties":[%s],"indexingPolicy":` +
		`{"includedPaths":[{"path":"/*"},{"path":"/low/?"}]}}`
	w.create(t, "db", fmt.Sprintf(container,
		low+`,{"name":"pair","query":"SELECT VALUE {a: x.n, b: [x.n * 2]} FROM x"}`), nil)
	w.item(t, "1", `,"name":"Bee","n":1`)
	w.item(t, "2", `,"name":"ANT","n":2`)
	w.item(t, "3", `,"name":"bee","n":3,"low":"hidden"`)
	w.item(t, "4", `,"n":4`)
	rows := func(query string) string {
		t.Helper()
		_, rest, _ := strings.Cut(string(w.ask(t, across("x-ms-documentdb-partitionkey", `["p"]`), query).want(t,
			http.StatusOK).body), `"Documents":`)
		documents, _, _ := strings.Cut(rest, `,"_count"`)
		return documents
	}
	for _, test := range []struct{ query, want string }{
		{`SELECT VALUE c.id FROM c WHERE c.low = 'bee' ORDER BY c.id`, `["1","3"]`},
		{`SELECT VALUE c.low FROM c WHERE IS_DEFINED(c.low) ORDER BY c.low DESC`, `["bee","bee","ant"]`},
		{`SELECT c.low, COUNT(1) AS n FROM c WHERE c.n = 2 GROUP BY c.low`, `[{"low":"ant","n":1}]`},
		{`SELECT VALUE x.pair.b[0] FROM x WHERE x['pair'].a > 3`, `[8]`},
		{`SELECT VALUE b FROM c JOIN b IN c.pair.b WHERE c.id = '2'`, `[4]`},
		{`SELECT VALUE c.id FROM c WHERE c.high = 'BEE'`, `[]`},
		{`SELECT VALUE SUM(c.pair.a) FROM c`, `[10]`},
	} {
		if got := rows(test.query); got != test.want {
			t.Errorf("%s: got %s, want %s", test.query, got, test.want)
		}
	}
	if got := rows(`SELECT * FROM c WHERE c.id = '1'`); strings.Contains(got, "low") || strings.Contains(got, "pair") {
		t.Errorf("SELECT * shows computed properties: %s", got)
	}
	// without the policy the name means the document's own member again
	w.do(t, "PUT", "/dbs/db/colls/c", nil, fmt.Sprintf(container, "")).want(t, http.StatusOK)
	if got, want := rows(`SELECT VALUE c.low FROM c`), `["hidden"]`; got != want {
		t.Errorf("after the policy is gone: got %s, want %s", got, want)
	}
}

func TestComputedPropertiesThatTheServiceRefuses(t *testing.T) {
	w := newWorld(t, Options{})
	w.do(t, "POST", "/dbs", nil, `{"id":"db"}`).want(t, http.StatusCreated)
	many := strings.Repeat(`,{"name":"n","query":"SELECT VALUE c.a FROM c"}`, maxComputed+1)[1:]
	for name, policy := range map[string]string{
		"no list":          `{"name":"low","query":"SELECT VALUE LOWER(c.a) FROM c"}`,
		"two of a name":    `[{"name":"a","query":"SELECT VALUE c.b FROM c"},{"name":"a","query":"SELECT VALUE c.c FROM c"}]`,
		"no name":          `[{"query":"SELECT VALUE c.b FROM c"}]`,
		"a system name":    `[{"name":"_ts","query":"SELECT VALUE c.b FROM c"}]`,
		"no query":         `[{"name":"a"}]`,
		"a syntax error":   `[{"name":"a","query":"SELECT VALUE FROM c"}]`,
		"no VALUE":         `[{"name":"a","query":"SELECT c.b FROM c"}]`,
		"no FROM":          `[{"name":"a","query":"SELECT VALUE 1"}]`,
		"a filter":         `[{"name":"a","query":"SELECT VALUE c.b FROM c WHERE c.b > 1"}]`,
		"a join":           `[{"name":"a","query":"SELECT VALUE b FROM c JOIN b IN c.b"}]`,
		"an aggregate":     `[{"name":"a","query":"SELECT VALUE COUNT(1) FROM c"}]`,
		"a limit":          `[{"name":"a","query":"SELECT TOP 1 VALUE c.b FROM c"}]`,
		"a parameter":      `[{"name":"a","query":"SELECT VALUE @p FROM c"}]`,
		"no term":          `[{"name":"a","query":"SELECT VALUE FullTextContains(c.t, 5) FROM c"}]`,
		"more than twenty": `[` + many + `]`,
	} {
		t.Run(name, func(t *testing.T) {
			a := w.do(t, "POST", "/dbs/db/colls", nil,
				`{"id":"c","partitionKey":{"paths":["/pk"]},"computedProperties":`+policy+`}`)
			a.refused(t, http.StatusBadRequest, "0", "BadRequest")
			for _, words := range []string{"One of the specified inputs is invalid", "computedProperties"} {
				if !strings.Contains(string(a.body), words) {
					t.Errorf("got %s, want it to say %q", a.body, words)
				}
			}
		})
	}
}
