package sql

import (
	"encoding/json"
	"slices"
	"strings"
)

// The query plan, for clients that run a query over several partitions themselves.
//
// The service's gateway refuses to sort or group across partitions. Instead, the SDK asks the gateway for a plan. The
// plan contains a rewritten query (rewrittenquery.go), which the SDK sends to each partition, and describes how to
// merge the rows: by which keys, with which aggregates, up to which count. Its JSON is PartitionedQueryExecutionInfo
// of the .NET SDK, which all SDKs read in the same way.

// planVersion is the version of PartitionedQueryExecutionInfo that all SDKs accept.
const planVersion = 2

// KeyRange is a range of effective partition keys. Max is not in the range, unless Min and Max are the same: then the
// range is a point.
type KeyRange struct{ Min, Max string }

// isPoint reports whether the range is a single effective partition key.
func (r KeyRange) isPoint() bool { return r.Min == r.Max }

// queryPlan is the answer to a request for a plan.
type queryPlan struct {
	Version int         `json:"partitionedQueryExecutionInfoVersion"`
	Info    queryInfo   `json:"queryInfo"`
	Ranges  []planRange `json:"queryRanges"`
	Hybrid  *struct{}   `json:"hybridSearchQueryInfo"` // always nil: see hybridQueryPlan
}

// queryInfo describes how rows are merged. Lists may be empty but never null, because some SDKs count their elements
// without a check for null.
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
	RewrittenQuery         string             `json:"rewrittenQuery"` // if empty, run the original query
	HasSelectValue         bool               `json:"hasSelectValue"`
	DCountInfo             *countInfo         `json:"dCountInfo"`
	HasNonStreamingOrderBy bool               `json:"hasNonStreamingOrderBy"`
}

// countInfo is the column of a query that counts the rows of a DISTINCT subquery; "" for a query with VALUE. A client
// then counts the distinct rows of all ranges.
type countInfo struct {
	Alias string `json:"dCountAlias"`
}

// planRange is a part of the key space to which the query must be sent.
type planRange struct {
	Min          string `json:"min"`
	Max          string `json:"max"`
	MinInclusive bool   `json:"isMinInclusive"`
	MaxInclusive bool   `json:"isMaxInclusive"`
}

// Plan returns the service's query plan: how a client merges the rows of these ranges. The rows come from the query
// or, if present, from the rewritten query. The rewritten query has the same parameters; counts are numbers. Plan
// returns an *Error if the parts of the query cannot be merged, or if merging needs features that the client does not
// support; a nil supports means all features.
func (b *Bound) Plan(ranges []KeyRange, supports func(feature string) bool) (json.RawMessage, error) {
	w := newRewriter(b.q)
	if err := w.refusalOf(); err != nil {
		return nil, err
	}
	spans := []planRange{}
	for _, span := range ranges {
		spans = append(spans, planRange{span.Min, span.Max, true, span.isPoint()})
	}
	if w.p.rank != nil {
		return b.hybridPlan(w, spans, supports)
	}
	info := emptyInfo()
	if inner, alias, ok := w.countsDistinct(); ok {
		w, info.DCountInfo = inner, &countInfo{alias}
	}
	info.HasSelectValue = w.s.List.Value != nil
	if !w.p.withoutFrom() { // otherwise a single range returns the whole result
		b.fillMerging(w, &info, len(ranges) == 1 && ranges[0].isPoint())
	}
	if missing := info.missing(supports); len(missing) > 0 {
		return nil, unsupported(missing)
	}
	return json.Marshal(queryPlan{Version: planVersion, Info: info, Ranges: spans})
}

// emptyInfo is the information about a query whose rows a client only concatenates.
func emptyInfo() queryInfo {
	return queryInfo{
		OrderBy: []string{}, OrderByExpressions: []string{}, GroupByExpressions: []string{}, GroupByAliases: []string{},
		Aggregates: []string{}, AliasToAggregate: map[string]*string{}, DistinctType: "None",
	}
}

// fillMerging sets how a client merges the rows of several ranges. If the filter allows a single partition key, the
// range with the key applies OFFSET and LIMIT, unless a client must first put aggregates or groups together.
func (b *Bound) fillMerging(w *rewriter, info *queryInfo, single bool) {
	simple := !w.p.grouped() && !w.p.distinct && len(w.p.order) == 0
	if !single || !simple || w.p.limit == nil {
		b.fillCounts(info)
	}
	info.OrderByExpressions, info.GroupByExpressions = w.orderBy(), w.texts(w.s.Tail.Group)
	for _, key := range w.p.order[:len(info.OrderByExpressions)] {
		direction := "Ascending"
		if key.desc {
			direction = "Descending"
		}
		if near, ok := key.node.(closeness); ok {
			info.HasNonStreamingOrderBy = true
			if near.ascends(&b.f) {
				direction = "Ascending"
			}
		}
		info.OrderBy = append(info.OrderBy, direction)
	}
	if w.p.distinct {
		info.DistinctType = w.distinctType()
	}
	w.aggregates(info)
	info.RewrittenQuery = w.rewrite(*info)
}

// fillCounts sets TOP, or OFFSET and LIMIT, as numbers, because a client does not know the values of parameters.
func (b *Bound) fillCounts(info *queryInfo) {
	offset, limit := b.Limit()
	switch {
	case b.q.plan.top != nil:
		info.Top = &limit
	case b.q.plan.limit != nil:
		info.Offset, info.Limit = &offset, &limit
	}
}

// rewriter makes the query for a range from parts of the query's syntax.
type rewriter struct {
	renderer
	s *selectStmt
	p *plan
}

// newRewriter returns the rewriter of a query.
func newRewriter(q *Query) *rewriter { return &rewriter{renderer{q}, q.statement(), q.plan} }

// refusalOf returns the reason why a query has no plan. An aggregate within a larger expression cannot be merged,
// because the parts contain only the results of the expression.
func (w *rewriter) refusalOf() error {
	switch {
	case w.s == nil:
		return failf(-1, "A condition has no query plan.")
	case len(w.s.From) == 0 && len(w.p.order) > 0:
		return failf(w.s.Pos.Offset, "'ORDER BY' is not valid if FROM clause is omitted.")
	case w.p.withoutFrom():
		return nil
	case w.p.base != nil:
		if _, _, ok := w.countsDistinct(); ok {
			return nil
		}
		return failf(w.s.From[0].Pos.Offset, "A subquery with %s in FROM is not supported across partitions.",
			w.p.base.crossPartition())
	}
	direct := 0
	for _, e := range w.columns() {
		if _, _, ok := aggregateOf(e); ok {
			direct++
		}
	}
	if direct != len(w.p.aggregates) {
		return &Error{
			Message: "Compositions of aggregates and other expressions are not allowed.", At: -1,
		}
	}
	if len(w.p.order) > 0 && w.s.List.Star && w.rowName() == "" {
		return failf(w.s.From[0].Pos.Offset, "The collection in FROM needs an alias.")
	}
	return nil
}

// countsDistinct reports whether the query only counts the rows of a subquery with DISTINCT. A client then merges the
// rows of the subquery, and counts them. The count is a column with an alias; "" means VALUE.
func (w *rewriter) countsDistinct() (inner *rewriter, alias string, ok bool) {
	columns := w.columns()
	if w.s == nil || w.p.base == nil || len(w.s.From) != 1 || len(columns) != 1 || w.p.where != nil ||
		len(w.p.groups)+len(w.p.order) > 0 || w.p.distinct || w.p.limits() || !w.countsRows(columns[0]) {
		return nil, "", false
	}
	inner = &rewriter{w.renderer, w.s.From[0].Sub, w.p.base}
	p := inner.p
	if !p.distinct || p.base != nil || p.grouped() || p.limits() || len(p.order) > 0 || p.withoutFrom() {
		return nil, "", false
	}
	if names := w.names(); len(names) == 1 {
		alias = names[0]
	}
	return inner, alias, true
}

// countsRows reports whether an expression is the number of rows: COUNT of a constant or of the row.
func (w *rewriter) countsRows(e *expr) bool {
	name, _, ok := aggregateOf(e)
	if !ok || name != "COUNT" || len(w.p.aggregates) != 1 {
		return false
	}
	switch arg := w.p.aggregates[0].arg.(type) {
	case constant:
		return arg.v.kind != undefined
	case path:
		return len(arg.steps) == 0
	}
	return false
}

// columns returns the expressions of SELECT.
func (w *rewriter) columns() []*expr {
	if w.s == nil {
		return nil
	}
	if v := w.s.List.Value; v != nil {
		return []*expr{v}
	}
	var all []*expr
	for _, item := range w.s.List.Items {
		all = append(all, item.Expr)
	}
	return all
}

// aggregateOf splits an expression that consists only of an aggregate.
func aggregateOf(e *expr) (name string, arg *expr, ok bool) {
	p := e.First.Primary
	if len(e.Rest) > 0 || len(e.First.Signs) > 0 || len(p.Suffix) != 1 || p.Suffix[0].Call == nil ||
		len(p.Suffix[0].Call.list()) != 1 {
		return "", nil, false
	}
	name = strings.ToUpper(p.Name)
	_, ok = aggregateTypes[name]
	return name, p.Suffix[0].Call.list()[0], ok
}

// aggregateTypes are the names of aggregates in plans.
var aggregateTypes = map[string]string{
	"COUNT": "Count", "COUNTIF": "CountIf", "SUM": "Sum", "AVG": "Average", "MIN": "Min", "MAX": "Max",
	"MAKELIST": "MakeList", "MAKESET": "MakeSet",
}

// orderBy returns the keys of ORDER BY. A query with groups or aggregates has none: a client does not sort groups.
func (w *rewriter) orderBy() []string {
	all := []string{}
	if w.p.grouped() {
		return all
	}
	for _, ordered := range w.s.Tail.Order {
		all = append(all, w.expr(ordered.Expr))
	}
	return all
}

// distinctType reports whether equal rows follow each other, so a client needs to remember only the last row. This is
// so if the row consists of its sort keys.
func (w *rewriter) distinctType() string {
	rows, keys := w.texts(w.columns()), w.orderBy()
	slices.Sort(rows)
	slices.Sort(keys)
	if len(keys) > 0 && slices.Equal(slices.Compact(rows), slices.Compact(keys)) {
		return "Ordered"
	}
	return "Unordered"
}

// names returns the names of the columns, or nil for a query with VALUE.
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

// aggregates sets the aggregate of each column. A query with VALUE has a single column without a name.
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

// CrossPartition returns the construct for which the service's gateway refuses to run the query over several
// partitions itself, or "".
func (q *Query) CrossPartition() string {
	if q.WithoutFrom() {
		return ""
	}
	return q.plan.crossPartition()
}

// MixesAggregates reports whether the query selects aggregates without VALUE.
func (q *Query) MixesAggregates() bool { return q.plan.columns && len(q.plan.aggregates) > 0 }

// crossPartition is [Query.CrossPartition] for a plan. Constructs of a subquery in FROM count too.
func (p *plan) crossPartition() string {
	switch {
	case len(p.groups) > 0:
		return "GROUP BY"
	case len(p.aggregates) > 0:
		return "aggregate"
	case p.rank != nil:
		return "ORDER BY RANK"
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
