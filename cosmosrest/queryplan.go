package cosmosrest

import (
	"encoding/json"
	"net/http"

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
	plan, err := q.plan()
	if err != nil {
		return err
	}
	c.spend(q.cont, q.cont.PartitionAt(q.sel.rng.Min).ID, chargeQuery(0, 0, c.meter.work))
	return c.reply(http.StatusOK, plan)
}

// plan is the query's plan for the ranges that it is about.
func (q *query) plan() (json.RawMessage, error) {
	at, err := q.ranges()
	if err != nil {
		return nil, err
	}
	if len(at) == 0 { // the filter lets nothing pass
		at = []changefeed.Range{q.sel.rng}
	}
	var ranges []sql.KeyRange
	for _, r := range at {
		ranges = append(ranges, sql.KeyRange{Min: r.Min, Max: r.Max})
	}
	return q.bound.Plan(ranges)
}
