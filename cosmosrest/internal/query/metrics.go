package query

import (
	"encoding/base64"
	"fmt"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// Metrics that clients request with a header. The service measures more phases than this server; their names are
// kept, because SDKs parse them.

// usedIndex is an index in the first version of the index metrics.
type usedIndex struct {
	FilterExpression string
	IndexSpec        string
	FilterPreciseSet bool
	IndexPreciseSet  bool
	IndexImpactScore string
}

// IndexMetrics returns the index metrics in the first version, whose JSON is encoded in base64. If the request names a
// key, the only index is that of the key's paths, as in the service.
func (q *Query) IndexMetrics() string {
	used := []usedIndex{}
	if q.sel.Key != "" {
		for _, path := range q.cont.Spec().Paths {
			used = append(used, usedIndex{"", path + "/?", true, true, "High"})
		}
	}
	return base64.StdEncoding.EncodeToString(wire.Encode(struct {
		UtilizedSingleIndexes, PotentialSingleIndexes, UtilizedCompositeIndexes, PotentialCompositeIndexes []usedIndex
	}{used, []usedIndex{}, []usedIndex{}, []usedIndex{}}))
}

// Measure turns on the measurement of the time for loading documents, for [Query.Metrics].
func (q *Query) Measure() { q.scan.timed = true }

// leastLoading is the shortest loading time that is reported, because clients interpret 0 as no documents read.
const leastLoading = 10 * time.Microsecond

// Metrics returns the query metrics of a page, in the service's form. As there, a query that only counts reads no
// documents. Phases that are not measured separately are
// part of the total.
func (q *Query) Metrics(page *wire.Documents) string {
	total := time.Since(q.begun)
	ratio := 1.0
	docs, bytes := q.scan.docs, q.scan.bytes
	if q.parsed.CountsOnly() {
		docs, bytes = 0, 0
	}
	if docs > 0 {
		ratio = min(1, float64(page.Count())/float64(docs))
	}
	loading := q.scan.loading
	if docs > 0 {
		loading = max(loading, leastLoading)
	}
	return fmt.Sprintf("totalExecutionTimeInMs=%.2f;queryCompileTimeInMs=%.2f;queryLogicalPlanBuildTimeInMs=0.00;"+
		"queryPhysicalPlanBuildTimeInMs=0.00;queryOptimizationTimeInMs=0.00;VMExecutionTimeInMs=%.2f;"+
		"indexLookupTimeInMs=0.00;instructionCount=0;documentLoadTimeInMs=%.2f;systemFunctionExecuteTimeInMs=0.00;"+
		"userFunctionExecuteTimeInMs=0.00;retrievedDocumentCount=%d;retrievedDocumentSize=%d;"+
		"outputDocumentCount=%d;outputDocumentSize=%d;writeOutputTimeInMs=0.00;indexUtilizationRatio=%.2f",
		milliseconds(total), milliseconds(q.compiled), milliseconds(total-q.compiled), milliseconds(loading),
		docs, bytes, page.Count(), page.Size(), ratio)
}

// milliseconds returns a duration as the service writes it.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
