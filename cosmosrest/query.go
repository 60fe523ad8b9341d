package cosmosrest

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/millrace/changefeed/cosmosrest/internal/auth"
	"github.com/millrace/changefeed/cosmosrest/internal/query"
	"github.com/millrace/changefeed/cosmosrest/internal/sql"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Queries, plans and ReadFeed: the protocol around package query, which does the work.

// itemQuery is a query of the documents of a container.
type itemQuery struct {
	*query.Query
	cont *docstore.Container
	sel  query.Selection
	all  bool // the query is of the server itself, which may ask all partitions
}

// queryItems serves POST docs with a query, and answers with a page of rows.
func queryItems(c *call) error {
	q, err := newItemQuery(c)
	if err != nil {
		return err
	}
	return q.answer(c)
}

// answer answers with a page of the query's rows.
func (q *itemQuery) answer(c *call) (err error) {
	if err := c.in.CheckContinuationLimit(); err != nil {
		return err
	}
	if q.Max, err = c.in.PageRows(); err != nil {
		return err
	}
	if q.From, err = query.ParseContinuation(c.in.Header(wire.HeaderContinuation), q.cont.RID()); err != nil {
		return err
	}
	part, err := q.firstPartition(c)
	if err != nil {
		return err
	}
	if err := q.refuseSort(c); err != nil {
		return err
	}
	if err := c.admitRequest(q.cont, part.ID); err != nil {
		return err
	}
	c.out.SetSession(part.ID, q.cont.Newest(part.Range.Min))
	docs := wire.NewDocuments(q.cont.RID())
	defer docs.Free()
	metrics := c.in.Flag(wire.HeaderQueryMetrics)
	if metrics {
		q.Measure()
	}
	more, err := q.Page(docs)
	// Failed work is charged too; otherwise a query that always fails would be free.
	c.chargeRequest(q.cont, part.ID, q.Charge())
	if err != nil {
		return err
	}
	if more {
		if err := c.goOn(&q.From); err != nil {
			return err
		}
	}
	c.out.SetCount(docs.Count())
	c.out.SetQueried()
	// A query of a single range needs no merging of ranges. Without this header .NET asks for the first page again.
	if c.in.Flag(wire.HeaderDirectExecute) {
		c.out.Set(wire.AnswerDistribution, "False")
	}
	if metrics {
		c.out.Set(wire.AnswerQueryMetrics, q.Metrics(docs))
	}
	switch {
	case c.in.Flag(wire.HeaderIndexMetricsV2):
		c.out.Set(wire.AnswerIndexMetrics, q.indexMetrics())
	case c.in.Flag(wire.HeaderIndexMetrics):
		c.out.Set(wire.AnswerIndexMetrics, q.IndexMetrics())
	}
	return c.sendDocuments(http.StatusOK, docs.Finish())
}

// newItemQuery parses a query and decides how to find its documents. Compiling a long text is charged even if the
// query is invalid; otherwise clients could send invalid queries for free.
func newItemQuery(c *call) (q itemQuery, err error) {
	if err := c.allowAction(auth.Query); err != nil {
		return q, err
	}
	if q.cont, err = c.targetContainer(); err != nil {
		return q, err
	}
	text, err := c.queryText()
	if err != nil {
		return q, err
	}
	text.Computed = computedOf(q.cont)
	if q.sel, err = c.readSelection(q.cont); err != nil {
		return q, err
	}
	first := q.cont.PartitionAt(q.sel.Range.Min).ID
	// Only a long text is expensive enough to be refused before parsing.
	if text.Long() {
		if err := c.admitRequest(q.cont, first); err != nil {
			return q, err
		}
	}
	q.Query, err = query.New(q.cont, q.sel, text, &c.work, &c.s.results)
	if err == nil {
		err = q.refuseStrictly(c)
	}
	if err != nil && c.work.Units() > 0 {
		c.chargeRequest(q.cont, first, c.work.Charge(0, 0))
	}
	if err == nil && q.Compares() {
		q.Distances(readMeta(q.cont.Spec().Meta).Body.distances())
	}
	return q, err
}

// queryText reads the body of a query.
func (c *call) queryText() (query.Text, error) {
	body, _, err := c.documentBody(wire.MaxQuery)
	if err != nil {
		return query.Text{}, err
	}
	if c.in.IsBareQuery() {
		return query.Text{Query: string(body)}, nil
	}
	text, err := query.ParseText(body)
	if err == nil && !c.s.o.Lenient {
		err = checkNumbers(text.Parameters)
	}
	return text, err
}

// checkNumbers refuses a parameter with a number that no double can hold. No stored document has such a number.
func checkNumbers(parameters []sql.Parameter) error {
	for _, p := range parameters {
		if _, err := wire.StoredForm(p.Value); err != nil {
			return wire.BadRequest("parameter %.64s: %v", p.Name, err)
		}
	}
	return nil
}

// firstPartition returns the first partition of the query. firstPartition refuses queries that the service's gateway
// does not run across partitions.
func (q *itemQuery) firstPartition(c *call) (feed.Partition, error) {
	part, only, err := q.Partition()
	if err != nil {
		return part, err
	}
	switch {
	case q.sel.Named || q.all:
	case !only:
		err = q.refuseCrossing(c)
	case q.sel.Key == "" && c.in.Flag(wire.HeaderCrossPartition) && !c.s.o.Lenient:
		// The service refuses these aggregates even if the filter leaves a single key.
		err = q.refuseMixedAggregates()
	}
	if err != nil {
		return part, err
	}
	return part, c.in.Consistent(part, q.cont.Newest(part.Range.Min))
}

// refuseCrossing refuses a query over all partitions that the gateway would refuse. This also applies if the
// container has a single partition, because the container may have more later, and the program would then fail.
func (q *itemQuery) refuseCrossing(c *call) error {
	if c.s.o.Lenient {
		return nil
	}
	// SDKs that make a container without a partition key do not ask to cross keys when they query the container.
	if !c.in.Flag(wire.HeaderCrossPartition) && !isKeyless(q.cont) {
		return crossingDisabled()
	}
	construct := q.Crosses()
	if construct == "" {
		return nil
	}
	if err := q.refuseMixedAggregates(); err != nil {
		return err
	}
	plan, err := q.Plan(nil)
	if err != nil {
		return err
	}
	e := wire.Errorf(http.StatusBadRequest, wire.SubCrossPartition, wire.CodeBadRequest,
		firstChance+" The reason is its %s: want it range by range, as the plan in additionalErrorInfo says", construct)
	e.Bare = true
	if e.Extra, err = json.Marshal(string(plan)); err != nil {
		return err
	}
	return e
}

// crossingDisabled returns the refusal of a query that does not ask to cross partitions.
func crossingDisabled() error {
	e := wire.BadRequest("Cross partition query is required but disabled. Please set " +
		"x-ms-documentdb-query-enablecrosspartition to true, specify x-ms-documentdb-partitionkey, or revise " +
		"your query to avoid this exception. A filter that leaves one partition key does")
	e.Bare = true
	return e
}

// refuseMixedAggregates refuses aggregates without VALUE.
func (q *itemQuery) refuseMixedAggregates() error {
	if !q.MixesAggregates() {
		return nil
	}
	return wire.BadRequest("Cross partition query only supports 'VALUE <AggregateFunc>' for aggregates. Want it " +
		"range by range, as its plan says, or with the header x-ms-documentdb-partitionkey")
}

// firstChance is what the service says of a query that the client has to run by its plan.
const firstChance = "The provided cross partition query can not be directly served by the gateway. This is a first " +
	"chance (internal) exception that all newer clients will know how to handle gracefully. This exception is traced, " +
	"but unless you see it bubble up as an exception (which only happens on older SDK clients), then you can safely " +
	"ignore this message."

// planQuery serves POST docs with a query and the header for its plan. The plan tells a client how to run the query
// over several partitions itself.
func planQuery(c *call) error {
	q, err := newItemQuery(c)
	if err != nil {
		return err
	}
	plan, err := q.Plan(c.in.Features())
	if err != nil {
		return err
	}
	c.chargeRequest(q.cont, q.cont.PartitionAt(q.sel.Range.Min).ID, c.work.Charge(0, 0))
	return c.sendReply(http.StatusOK, plan)
}

// readFeed serves GET docs, and answers with a page of the documents, in the order of their creation in each
// range.
func readFeed(c *call) error {
	if err := c.allowAction(auth.ReadChangeFeed); err != nil {
		return err
	}
	cont, err := c.targetContainer()
	if err != nil {
		return err
	}
	sel, err := c.readSelection(cont)
	if err != nil {
		return err
	}
	if strings.EqualFold(c.in.Header(wire.HeaderDirection), "Reverse") {
		return readReversed(c, cont, sel)
	}
	most, err := c.in.PageRows()
	if err != nil {
		return err
	}
	next, err := query.ParseContinuation(c.in.Header(wire.HeaderContinuation), cont.RID())
	if err != nil {
		return err
	}
	// A place among sorted rows has no meaning for a feed, which has another order.
	if err := next.OfDocuments(); err != nil {
		return err
	}
	sub, err := sel.Within(cont)
	if err != nil {
		return err
	}
	// The request is charged to the partition in which the request begins, although a page may continue in other
	// partitions.
	part := cont.PartitionAt(max(sub.Min, sel.Range.Min))
	newest := cont.Newest(part.Range.Min)
	if err := c.in.Consistent(part, newest); err != nil {
		return err
	}
	if err := c.admitRequest(cont, part.ID); err != nil {
		return err
	}
	c.out.SetSession(part.ID, newest)
	docs := wire.NewDocuments(cont.RID())
	defer docs.Free()
	scan := query.NewScan(&c.work, cont, sel)
	more, err := scan.Documents(docs, most, &next)
	if err != nil {
		return err
	}
	if more {
		if err := c.goOn(&next); err != nil {
			return err
		}
	}
	c.chargeRequest(cont, part.ID, service.ScanCharge(scan.Read()))
	c.out.SetCount(docs.Count())
	c.out.SetQueried()
	return c.sendDocuments(http.StatusOK, docs.Finish())
}

// reversedFeed returns all documents, the newest first: no document has the member, so all documents are equal, and
// equal documents are in the order of their creation, or in reverse if the first column is.
const reversedFeed = `SELECT * FROM c ORDER BY c["$none"]["$none"] DESC`

// readReversed serves ReadFeed from the newest document to the oldest.
func readReversed(c *call, cont *docstore.Container, sel query.Selection) (err error) {
	q := itemQuery{cont: cont, sel: sel}
	if q.Query, err = query.New(cont, sel, query.Text{Query: reversedFeed}, &c.work, &c.s.results); err != nil {
		return err
	}
	q.all = true
	return q.answer(c)
}

// goOn sets the continuation, from which the next page begins.
func (c *call) goOn(at *query.Continuation) error {
	token, err := at.Encode()
	if err != nil {
		return err
	}
	c.out.Set(wire.AnswerContinuation, token)
	return nil
}
