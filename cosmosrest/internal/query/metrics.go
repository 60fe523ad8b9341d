package query

import (
	"encoding/base64"
	"fmt"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// Metrics that clients ask for by a header. The service measures more phases than there are
// here; names are kept, because SDKs parse them.

// IndexMetrics is the answer to a question about indexes, of which there are none to
// choose: all that exist are used.
var IndexMetrics = base64.StdEncoding.EncodeToString([]byte(
	`{"UtilizedSingleIndexes":[],"PotentialSingleIndexes":[],"UtilizedCompositeIndexes":[],"PotentialCompositeIndexes":[]}`))

// Metrics are the query metrics of a page, in the service's form. Times that are not
// measured by themselves are part of the total.
func (q *Query) Metrics(page *wire.Documents) string {
	total := time.Since(q.begun)
	ratio := 1.0
	if q.scan.docs > 0 {
		ratio = min(1, float64(page.Count())/float64(q.scan.docs))
	}
	return fmt.Sprintf("totalExecutionTimeInMs=%.2f;queryCompileTimeInMs=%.2f;queryLogicalPlanBuildTimeInMs=0.00;"+
		"queryPhysicalPlanBuildTimeInMs=0.00;queryOptimizationTimeInMs=0.00;VMExecutionTimeInMs=%.2f;"+
		"indexLookupTimeInMs=0.00;instructionCount=0;documentLoadTimeInMs=0.00;systemFunctionExecuteTimeInMs=0.00;"+
		"userFunctionExecuteTimeInMs=0.00;retrievedDocumentCount=%d;retrievedDocumentSize=%d;"+
		"outputDocumentCount=%d;outputDocumentSize=%d;writeOutputTimeInMs=0.00;indexUtilizationRatio=%.2f",
		milliseconds(total), milliseconds(q.compiled), milliseconds(total-q.compiled),
		q.scan.docs, q.scan.bytes, page.Count(), page.Size(), ratio)
}

// milliseconds is a duration as the service writes it.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
