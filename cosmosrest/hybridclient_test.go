package cosmosrest

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// The component queries of a hybrid search are answered by a strict server too: their ORDER BY takes functions that
// only plans have. Together the partitions have all rows.
func TestAClientRunsTheComponentsOfAHybridSearch(t *testing.T) {
	w := newWorld(t, Options{})
	cont := w.create(t, "db", `{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},
		"vectorEmbeddingPolicy":{"vectorEmbeddings":[
			{"path":"/v","dataType":"float32","distanceFunction":"cosine","dimensions":2}]},
		"fullTextPolicy":{"defaultLanguage":"en-US","fullTextPaths":[{"path":"/t","language":"en-US"}]}}`,
		map[string]string{"x-ms-offer-throughput": "40000"})
	const items = 12
	for i := range items {
		body := fmt.Sprintf(`{"id":"%d","pk":"p%d","v":[%d,1],"t":"a fox"}`, i, i, i)
		if _, err := cont.Create(t.Context(), []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	for _, rank := range []string{
		"FullTextScore(c.t, 'fox')", "VectorDistance(c.v, [1, 0])", "FullTextScore(c.t, {'term': 'fix', 'distance': 1})",
		"RRF(FullTextScore(c.t, 'fox'), VectorDistance(c.v, [1, 0]))",
	} {
		text := `{"query":"SELECT TOP 20 c.id FROM c ORDER BY RANK ` + rank + `"}`
		var plan struct {
			Search struct {
				GlobalStatisticsQuery string
				ComponentQueryInfos   []struct{ RewrittenQuery string }
			} `json:"hybridSearchQueryInfo"`
		}
		w.do(t, "POST", docs, planned(everyFeature), text).want(t, http.StatusOK).into(t, &plan)
		if len(plan.Search.ComponentQueryInfos) == 0 {
			t.Errorf("%s: the plan has no component", rank)
		}
		for _, component := range plan.Search.ComponentQueryInfos {
			if rows := w.componentRows(t, component.RewrittenQuery, items); rows != items {
				t.Errorf("%s: %d rows, want %d: %s", rank, rows, items, component.RewrittenQuery)
			}
		}
	}
}

// componentRows returns how many rows the partitions answer to a component query; all items have one hit in two words.
func (w *world) componentRows(t *testing.T, query string, items int) (rows int) {
	t.Helper()
	query = strings.NewReplacer("{documentdb-formattableorderbyquery-filter}", "true",
		"{documentdb-formattablehybridsearchquery-totaldocumentcount}", strconv.Itoa(items),
		"{documentdb-formattablehybridsearchquery-totalwordcount-0}", strconv.Itoa(2*items),
		"{documentdb-formattablehybridsearchquery-hitcountsarray-0}", fmt.Sprintf("[%d]", items)).Replace(query)
	for part := range 4 {
		found := w.do(t, "POST", docs, across("x-ms-documentdb-partitionkeyrangeid", strconv.Itoa(part)),
			jsonOf(map[string]any{"query": query})).want(t, http.StatusOK).list(t, "Documents")
		rows += len(found)
	}
	return rows
}
