package query

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/meter"
	"github.com/millrace/changefeed/cosmosrest/internal/sql"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// From a request to a page: the text is parsed, the way to the documents is chosen (access.go), and the page is
// filled, either row by row from a scan (page.go) or from rows computed all at once (results.go).

// Selection is the part of a container that a request reads, according to its headers.
type Selection struct {
	Range feed.Range
	Key   feed.PartitionKey // empty means all; a hierarchical key may lack its last levels
	Named bool              // the request names a partition or a range of keys
}

// Within returns the part of the range that contains the key; this part may be empty.
func (s *Selection) Within(cont *docstore.Container) (feed.Range, error) {
	if s.Key == "" {
		return s.Range, nil
	}
	p, err := cont.LogicalPartition(s.Key)
	return s.Range.Intersect(p.Range()), err
}

// Text is the body of a query.
type Text struct {
	Query      string          `json:"query"`
	Parameters []sql.Parameter `json:"parameters"`

	ResumeFilter *sql.ResumeFilter `json:"resumeFilter"`

	Computed []*sql.Computed `json:"-"` // computed properties of the container
}

// ParseText reads the body of a query.
func ParseText(body []byte) (t Text, err error) {
	if err := json.Unmarshal(body, &t); err != nil {
		return t, wire.BadRequest(`body is %.100q: want {"query":"SELECT * FROM c","parameters":[]}`, body)
	}
	return t, nil
}

// Long reports whether the text is so long that the request must pay for the parsing.
func (t *Text) Long() bool { return len(t.Query) >= meter.LongText }

// parse parses the query. A long text takes milliseconds, so parse waits for a turn like other computations.
func (t *Text) parse(m *meter.Request) (*sql.Query, error) {
	if t.Long() {
		if err := m.Work(meter.ByteWork * len(t.Query)); err != nil {
			return nil, err
		}
	}
	return sql.Parse(t.Query)
}

// bind prepares the parsed query to run, measured by m.
func (t *Text) bind(q *sql.Query, m *meter.Request) (*sql.Bound, error) {
	b, err := q.Bind(t.Parameters)
	if err == nil && t.ResumeFilter != nil {
		err = b.From(*t.ResumeFilter)
	}
	if err == nil {
		b.Compute(t.Computed)
		b.Meter(m)
	}
	return b, err
}

// Bind parses the query and prepares the query to run over rows that are not in a container, such as offers.
func (t *Text) Bind(m *meter.Request) (*sql.Bound, error) {
	q, err := t.parse(m)
	if err != nil {
		return nil, err
	}
	return t.bind(q, m)
}

// Query is a request for a page of a query's rows.
type Query struct {
	From Continuation
	Max  int // rows of the page; 0 means as many as fit

	cont    *docstore.Container
	sel     Selection
	text    Text
	parsed  *sql.Query
	bound   *sql.Bound
	scan    *Scan
	meter   *meter.Request
	results *Results

	begun    time.Time
	compiled time.Duration
}

// New parses a query and decides how to find its documents. Its rows may be kept in results. A query without FROM
// concerns no document, so such a query runs over the whole container, even if the request names a range.
func New(cont *docstore.Container, sel Selection, text Text, m *meter.Request, results *Results) (*Query, error) {
	q := &Query{cont: cont, sel: sel, text: text, meter: m, results: results, begun: time.Now()}
	var err error
	if q.parsed, err = text.parse(m); err != nil {
		return nil, err
	}
	if q.bound, err = text.bind(q.parsed, m); err != nil {
		return nil, err
	}
	q.compiled = time.Since(q.begun)
	if q.parsed.WithoutFrom() {
		q.sel.Range = feed.FullRange()
	}
	q.scan = &Scan{ctx: m.Limit(), meter: m, cont: cont, rng: q.sel.Range}
	q.chooseAccess()
	return q, nil
}

// Partition returns the first partition of the query; only is true if there is no other.
func (q *Query) Partition() (part feed.Partition, only bool, err error) {
	at, err := q.ranges()
	if err != nil {
		return part, false, err
	}
	first := q.sel.Range.Min
	if len(at) > 0 {
		first = max(first, at[0].Min)
	}
	part = q.cont.PartitionAt(first)
	return part, q.scan.pinned && (len(at) == 0 || len(at) == 1 && part.Range.Contains(at[0])), nil
}

// Crosses returns the construct for which the service's gateway refuses to run the query over several partitions, or
// "".
func (q *Query) Crosses() string { return q.parsed.CrossPartition() }

// MixesAggregates reports whether the query selects an aggregate among other values. The service's gateway has no
// plan for such a query over several partitions.
func (q *Query) MixesAggregates() bool { return q.parsed.MixesAggregates() }

// Refused returns the service's refusal of a query that this server can compute, or nil.
func (q *Query) Refused() error { return q.parsed.Refused() }

// SortPaths returns the paths by which the query sorts.
func (q *Query) SortPaths() []sql.SortPath { return q.parsed.SortPaths() }

// SortsDocuments reports whether the paths of SortPaths begin at the document.
func (q *Query) SortsDocuments() bool { return q.parsed.SortsDocuments() }

// FilterPaths returns the paths by which the query filters and sorts.
func (q *Query) FilterPaths() []string { return q.parsed.FilterPaths() }

// Compares reports whether the query may compare vectors. The distance functions of the container are then needed:
// see [Query.Distances].
func (q *Query) Compares() bool { return q.parsed.ComparesVectors() }

// Distances sets the distance functions of the container's vectors, by path.
func (q *Query) Distances(byPath map[string]string) { q.bound.Distances(byPath) }

// ranges returns the places of the pinned keys, or the whole selection.
func (q *Query) ranges() ([]feed.Range, error) {
	if !q.scan.pinned {
		return []feed.Range{q.sel.Range}, nil
	}
	var at []feed.Range
	for _, key := range q.scan.keys {
		p, err := q.cont.LogicalPartition(key)
		if err != nil {
			return nil, err
		}
		at = append(at, p.Range())
	}
	slices.SortFunc(at, func(a, b feed.Range) int {
		if a.Min < b.Min {
			return -1
		}
		return 1
	})
	return at, nil
}

// Plan returns the query's plan for its ranges, for a client that supports some features; nil means all features.
func (q *Query) Plan(supports func(feature string) bool) (json.RawMessage, error) {
	at, err := q.planRanges()
	if err != nil {
		return nil, err
	}
	return q.bound.Plan(at, supports)
}

// planRanges returns the ranges of the query's plan. A whole key is a point. A plan has at least a single range, to
// which a client sends the query: if no document makes a row, this is a point at the beginning, as in the service.
func (q *Query) planRanges() ([]sql.KeyRange, error) {
	begin := q.sel.Range.Min
	switch {
	case q.parsed.WithoutFrom(), q.scan.pinned && len(q.scan.keys) == 0:
		return []sql.KeyRange{{Min: begin, Max: begin}}, nil
	case !q.scan.pinned:
		return []sql.KeyRange{{Min: begin, Max: q.sel.Range.Max}}, nil
	}
	var ranges []sql.KeyRange
	for _, key := range q.scan.keys {
		p, err := q.cont.LogicalPartition(key)
		if err != nil {
			return nil, err
		}
		at := sql.KeyRange{Min: p.Range().Min, Max: p.Range().Max}
		if p.Whole() {
			at.Max = at.Min
		}
		ranges = append(ranges, at)
	}
	slices.SortFunc(ranges, func(a, b sql.KeyRange) int { return strings.Compare(a.Min, b.Min) })
	return slices.Compact(ranges), nil
}

// Charge returns the charge, in request units, of everything that the query has read and computed so far.
func (q *Query) Charge() float64 { return q.meter.Charge(q.scan.Read()) }

// hash identifies the query among the queries whose rows are kept. hash covers the text with parameters, and the
// selection.
func (q *Query) hash() uint64 {
	asked, _ := json.Marshal(q.text) // cannot fail
	return hashText(q.cont.RID(), string(asked), string(q.sel.Key), q.scan.rng.Min, q.scan.rng.Max)
}

// sortingHash returns a hash of the keys that sort the query's rows. If the keys contain parameters, the hash covers
// their values too.
func (q *Query) sortingHash() uint64 {
	parts := []string{q.bound.Sorting()}
	if strings.Contains(parts[0], "@") {
		for _, p := range q.text.Parameters {
			parts = append(parts, p.Name, string(p.Value))
		}
	}
	return hashText(parts...)
}

// Page fills a page, and reports whether another page may follow. If so, From then contains where that page begins.
func (q *Query) Page(docs *wire.Documents) (more bool, err error) {
	// This is counted before anything is read, because keys and ids that do not exist cost a lookup each, too.
	if err := q.meter.Work(meter.KeyWork * len(q.scan.keys) * max(1, len(q.scan.ids))); err != nil {
		return false, err
	}
	if !q.bound.Streams() {
		return q.pageOfAll(docs)
	}
	if err := q.From.checkOrder(0); err != nil {
		return false, err
	}
	defer q.scan.closeInto(&err)
	if err := q.scan.openAt(q.From); err != nil {
		return false, err
	}
	q.bound.Until(q.scan.ctx)
	p := page{docs: docs, bound: q.bound, max: q.Max, k: &q.From}
	p.offset, p.limit = q.bound.Limit()
	if p.hasAllRows() {
		return false, nil
	}
	more, err = p.fillPage(q.scan, q.begun)
	if err == nil && !p.hasAllRows() && q.Max > 0 && docs.Count() == q.Max && q.throughGateway() {
		more = true
	}
	if more {
		q.scan.saveProgress(&q.From)
	}
	return more, err
}

// throughGateway reports whether the query names no range and no partition key. The service's gateway then goes from
// partition to partition, and does not look for rows after a full page. So a full last page is followed by an empty
// page, which the Go SDK's test suite expects.
func (q *Query) throughGateway() bool { return !q.sel.Named && q.sel.Key == "" && !q.scan.pinned }
