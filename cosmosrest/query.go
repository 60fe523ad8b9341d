package cosmosrest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmosrest/internal/sql"
	"github.com/millrace/changefeed/docstore"
)

// query is one request for a page of a query.
type query struct {
	c      *call
	cont   *docstore.Container
	sel    selection
	text   queryText
	parsed *sql.Query
	bound  *sql.Bound
	scan   scan
	max    int // rows of a page; 0 is as many as fit
	from   continuation

	begun    time.Time
	compiled time.Duration
}

const maxQueryBody = 1 << 20 // bytes, with the parameters

// queryText is the body of a query.
type queryText struct {
	Query      string          `json:"query"`
	Parameters []sql.Parameter `json:"parameters"`

	ResumeFilter *sql.ResumeFilter `json:"resumeFilter"`
}

// bind makes the parsed query ready to run.
func (t *queryText) bind(q *sql.Query) (*sql.Bound, error) {
	b, err := q.Bind(t.Parameters)
	if err == nil && t.ResumeFilter != nil {
		err = b.From(*t.ResumeFilter)
	}
	return b, err
}

// readQuery reads the body of a query.
func (c *call) readQuery() (t queryText, err error) {
	b, err := c.body(maxQueryBody)
	if err != nil {
		return t, err
	}
	if err := json.Unmarshal(b, &t); err != nil {
		return t, badRequest(`body is %.100q: want {"query":"SELECT * FROM c","parameters":[]}`, b)
	}
	return t, nil
}

// queryItems serves POST docs with a query: a page of its rows.
func (c *call) queryItems() error {
	q, err := c.newQuery()
	if err != nil {
		return err
	}
	if q.max, err = c.pageRows(); err != nil {
		return err
	}
	if q.from, err = c.continuation(q.cont.RID()); err != nil {
		return err
	}
	part, err := q.route()
	if err != nil {
		return err
	}
	if err := c.admit(q.cont, part.ID); err != nil {
		return err
	}
	c.session(part.ID, q.cont.Newest(part.Range.Min))
	b := newFeedBody(q.cont.RID())
	defer b.free()
	more, err := q.page(b)
	c.spend(q.cont, part.ID, chargeQuery(q.scan.docs, q.scan.bytes, c.meter.work)) // also for work that came to nothing
	if err != nil {
		return err
	}
	return q.answer(b, more)
}

// newQuery reads a query, and finds out how to serve it.
func (c *call) newQuery() (*query, error) {
	if err := c.allow(actionQuery); err != nil {
		return nil, err
	}
	cont, err := c.container()
	if err != nil {
		return nil, err
	}
	q := &query{c: c, cont: cont, begun: time.Now()}
	if q.text, err = c.readQuery(); err != nil {
		return nil, err
	}
	if q.sel, err = c.selection(cont); err != nil {
		return nil, err
	}
	if q.parsed, err = q.parse(); err != nil {
		return nil, err
	}
	if q.bound, err = q.text.bind(q.parsed); err != nil {
		return nil, err
	}
	q.compiled = time.Since(q.begun)
	if q.parsed.WithoutFrom() {
		q.sel.rng = changefeed.FullRange()
	}
	q.scan = scan{ctx: c.meter.limit(), meter: &c.meter, cont: cont, rng: q.sel.rng}
	q.bound.Meter(&c.meter)
	q.access()
	return q, nil
}

// parseQuery parses the text of a query: a long one, which takes a while, in a turn.
func (c *call) parseQuery(text string) (*sql.Query, error) {
	if len(text) >= longText {
		if err := c.meter.Work(byteWork * len(text)); err != nil {
			return nil, err
		}
	}
	return sql.Parse(text)
}

// parse parses the query. A long one that cannot be run is to be paid for, too.
func (q *query) parse() (*sql.Query, error) {
	first := q.cont.PartitionAt(q.sel.rng.Min).ID
	if len(q.text.Query) >= longText {
		if err := q.c.admit(q.cont, first); err != nil {
			return nil, err
		}
	}
	parsed, err := q.c.parseQuery(q.text.Query)
	if err != nil && q.c.meter.work > 0 {
		q.c.spend(q.cont, first, chargeQuery(0, 0, q.c.meter.work))
	}
	return parsed, err
}

// hash tells the query from others whose rows are kept.
func (q *query) hash() uint64 {
	asked, _ := json.Marshal(q.text) // always marshals
	return hashText(q.cont.RID(), string(asked), string(q.sel.key), q.scan.rng.Min, q.scan.rng.Max)
}

// sorting is a hash of what the query's rows are sorted by.
func (q *query) sorting() uint64 {
	parts := []string{q.bound.Sorting()}
	if strings.Contains(parts[0], "@") {
		for _, p := range q.text.Parameters {
			parts = append(parts, p.Name, string(p.Value))
		}
	}
	return hashText(parts...)
}

// route is the first partition that the query is about. It refuses what the service's
// gateway does not spread over partitions.
func (q *query) route() (changefeed.Partition, error) {
	at, err := q.ranges()
	if err != nil {
		return changefeed.Partition{}, err
	}
	first := q.sel.rng.Min
	if len(at) > 0 {
		first = max(first, at[0].Min)
	}
	part := q.cont.PartitionAt(first)
	single := q.scan.pinned && (len(at) == 0 || len(at) == 1 && part.Range.Contains(at[0]))
	if !single && !q.sel.named {
		if err := q.crosses(); err != nil {
			return part, err
		}
	}
	return part, q.c.consistent(part, q.cont.Newest(first))
}

// ranges are where the pinned keys lie, or the whole selection.
func (q *query) ranges() ([]changefeed.Range, error) {
	if !q.scan.pinned {
		return []changefeed.Range{q.sel.rng}, nil
	}
	var at []changefeed.Range
	for _, key := range q.scan.keys {
		r, err := q.cont.Locate(key)
		if err != nil {
			return nil, err
		}
		at = append(at, r)
	}
	slices.SortFunc(at, func(a, b changefeed.Range) int {
		if a.Min < b.Min {
			return -1
		}
		return 1
	})
	return at, nil
}

// crosses refuses a query over all partitions that the gateway would refuse. It does so
// also where the container has but one partition, as it may have more some day.
func (q *query) crosses() error {
	if q.c.s.o.Lenient {
		return nil
	}
	if !q.c.flag("X-Ms-Documentdb-Query-Enablecrosspartition") {
		return badRequest("Cross partition query is required but disabled: want x-ms-documentdb-query-enablecrosspartition true, " +
			"the header x-ms-documentdb-partitionkey, or a filter that leaves one partition key")
	}
	what := q.parsed.CrossPartition()
	if what == "" {
		return nil
	}
	plan, err := q.plan(nil)
	if err != nil {
		return err
	}
	f := newFault(http.StatusBadRequest, subCrossPartition, "BadRequest",
		"The provided cross partition query can not be directly served by the gateway, because of its %s: "+
			"want it range by range, as the plan in additionalErrorInfo says", what)
	if f.extra, err = json.Marshal(string(plan)); err != nil {
		return err
	}
	return f
}

// page fills a page, and tells whether another may follow; the query's continuation then
// says where.
func (q *query) page(b *feedBody) (more bool, err error) {
	if err := q.c.meter.Work(keyWork * len(q.scan.keys) * max(1, len(q.scan.ids))); err != nil {
		return false, err
	}
	if !q.bound.Streams() {
		return q.pageOfAll(b)
	}
	if err := q.from.fits(q.c, 0); err != nil {
		return false, err
	}
	if err := q.scan.begin(q.from); err != nil {
		return false, err
	}
	q.bound.Until(q.scan.ctx)
	p := rowPage{b: b, bound: q.bound, max: q.max, k: &q.from}
	p.offset, p.limit = q.bound.Limit()
	if p.done() {
		return false, nil
	}
	more, err = p.fill(&q.scan, q.begun)
	if err == nil && !p.done() && q.max > 0 && b.count == q.max && q.throughGateway() {
		more = true
	}
	if more {
		q.scan.save(&q.from)
	}
	return more, err
}

// throughGateway tells of a query that names no range and no partition key. The service's gateway then goes from partition to
// partition, and does not look beyond a full page: the Go SDK's own suite wants the empty one after the last that is full.
func (q *query) throughGateway() bool { return !q.sel.named && q.sel.key == "" && !q.scan.pinned }

// answer sends a page.
func (q *query) answer(b *feedBody, more bool) error {
	c := q.c
	if more {
		c.set(answerContinuation, q.from.encode())
	}
	c.set(answerItemCount, strconv.Itoa(b.count))
	if c.flag("X-Ms-Documentdb-Populatequerymetrics") {
		c.set("x-ms-documentdb-query-metrics", q.metrics(b))
	}
	if c.flag("X-Ms-Cosmos-Populateindexmetrics") {
		c.set("x-ms-cosmos-index-utilization", indexUtilization)
	}
	return c.reply(http.StatusOK, b.finish())
}
