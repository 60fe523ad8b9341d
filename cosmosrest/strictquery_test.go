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
