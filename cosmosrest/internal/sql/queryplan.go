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

// KeyRange is a range of effective partition keys. Max is not in the range.
type KeyRange struct{ Min, Max string }

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
	DCountInfo             *struct{}          `json:"dCountInfo"`
	HasNonStreamingOrderBy bool               `json:"hasNonStreamingOrderBy"`
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
	w := &rewriter{q: b.q, s: b.q.statement(), p: b.q.plan}
	if err := w.refusalOf(); err != nil {
		return nil, err
	}
	spans := []planRange{}
	for _, span := range ranges {
		spans = append(spans, planRange{span.Min, span.Max, true, false})
	}
	if w.p.rank != nil {
		return b.hybridPlan(w, spans, supports)
	}
	info := queryInfo{
		OrderBy: []string{}, OrderByExpressions: []string{}, GroupByExpressions: []string{}, GroupByAliases: []string{},
		Aggregates: []string{}, AliasToAggregate: map[string]*string{},
		HasSelectValue: w.s.List.Value != nil, DistinctType: "None",
	}
	if !w.p.withoutFrom() { // otherwise a single range returns the whole result
		b.fillMerging(w, &info)
	}
	if missing := info.missing(supports); len(missing) > 0 {
		return nil, unsupported(missing)
	}
	return json.Marshal(queryPlan{Version: planVersion, Info: info, Ranges: spans})
}

// fillMerging sets how a client merges the rows of several ranges.
func (b *Bound) fillMerging(w *rewriter, info *queryInfo) {
	b.fillCounts(info)
	info.OrderByExpressions, info.GroupByExpressions = w.orderBy(), w.texts(w.s.Tail.Group)
	for _, key := range w.p.order {
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

// rewriter makes the query for a range from parts of the query's own text.
type rewriter struct {
	q *Query
	s *selectStmt
	p *plan
}

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
		return failf(w.s.Pos.Offset, "Compositions of aggregates and other expressions are not allowed.")
	}
	if len(w.p.order) > 0 && w.s.List.Star && w.rowName() == "" {
		return failf(w.s.From[0].Pos.Offset, "The collection in FROM needs an alias.")
	}
	return nil
}

// columns returns the expressions of SELECT.
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

// text returns the query's text from an offset to the end of the last token before a second offset. text reads the
// tokens again, to exclude comments and white space at the end.
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

// expr and texts return expressions in the words of the query.
func (w *rewriter) expr(e *expr) string { return w.text(e.Pos.Offset, e.EndPos.Offset) }

func (w *rewriter) texts(list []*expr) []string {
	all := []string{}
	for _, e := range list {
		all = append(all, w.expr(e))
	}
	return all
}

// orderBy returns the keys of ORDER BY in the words of the query.
func (w *rewriter) orderBy() []string {
	all := []string{}
	for _, ordered := range w.s.Tail.Order[:min(len(w.s.Tail.Order), len(w.p.order))] { // aggregates have no order
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
