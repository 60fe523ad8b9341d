package sql

import (
	"encoding/json"
	"slices"
	"strings"
)

// The query plan, for clients that run a query over several partitions by themselves.
//
// The service's gateway refuses to sort or group across partitions. The SDK asks it for a
// plan instead: a rewritten query (rewrittenquery.go), which it sends to each partition,
// and how to merge the rows: by which keys, with which aggregates, up to which count. The
// JSON is PartitionedQueryExecutionInfo of the .NET SDK, which all SDKs read alike.

// planVersion is the version of PartitionedQueryExecutionInfo that all SDKs accept.
const planVersion = 2

// KeyRange is a range of effective partition keys, from Min up to but not including Max.
type KeyRange struct{ Min, Max string }

// queryPlan is the answer to a request for a plan.
type queryPlan struct {
	Version int         `json:"partitionedQueryExecutionInfoVersion"`
	Info    queryInfo   `json:"queryInfo"`
	Ranges  []planRange `json:"queryRanges"`
	Hybrid  *struct{}   `json:"hybridSearchQueryInfo"` // there are no such queries
}

// queryInfo says how rows are merged. Lists are empty and never null, because some SDKs
// count them without a look at null.
type queryInfo struct {
	DistinctType           string             `json:"distinctType"` // None, Ordered or Unordered
	Top                    *int64             `json:"top"`
	Offset                 *int64             `json:"offset"`
	Limit                  *int64             `json:"limit"`
	OrderBy                []string           `json:"orderBy"` // Ascending or Descending
	OrderByExpressions     []string           `json:"orderByExpressions"`
	GroupByExpressions     []string           `json:"groupByExpressions"`
	GroupByAliases         []string           `json:"groupByAliases"`
	Aggregates             []string           `json:"aggregates"` // of a query with VALUE
	AliasToAggregate       map[string]*string `json:"groupByAliasToAggregateType"`
	RewrittenQuery         string             `json:"rewrittenQuery"` // empty: run the query as it is
	HasSelectValue         bool               `json:"hasSelectValue"`
	DCountInfo             *struct{}          `json:"dCountInfo"`
	HasNonStreamingOrderBy bool               `json:"hasNonStreamingOrderBy"`
}

// planRange is a part of the key space that the query has to be sent to.
type planRange struct {
	Min          string `json:"min"`
	Max          string `json:"max"`
	MinInclusive bool   `json:"isMinInclusive"`
	MaxInclusive bool   `json:"isMaxInclusive"`
}

// Plan is the service's query plan: how a client merges the rows that the query, or the one
// rewritten for it, returns for each of these ranges. The rewritten query takes the same
// parameters; counts are resolved. Plan fails with an *Error for a query whose parts cannot
// be merged, or not by a client that supports only some features; nil is all.
func (b *Bound) Plan(ranges []KeyRange, supports func(feature string) bool) (json.RawMessage, error) {
	w := &rewriter{q: b.q, s: b.q.statement(), p: b.q.plan}
	if err := w.refusalOf(); err != nil {
		return nil, err
	}
	info := queryInfo{
		OrderBy: []string{}, OrderByExpressions: []string{}, GroupByExpressions: []string{}, GroupByAliases: []string{}, Aggregates: []string{}, AliasToAggregate: map[string]*string{},
		HasSelectValue: w.s.List.Value != nil, DistinctType: "None",
	}
	if !w.p.withoutFrom() { // else one range does it all
		b.fillMerging(w, &info)
	}
	if missing := info.missing(supports); len(missing) > 0 {
		return nil, unsupported(missing)
	}
	plan := queryPlan{Version: planVersion, Info: info, Ranges: []planRange{}}
	for _, span := range ranges {
		plan.Ranges = append(plan.Ranges, planRange{span.Min, span.Max, true, false})
	}
	return json.Marshal(plan)
}

// fillMerging fills in how a client treats the rows of several ranges.
func (b *Bound) fillMerging(w *rewriter, info *queryInfo) {
	b.fillCounts(info)
	info.OrderByExpressions, info.GroupByExpressions = w.orderBy(), w.texts(w.s.Tail.Group)
	for _, key := range w.p.order {
		direction := "Ascending"
		if key.desc {
			direction = "Descending"
		}
		info.OrderBy = append(info.OrderBy, direction)
	}
	if w.p.distinct {
		info.DistinctType = w.distinctType()
	}
	w.aggregates(info)
	info.RewrittenQuery = w.rewrite(*info)
}

// fillCounts fills in TOP, or OFFSET and LIMIT, as numbers: a client has no values of
// parameters.
func (b *Bound) fillCounts(info *queryInfo) {
	offset, limit := b.Limit()
	switch {
	case b.q.plan.top != nil:
		info.Top = &limit
	case b.q.plan.limit != nil:
		info.Offset, info.Limit = &offset, &limit
	}
}

// rewriter makes the query for one range, out of parts of the query's own text.
type rewriter struct {
	q *Query
	s *selectStmt
	p *plan
}

// refusalOf returns the reason why a query has no plan. An aggregate within a larger
// expression cannot be merged, because its parts arrive only as results.
func (w *rewriter) refusalOf() error {
	switch {
	case w.s == nil:
		return failf(-1, "A condition has no query plan.")
	case len(w.s.From) == 0 && len(w.p.order) > 0:
		return failf(w.s.Pos.Offset, "'ORDER BY' is not valid if FROM clause is omitted.")
	case w.p.withoutFrom():
		return nil
	case w.p.base != nil:
		return failf(w.s.From[0].Pos.Offset, "A subquery with %s in FROM is not supported across partitions.", w.p.base.crossPartition())
	}
	direct := 0
	for _, e := range w.columns() {
		if _, _, ok := aggregateOf(e); ok {
			direct++
		}
	}
	if direct != len(w.p.aggregates) {
		return failf(w.s.Pos.Offset, "Compositions of aggregates and other expressions are not allowed.")
	}
	if len(w.p.order) > 0 && w.s.List.Star && w.rowName() == "" {
		return failf(w.s.From[0].Pos.Offset, "The collection in FROM needs an alias.")
	}
	return nil
}

// columns are the expressions of SELECT.
func (w *rewriter) columns() []*expr {
	if v := w.s.List.Value; v != nil {
		return []*expr{v}
	}
	var all []*expr
	for _, item := range w.s.List.Items {
		all = append(all, item.Expr)
	}
	return all
}

// aggregateOf takes apart an expression that is an aggregate and nothing else.
func aggregateOf(e *expr) (name string, arg *expr, ok bool) {
	p := e.First.Primary
	if len(e.Rest) > 0 || len(e.First.Signs) > 0 || len(p.Suffix) != 1 || p.Suffix[0].Call == nil || len(p.Suffix[0].Call.list()) != 1 {
		return "", nil, false
	}
	name = strings.ToUpper(p.Name)
	_, ok = aggregateTypes[name]
	return name, p.Suffix[0].Call.list()[0], ok
}

// aggregateTypes are the names of aggregates in plans.
var aggregateTypes = map[string]string{
	"COUNT": "Count", "COUNTIF": "CountIf", "SUM": "Sum", "AVG": "Average", "MIN": "Min", "MAX": "Max",
}

// text is the query's text from one offset to the end of the last token before another. The
// tokens are read again, because comments and white space at the end must not come along.
func (w *rewriter) text(from, to int) string {
	s := scanner{text: w.q.text[:to], at: from}
	end := from
	for {
		token, err := s.Next()
		if err != nil || token.EOF() {
			return w.q.text[from:end]
		}
		end = s.at
	}
}

// expr and texts are expressions in the words of the query.
func (w *rewriter) expr(e *expr) string { return w.text(e.Pos.Offset, e.EndPos.Offset) }

func (w *rewriter) texts(list []*expr) []string {
	all := []string{}
	for _, e := range list {
		all = append(all, w.expr(e))
	}
	return all
}

// orderBy are the keys of ORDER BY in the words of the query.
func (w *rewriter) orderBy() []string {
	all := []string{}
	for _, ordered := range w.s.Tail.Order[:len(w.p.order)] { // an aggregate has none
		all = append(all, w.expr(ordered.Expr))
	}
	return all
}

// distinctType says whether equal rows come one after another, so that a client needs to
// remember only the last: that is so if the row is made of the keys that it is sorted by.
func (w *rewriter) distinctType() string {
	rows, keys := w.texts(w.columns()), w.orderBy()
	slices.Sort(rows)
	slices.Sort(keys)
	if len(keys) > 0 && slices.Equal(slices.Compact(rows), slices.Compact(keys)) {
		return "Ordered"
	}
	return "Unordered"
}

// names are the names of the columns; nil with VALUE.
func (w *rewriter) names() []string {
	row, ok := w.p.row.(objectNode)
	if !ok || len(w.s.List.Items) == 0 {
		return nil
	}
	var all []string
	for _, field := range row.members {
		all = append(all, field.name)
	}
	return all
}

// aggregates fills in which column is which aggregate. With VALUE there is one column
// without a name.
func (w *rewriter) aggregates(info *queryInfo) {
	if !w.p.grouped() {
		return
	}
	columns := w.columns()
	if w.s.List.Value != nil {
		if name, _, ok := aggregateOf(columns[0]); ok {
			info.Aggregates = []string{aggregateTypes[name]}
		}
		return
	}
	for i, alias := range w.names() {
		info.GroupByAliases = append(info.GroupByAliases, alias)
		info.AliasToAggregate[alias] = nil
		if name, _, ok := aggregateOf(columns[i]); ok {
			kind := aggregateTypes[name]
			info.AliasToAggregate[alias] = &kind
		}
	}
}

// CrossPartition names the construct for which the service's gateway refuses to run the
// query over several partitions by itself. It is empty if there is none.
func (q *Query) CrossPartition() string {
	if q.WithoutFrom() {
		return ""
	}
	return q.plan.crossPartition()
}

// MixesAggregates reports whether the query selects aggregates without VALUE.
func (q *Query) MixesAggregates() bool { return q.plan.columns && len(q.plan.aggregates) > 0 }

// crossPartition is [Query.CrossPartition]; a construct of a subquery in FROM counts as
// well.
func (p *plan) crossPartition() string {
	switch {
	case len(p.groups) > 0:
		return "GROUP BY"
	case len(p.aggregates) > 0:
		return "aggregate"
	case len(p.order) > 0:
		return "ORDER BY"
	case p.distinct:
		return "DISTINCT"
	case p.top != nil:
		return "TOP"
	case p.limit != nil:
		return "OFFSET LIMIT"
	case p.base != nil:
		return p.base.crossPartition()
	}
	return ""
}
