package cosmosrest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

const (
	excludedSort = "The index path corresponding to the specified order-by item is excluded."
	lowOfA       = `,"computedProperties":[{"name":"low","query":"SELECT VALUE LOWER(c.a) FROM c"}]`
)

// sortedContainers are containers by their indexing policies, with the keys of ORDER BY that an index serves or not.
var sortedContainers = []struct{ policy, more, served, refused string }{
	{``, ``, "c.a|c.a.b.c|c['x y']|c.l[0].n|c._rid|c._ts|c.id", "c._etag"},
	{
		`"includedPaths":[{"path":"/a/?"},{"path":"/o/*"},{"path":"/\"x y\"/?"},{"path":"/l/[]/n/?"}],` +
			`"excludedPaths":[{"path":"/*"}]`, ``,
		"c.a|c.o|c.o.p|c.o.p.q|c['x y']|c.l[3].n|c.id|c._ts|(c.a)", "c.n|c.a.b|c.ab|c.l|c['x']|c._rid",
	},
	{
		`"includedPaths":[{"path":"/*"},{"path":"/a/b/c/?"}],"excludedPaths":[{"path":"/a/*"},{"path":"/n/?"}]`, ``,
		"c.b|c.a.b.c|c.n.m", "c.n|c.a|c.a.b|c.a.x",
	},
	{`"indexingMode":"none"`, ``, "", "c.a|c.id|c._ts"},
	// Wildcards leave out computed properties.
	{`"includedPaths":[{"path":"/*"}]`, lowOfA, "c.a|c.lower", "c.low|c.low.x"},
	{`"includedPaths":[{"path":"/*"},{"path":"/low/?"}]`, lowOfA, "c.low|c.a", "c.low.x"},
	{`"includedPaths":[{"path":"/low/*"}],"excludedPaths":[{"path":"/*"}]`, lowOfA, "c.low|c.low.x", "c.a"},
	// A composite index serves its own sort, whatever the other paths say.
	{
		`"compositeIndexes":[[{"path":"/n"},{"path":"/m"}]],"excludedPaths":[{"path":"/n/?"}]`, ``,
		"c.n, c.m|c.n DESC, c.m DESC|c.m", "c.n|c.n DESC",
	},
	// Not a sort by an index of paths.
	{
		`"excludedPaths":[{"path":"/*"}]`, `,"vectorEmbeddingPolicy":{"vectorEmbeddings":[{"path":"/v",` +
			`"dataType":"float32","dimensions":2,"distanceFunction":"cosine"}]}`,
		"RANK FullTextScore(c.t, 'a')|VectorDistance(c.v, [1, 2])", "c.t|c.v",
	},
}

// A sort by one path needs an index of the path; the most precise path of the indexing policy decides.
func TestASortByAPathThatTheIndexingPolicyExcludes(t *testing.T) {
	strict, _ := newContainer(t, Options{})
	lenient, _ := newContainer(t, Options{Lenient: true})
	for i, test := range sortedContainers {
		for _, w := range []*world{strict, lenient} {
			w.do(t, "POST", "/dbs/db/colls", nil, fmt.Sprintf(`{"id":"t%d","partitionKey":%s,"indexingPolicy":{%s}%s}`, i,
				simpleKey, test.policy, test.more)).want(t, http.StatusCreated)
		}
		ask := func(w *world, key string) answer {
			return w.do(t, "POST", fmt.Sprintf("/dbs/db/colls/t%d/docs", i), queryOf("p"), fmt.Sprintf(`{"query":%q}`,
				"SELECT TOP 5 * FROM c ORDER BY "+key))
		}
		for key := range strings.SplitSeq(test.served, "|") {
			if key != "" {
				ask(strict, key).want(t, http.StatusOK)
			}
		}
		for key := range strings.SplitSeq(test.refused, "|") {
			if m := ask(strict, key).refused(t, 400, "0", "BadRequest"); !strings.Contains(m, excludedSort) {
				t.Errorf("%s by %s: %s, want %s", test.policy, key, m, excludedSort)
			}
			ask(lenient, key).want(t, http.StatusOK)
		}
	}
}

// The planner does not know the indexes. Queries that do not sort by a path of the document need no index, and the
// feed from the newest item sorts without one.
func TestQueriesThatNeedNoIndexOfAPath(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.do(t, "POST", "/dbs/db/colls", nil, `{"id":"none","partitionKey":`+simpleKey+
		`,"indexingPolicy":{"indexingMode":"none"}}`).want(t, http.StatusCreated)
	ask := func(query string, more ...string) answer {
		return w.do(t, "POST", "/dbs/db/colls/none/docs", under("p", append(more, "content-type",
			"application/query+json", "x-ms-documentdb-isquery", "True")...), fmt.Sprintf(`{"query":%q}`, query))
	}
	for _, query := range []string{
		"SELECT * FROM c WHERE c.n > 1", "SELECT c.n, COUNT(1) AS k FROM c GROUP BY c.n", "SELECT DISTINCT c.n FROM c",
		"SELECT VALUE r FROM (SELECT VALUE c FROM c) AS r ORDER BY r.n", "SELECT VALUE MAX(c.n) FROM c",
	} {
		ask(query).want(t, http.StatusOK)
	}
	for _, query := range []string{"SELECT * FROM c ORDER BY c.n", "SELECT VALUE COUNT(1) FROM c ORDER BY c.n"} {
		ask(query).want(t, http.StatusBadRequest)
		ask(query, "x-ms-cosmos-is-query-plan-request", "True", "x-ms-cosmos-supported-query-features",
			everyFeature).want(t, http.StatusOK)
	}
	w.do(t, "GET", "/dbs/db/colls/none/docs", map[string]string{"x-ms-enumeration-direction": "Reverse"}, "").want(t,
		http.StatusOK)
}

// The service's limits of a query apply to its plan too. A lenient server has only those that it needs itself.
func TestTheLimitsOfAQuery(t *testing.T) {
	strict, _ := newContainer(t, Options{})
	lenient, _ := newContainer(t, Options{Lenient: true})
	joins := func(n int) (text string) {
		for i := range n {
			text += fmt.Sprintf(" JOIN t%d IN c.x", i)
		}
		return text
	}
	items := func(n int) string { return "c.n IN (1" + strings.Repeat(",1", n-1) + ")" }
	const most = 512 << 10
	for _, test := range []struct{ query, says string }{
		{"SELECT VALUE 1 FROM c" + joins(10), ""},
		{
			"SELECT VALUE 1 FROM c" + joins(11),
			`"code":"SC3002","message":"The SQL query exceeded the maximum number of joins. The allowed limit is 10. The ` +
				`query has 11."`,
		},
		{"SELECT VALUE 1 FROM c WHERE EXISTS(SELECT 1 FROM s IN c.y" + joins(6) + ") AND EXISTS(SELECT 1 FROM s IN c.y" +
			joins(5) + ")", "The allowed limit is 10. The query has 11."},
		{"SELECT VALUE 1 FROM c WHERE " + items(16_000), ""},
		{"SELECT VALUE 1 FROM c WHERE " + items(9_000) + " OR NOT " + items(9_000), ""},
		{
			"SELECT VALUE 1 FROM c WHERE c.a = 1 OR (c.b = 1 AND " + items(16_001) + ")",
			`"start":0,"end":32063},"message":"The SQL query exceeded the maximum number of items in an IN expression. The ` +
				`allowed limit is 16000. The query has 16001."`,
		},
		// SDKs that read many items send as many terms.
		{"SELECT VALUE 1 FROM c WHERE c.n = 1" + strings.Repeat(" OR (c.id = 'a' AND c.pk = 'p')", 3000), ""},
	} {
		for _, plan := range []string{"False", "True"} {
			h := under("p", "content-type", "application/query+json", "x-ms-documentdb-isquery", "True",
				"x-ms-cosmos-is-query-plan-request", plan)
			body := fmt.Sprintf(`{"query":%q}`, test.query)
			a := strict.do(t, "POST", "/dbs/db/colls/c/docs", h, body)
			if test.says == "" {
				a.want(t, http.StatusOK)
			} else if m := a.refused(t, 400, "0", "BadRequest"); !strings.Contains(m, test.says) {
				t.Errorf("%.60s: %.400s, want %s", test.query, m, test.says)
			}
			lenient.do(t, "POST", "/dbs/db/colls/c/docs", h, body).want(t, http.StatusOK)
		}
	}
	for n, status := range map[int]int{most: http.StatusOK, most + 1: http.StatusBadRequest} {
		query := "SELECT VALUE 1 FROM c"
		query += strings.Repeat(" ", n-len(query))
		for _, w := range []*world{strict, lenient} {
			body := fmt.Sprintf(`{"query":%q}`, query)
			a := w.do(t, "POST", "/dbs/db/colls/c/docs", queryOf("p"), body).want(t, status)
			says := `"start":0,"end":524289},"code":"SC3020","message":"The SQL query text exceeded the maximum limit of ` +
				`524288 characters."`
			if status != http.StatusOK && !strings.Contains(a.refused(t, 400, "0", "BadRequest"), says) {
				t.Errorf("a query of %d bytes: %s, want %s", n, a.body, says)
			}
		}
	}
}
