package sql

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// The plan of ORDER BY RANK, for clients that run a query range by range.
//
// A client first sends the statistics query to all ranges, and adds up the answers. The client writes the sums into
// the component queries, whose texts have places for them, and sends each component query to the ranges of the plan.
// The client then ranks the rows by each component, and merges the ranks.

// hybridPlan is the member hybridSearchQueryInfo of a plan.
type hybridPlan struct {
	Statistics     string      `json:"globalStatisticsQuery"`
	Components     []queryInfo `json:"componentQueryInfos"`
	WithoutPayload []queryInfo `json:"componentWithoutPayloadQueryInfos"`
	Projection     *queryInfo  `json:"projectionQueryInfo"`
	Weights        []float64   `json:"componentWeights"`
	Skip           *int64      `json:"skip"`
	Take           *int64      `json:"take"`
	NeedsAll       bool        `json:"requiresGlobalStatistics"`
}

// hybridQueryPlan is the answer to a request for the plan of ORDER BY RANK.
type hybridQueryPlan struct {
	Version int         `json:"partitionedQueryExecutionInfoVersion"`
	Ranges  []planRange `json:"queryRanges"`
	Hybrid  hybridPlan  `json:"hybridSearchQueryInfo"`
}

// The places for the statistics. %d is the number of a component with words.
const (
	documentCountPlace = "{documentdb-formattablehybridsearchquery-totaldocumentcount}"
	wordCountPlace     = "{documentdb-formattablehybridsearchquery-totalwordcount-%d}"
	hitCountsPlace     = "{documentdb-formattablehybridsearchquery-hitcountsarray-%d}"
)

// leastRanked is the least number of rows that a component query asks for. If the query wants more than half as many,
// a component asks for twice as many.
const leastRanked = 120

// Scores that are worse than any other. The service writes these texts.
const (
	worstWords = "-1"
	worstLow   = "-1.79769e+308"
	worstHigh  = "1.79769e+308"
)

// rankScore is a component in the words of the rewritten queries.
type rankScore struct {
	text  string
	worst string // for documents without a score
	order string // after the text in ORDER BY
	best  string // direction of the best first
}

// hybridPlan returns the plan of ORDER BY RANK.
func (b *Bound) hybridPlan(w *rewriter, ranges []planRange, supports func(string) bool) (json.RawMessage, error) {
	root := w.rootName()
	if root == "" {
		return nil, failf(w.s.From[0].Pos.Offset,
			"'ORDER BY RANK' is only valid in a query whose FROM is the container.")
	}
	f := &b.f
	f.work = f.most
	weights, _ := w.p.rank.weightsOf(f)
	scores, statistics := w.rankScores(f, weights)
	h := hybridPlan{
		Statistics: "SELECT COUNT(1) AS documentCount, [" + strings.Join(statistics, ", ") +
			"] AS fullTextStatistics\nFROM " + w.text(w.s.From[0].Pos.Offset, w.endOfRoot()),
		Components: []queryInfo{}, WithoutPayload: []queryInfo{}, Weights: []float64{}, NeedsAll: len(statistics) > 0,
	}
	if f.err != nil {
		return nil, f.err
	}
	if missing := h.missing(w.p.rank.weights != nil, supports); len(missing) > 0 {
		return nil, unsupported(missing)
	}
	if w.p.rank.weights != nil {
		for _, weight := range weights {
			h.Weights = append(h.Weights, max(weight, -weight))
		}
	}
	var counts queryInfo
	b.fillCounts(&counts)
	h.Skip, h.Take = counts.Offset, counts.Limit
	if counts.Top != nil {
		h.Take = counts.Top
	}
	for i := range scores {
		h.Components = append(h.Components, w.componentQuery(root, scores, i, counts))
	}
	return json.Marshal(hybridQueryPlan{planVersion, ranges, h})
}

// missing returns the features that the plan needs but the client lacks.
func (h *hybridPlan) missing(weighted bool, supports func(string) bool) (missing []string) {
	if supports == nil {
		return nil
	}
	if !supports("HybridSearch") {
		missing = append(missing, "HybridSearch")
	}
	if weighted && !supports("WeightedRankFusion") {
		missing = append(missing, "WeightedRankFusion")
	}
	return missing
}

// endOfRoot returns the offset of the end of the first source of FROM.
func (w *rewriter) endOfRoot() int {
	if len(w.s.From) > 1 {
		// The text between two sources ends with JOIN.
		return lastIndexFold(w.q.text[:w.s.From[1].Pos.Offset], "JOIN")
	}
	return w.s.Tail.Pos.Offset
}

// rankScores returns the components in the words of the rewritten queries, and a member of the statistics query for
// each component with words.
func (w *rewriter) rankScores(f *frame, weights []float64) (scores []rankScore, statistics []string) {
	_, list, _ := rankCall(w.s.Tail.Rank.Expr)
	exprs := []*expr{w.s.Tail.Rank.Expr}
	if w.p.rank.fused {
		exprs = list[:len(w.p.rank.components)]
	}
	for i, component := range w.p.rank.components {
		_, args, _ := rankCall(exprs[i])
		reversed := i < len(weights) && weights[i] < 0
		if component.vector != nil {
			scores = append(scores, vectorScore(w.texts(args), component.vector.ascends(f), reversed))
			continue
		}
		property, terms := w.expr(args[0]), w.termTexts(f, component.terms, args[1:])
		scores = append(scores, wordScore(property, terms, len(statistics), reversed))
		var hits []string
		for _, term := range terms {
			hits = append(hits, fmt.Sprintf("COUNTIF(FullTextContains(%s, %s))", property, term))
		}
		statistics = append(statistics, fmt.Sprintf(
			`{"totalWordCount": SUM(_FullTextWordCount(%s)), "hitCounts": [%s]}`, property, strings.Join(hits, ", ")))
	}
	return scores, statistics
}

// vectorScore returns VectorDistance in the words of the rewritten queries. A direction is written only if the
// weight reverses the natural order.
func vectorScore(args []string, ascends, reversed bool) rankScore {
	s := rankScore{text: "_VectorScore(" + strings.Join(args, ", ") + ")", worst: worstLow, best: "Descending"}
	if ascends != reversed {
		s.worst, s.best = worstHigh, "Ascending"
	}
	switch {
	case reversed && ascends:
		s.order = " DESC"
	case reversed:
		s.order = " ASC"
	}
	return s
}

// wordScore returns FullTextScore in the words of the rewritten queries; number counts the components with words.
func wordScore(property string, terms []string, number int, reversed bool) rankScore {
	s := rankScore{
		text: fmt.Sprintf("_FullTextScore(%s, [%s], %s, "+wordCountPlace+", "+hitCountsPlace+")", property,
			strings.Join(terms, ", "), documentCountPlace, number, number),
		worst: worstWords, order: " DESC", best: "Descending",
	}
	if reversed {
		s.worst, s.order, s.best = worstHigh, " ASC", "Ascending"
	}
	return s
}

// termTexts returns the terms of FullTextScore. An array is written element by element; a parameter keeps its name,
// because the client sends the parameters with the rewritten queries.
func (w *rewriter) termTexts(f *frame, terms []node, args []*expr) []string {
	var all []string
	for i, term := range terms {
		switch v := term.eval(f); {
		case v.kind == array:
			for raw := range rawjson.Elements(v.raw) {
				all = append(all, string(raw))
			}
		case v.kind == str && w.expr(args[i])[0] != '@':
			all = append(all, string(v.json()))
		default:
			all = append(all, w.expr(args[i]))
		}
	}
	return all
}

// componentQuery returns the query of a component.
func (w *rewriter) componentQuery(root string, scores []rankScore, i int, counts queryInfo) queryInfo {
	own := scores[i]
	info := queryInfo{
		DistinctType: "None", OrderBy: []string{own.best}, OrderByExpressions: []string{own.text},
		GroupByExpressions: []string{}, GroupByAliases: []string{}, Aggregates: []string{},
		AliasToAggregate: map[string]*string{}, HasNonStreamingOrderBy: true,
	}
	head, tail := "SELECT ", ""
	switch {
	case counts.Top != nil:
		n := max(2*(*counts.Top), leastRanked)
		info.Top = &n
		head += "TOP " + strconv.FormatInt(n, 10) + " "
	case counts.Limit != nil:
		none, n := int64(0), max(2*(*counts.Offset+*counts.Limit), leastRanked)
		info.Offset, info.Limit = &none, &n
		tail = fmt.Sprintf("\nOFFSET 0 LIMIT %d", n)
	}
	var all []string
	for _, s := range scores {
		all = append(all, "("+s.text+" ?? "+s.worst+")")
	}
	payload := w.rowName()
	switch {
	case w.s.List.Value != nil:
		payload = w.expr(w.s.List.Value)
	case !w.s.List.Star:
		payload = w.membersOf(w.expr)
	}
	filter := "(" + filterPlace + ")"
	if w.s.Tail.Where != nil {
		filter = "(" + w.expr(w.s.Tail.Where) + ") AND " + filter
	}
	info.RewrittenQuery = head + root + `._rid, [{"item": ` + own.text + `}] AS orderByItems, {"payload": ` + payload +
		`, "componentScores": [` + strings.Join(all, ", ") + "]} AS payload\nFROM " +
		w.text(w.s.From[0].Pos.Offset, w.s.Tail.Pos.Offset) + "\nWHERE " + filter + "\nORDER BY " + own.text +
		own.order + tail
	return info
}
