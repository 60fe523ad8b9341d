package cosmosrest

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmosrest/internal/sql"
)

// queryPlan serves POST docs with a query whose plan is asked for: how a client runs it
// over several partitions by itself.
func (c *call) queryPlan() error {
	q, err := c.newQuery()
	if err != nil {
		return err
	}
	plan, err := q.plan(c.supportedFeatures())
	if err != nil {
		return err
	}
	c.spend(q.cont, q.cont.PartitionAt(q.sel.rng.Min).ID, chargeQuery(0, 0, c.meter.work))
	return c.reply(http.StatusOK, plan)
}

// supportedFeatures tells whether a client says that it can do what a plan may ask of it. One that says nothing can do nothing.
func (c *call) supportedFeatures() func(feature string) bool {
	listed := map[string]bool{}
	for name := range strings.SplitSeq(c.header("X-Ms-Cosmos-Supported-Query-Features"), ",") {
		listed[strings.ToLower(strings.TrimSpace(name))] = true
	}
	return func(feature string) bool { return listed[strings.ToLower(feature)] }
}

// plan is the query's plan for the ranges that it is about, for a client that supports some features; nil is all.
func (q *query) plan(supports func(feature string) bool) (json.RawMessage, error) {
	at, err := q.ranges()
	if err != nil {
		return nil, err
	}
	if q.parsed.WithoutFrom() {
		at = []changefeed.Range{q.cont.PartitionAt(q.sel.rng.Min).Range}
	}
	if len(at) == 0 { // the filter lets nothing pass
		at = []changefeed.Range{q.sel.rng}
	}
	var ranges []sql.KeyRange
	for _, r := range at {
		ranges = append(ranges, sql.KeyRange{Min: r.Min, Max: r.Max})
	}
	return q.bound.Plan(ranges, supports)
}
