package cosmosrest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"
)

// indexUseOf is the second version of the index metrics, with lists of single indexes.
func indexUseOf(used, potential string) string {
	return `{"UtilizedIndexes":{"SingleIndexes":[` + used + `],"CompositeIndexes":[]},"PotentialIndexes":{"SingleIndexes":[` +
		potential + `],"CompositeIndexes":[]}}`
}

// The first queries and their metrics are those of the .NET SDK's baselines, which the service has written.
func TestIndexMetricsNameThePathsOfTheFilter(t *testing.T) {
	w := newWorld(t, Options{})
	w.create(t, "db", `{"id":"c","partitionKey":{"paths":["/pk"]},"indexingPolicy":{"includedPaths":[{"path":"/*"}],
		"excludedPaths":[{"path":"/secret/*"},{"path":"/alone/?"}]}}`, nil)
	spec := func(path string) string { return `{"IndexSpec":"` + path + `"}` }
	for query, want := range map[string]string{
		"SELECT 'x' AS test, c.id, c.statement FROM c WHERE STARTSWITH(c.statement, 'The quick', false)": indexUseOf(
			spec(`\/statement\/?`), ""),
		"SELECT VALUE STARTSWITH(r['ı'], 's', false) FROM root r": indexUseOf(spec(`\/ı\/?`), ""),
		`SELECT VALUE STARTSWITH(r[' !"!@#$%^&*()<>?:"{}|ßÃ'], 's', true) FROM root r`: indexUseOf(
			spec(`\/\" !\\\"!@#$%^&*()<>?:\\\"{}|ßÃ\"\/?`), ""),
		"SELECT VALUE STARTSWITH(r['Der schnelle Braunfuchs'], 's', true) FROM root r": indexUseOf(
			spec(`\/\"Der schnelle Braunfuchs\"\/?`), ""),
		"SELECT * FROM root r WHERE r.aaa = 0": indexUseOf(spec(`\/aaa\/?`), ""),
		"SELECT * FROM c WHERE (1 < c.a.b OR c.l[0].x IN (1, 2)) AND c.d BETWEEN 1 AND 2 AND c.a.b != 3": indexUseOf(
			spec(`\/a\/b\/?`)+","+spec(`\/l\/[]\/x\/?`)+","+spec(`\/d\/?`), ""),
		"SELECT * FROM c WHERE c.a = c.b AND c.a + 1 = 2 AND LENGTH(c.s) > 1": indexUseOf("", ""),
		"SELECT * FROM c ORDER BY c.n DESC":                                   indexUseOf(spec(`\/n\/?`), ""),
		"SELECT * FROM c WHERE c.secret.x = 1 AND c.alone = 1 AND c.alone.x = 1": indexUseOf(spec(`\/alone\/x\/?`),
			spec(`\/secret\/x\/?`)+","+spec(`\/alone\/?`)),
		"SELECT VALUE x FROM (SELECT VALUE c.y FROM c) AS x WHERE x = 1": indexUseOf("", ""),
	} {
		header := w.ask(t, across("x-ms-documentdb-partitionkeyrangeid", "0", "x-ms-cosmos-populateindexmetrics-V2",
			"True"), query).want(t, http.StatusOK).header.Get("x-ms-cosmos-index-utilization")
		got, err := url.QueryUnescape(header)
		if err != nil || got != want || !json.Valid([]byte(got)) {
			t.Errorf("%s:\n%s, %v, want\n%s", query, header, err, want)
		}
	}
}
