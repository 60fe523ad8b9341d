package query

import (
	"encoding/base64"
	"fmt"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// Metrics that clients ask for by a header. The service measures more phases than there are
// here; names are kept, because SDKs parse them.

// IndexMetricsV2 is the answer to a question about indexes, of which there are none to
// choose: all that exist are used. It is JSON, for clients that ask for the second version.
const IndexMetricsV2 = `{"UtilizedIndexes":{"SingleIndexes":[],"CompositeIndexes":[]},"PotentialIndexes":{"SingleIndexes":[],"CompositeIndexes":[]}}`

// IndexMetrics is the same answer in the first version, whose JSON is in base64.
var IndexMetrics = base64.StdEncoding.EncodeToString([]byte(
	`{"UtilizedSingleIndexes":[],"PotentialSingleIndexes":[],"UtilizedCompositeIndexes":[],"PotentialCompositeIndexes":[]}`))

// Measure has the time be measured that the loading of documents takes, for [Query.Metrics].
func (q *Query) Measure() { q.scan.timed = true }

// leastLoading is the shortest time that is told: clients take 0 for documents that were not
// read.
const leastLoading = 10 * time.Microsecond

// Metrics are the query metrics of a page, in the service's form. Times that are not
// measured by themselves are part of the total.
func (q *Query) Metrics(page *wire.Documents) string {
	total := time.Since(q.begun)
	ratio := 1.0
	if q.scan.docs > 0 {
		ratio = min(1, float64(page.Count())/float64(q.scan.docs))
	}
	loading := q.scan.loading
	if q.scan.docs > 0 {
		loading = max(loading, leastLoading)
	}
	return fmt.Sprintf("totalExecutionTimeInMs=%.2f;queryCompileTimeInMs=%.2f;queryLogicalPlanBuildTimeInMs=0.00;"+
		"queryPhysicalPlanBuildTimeInMs=0.00;queryOptimizationTimeInMs=0.00;VMExecutionTimeInMs=%.2f;"+
		"indexLookupTimeInMs=0.00;instructionCount=0;documentLoadTimeInMs=%.2f;systemFunctionExecuteTimeInMs=0.00;"+
		"userFunctionExecuteTimeInMs=0.00;retrievedDocumentCount=%d;retrievedDocumentSize=%d;"+
		"outputDocumentCount=%d;outputDocumentSize=%d;writeOutputTimeInMs=0.00;indexUtilizationRatio=%.2f",
		milliseconds(total), milliseconds(q.compiled), milliseconds(total-q.compiled), milliseconds(loading),
		q.scan.docs, q.scan.bytes, page.Count(), page.Size(), ratio)
}

// milliseconds is a duration as the service writes it.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
