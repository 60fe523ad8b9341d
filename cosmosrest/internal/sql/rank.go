package sql

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// ORDER BY RANK: rows by how well they match words (FullTextScore), or by several such orders at once (RRF).
//
// A score needs statistics of all documents: how many have a word, and how long their texts are. So the collector
// counts words in each document, before WHERE, and computes the scores after the last document. Clients that run a
// query range by range get a plan instead, which asks for the statistics first (hybridplan.go).

// ranking is a compiled ORDER BY RANK.
type ranking struct {
	components []rankComponent
	fused      bool // RRF
	weights    node // of RRF; nil if there are none
}

// rankComponent is FullTextScore or VectorDistance.
type rankComponent struct {
	text   node   // property of FullTextScore
	terms  []node // of FullTextScore: terms, and arrays of terms
	vector *closeness
}

// fusionConstant is the constant of reciprocal rank fusion in the service and its SDKs.
const fusionConstant = 60

// The constants of BM25 that most engines use. The service does not name its own.
const (
	bm25Saturation = 1.2
	bm25Length     = 0.75
)

// maxRanked limits the components of RRF.
const maxRanked = 32

// compileRankFunction refuses a function of ORDER BY RANK in any other place.
func compileRankFunction(c *compiler, name string, _ []*expr, at int) node {
	c.failFirst(failf(at, "The function %s is allowed in the ORDER BY RANK clause only.", clip(name)))
	return constant{}
}

// rankCall splits an expression that is only a call.
func rankCall(e *expr) (name string, list []*expr, ok bool) {
	p := e.First.Primary
	if len(e.Rest) > 0 || len(e.First.Signs) > 0 || len(p.Suffix) != 1 || p.Suffix[0].Call == nil {
		return "", nil, false
	}
	return strings.ToUpper(p.Name), p.Suffix[0].Call.list(), true
}

// compileRank compiles ORDER BY RANK.
func compileRank(c *compiler, p *plan, ordered *orderRef) {
	name, list, ok := rankCall(ordered.Expr)
	at := ordered.Expr.Pos.Offset
	switch {
	case ordered.Asc || ordered.Desc:
		c.failFirst(failf(at, "Specifying a sort order (ASC or DESC) in the ORDER BY RANK clause is not allowed."))
	case p.distinct || p.grouped():
		c.failFirst(failf(at, "'ORDER BY RANK' is not supported in presence of DISTINCT, GROUP BY or aggregates."))
	case c.agg.outer != nil || p.base != nil || p.inputs == 0:
		c.failFirst(failf(at, "'ORDER BY RANK' is only valid in a query whose FROM is the container."))
	case ok && name == "RRF":
		compileFusion(c, p, list, at)
	default:
		p.rank = &ranking{components: []rankComponent{compileComponent(c, ordered.Expr)}}
	}
	p.order = []orderKey{{node: constant{}, desc: true, required: true}}
}

// compileFusion compiles RRF(component, component, …, weights).
func compileFusion(c *compiler, p *plan, list []*expr, at int) {
	r := &ranking{fused: true}
	p.rank = r
	if n := len(list); n > 0 {
		if _, _, ok := rankCall(list[n-1]); !ok {
			r.weights = c.compileExpr(list[n-1])
			list = list[:n-1]
		}
	}
	if len(list) < 2 || len(list) > maxRanked {
		c.failFirst(failf(at, "The RRF function has %d component(s): want 2 to %d, each FullTextScore or "+
			"VectorDistance.", len(list), maxRanked))
	}
	for _, e := range list {
		r.components = append(r.components, compileComponent(c, e))
	}
}

// compileComponent compiles FullTextScore or VectorDistance.
func compileComponent(c *compiler, e *expr) rankComponent {
	switch name, list, _ := rankCall(e); name {
	case "FULLTEXTSCORE":
		if !c.checkArity(name, len(list), 2, -1, e.Pos.Offset) {
			return rankComponent{}
		}
		text := c.compileExpr(list[0])
		if !ofDocument(text) {
			c.failFirst(failf(list[0].Pos.Offset, "The first argument of the FullTextScore function must be a path "+
				"to a property, such as c.text."))
		}
		terms := c.compileList(list[1:])
		c.terms = append(c.terms, fixedTerms("FullTextScore", terms, list[1:], true)...)
		return rankComponent{text: text, terms: terms}
	case "VECTORDISTANCE":
		if v, ok := c.compileExpr(e).(vectorDistance); ok {
			return rankComponent{vector: &closeness{v}}
		}
		return rankComponent{}
	}
	c.failFirst(failf(e.Pos.Offset,
		"One of the input values is invalid. The ORDER BY RANK clause must be a FullTextScore or RRF function, and "+
			"the arguments of RRF must be FullTextScore or VectorDistance functions."))
	return rankComponent{}
}

// ofDocument reports whether a node is a path into the document.
func ofDocument(n node) bool {
	switch n := n.(type) {
	case path:
		return n.slot == rootSlot && len(n.steps) > 0
	case index:
		root, ok := n.base.(path)
		return ofDocument(n.base) || ok && root.slot == rootSlot
	}
	return false
}

// searchTerms returns the terms of FullTextScore. Other values of a document are left out.
func (r *rankComponent) searchTerms(f *frame) []searchTerm {
	var all []searchTerm
	add := func(v value) {
		if term, ok := v.searchTerm(); ok {
			all = append(all, term)
		}
	}
	for _, term := range r.terms {
		v := term.eval(f)
		if v.kind != array {
			add(v)
			continue
		}
		for _, element := range f.elementsOf(v) {
			add(element)
		}
	}
	return all
}

// rankPart is what a component knows of a document.
type rankPart struct {
	counts  []float64 // how often each term occurs
	words   float64
	score   float64
	defined bool
}

// rankStatistics are the statistics of a component over all documents.
type rankStatistics struct {
	words float64
	hits  []float64 // documents with each term
}

// noteRanked counts the words of the frame's document.
func (c *collector) noteRanked(f *frame) {
	r := c.p.rank
	if c.statistics == nil {
		c.statistics = make([]rankStatistics, len(r.components))
	}
	c.documents++
	c.parts = make([]rankPart, len(r.components))
	for i := range r.components {
		if r.components[i].vector != nil {
			continue
		}
		part, all := r.components[i].countWords(f), &c.statistics[i]
		c.parts[i] = part
		if all.hits == nil {
			all.hits = make([]float64, len(part.counts))
		}
		all.words += part.words
		for j, n := range part.counts {
			all.hits[j] += min(n, 1)
		}
	}
}

// countWords counts the words of a document, and each term of FullTextScore.
func (r *rankComponent) countWords(f *frame) rankPart {
	terms := r.searchTerms(f)
	part := rankPart{counts: make([]float64, len(terms))}
	v := r.text.eval(f)
	if v.kind != str || !f.spendWork(slowWork*len(v.raw)*(1+len(terms))) {
		return part
	}
	text := phrase(v)
	part.words, part.defined = wordCount(text), true
	for i, term := range terms {
		part.counts[i] = term.count(f, text, math.MaxInt32)
	}
	return part
}

// rowParts returns the parts of the frame's row. Words were counted for the whole document; the distance of vectors
// is computed here, because a vector may come from a JOIN.
func (c *collector) rowParts(f *frame) []rankPart {
	parts := slices.Clone(c.parts)
	for i, component := range c.p.rank.components {
		if component.vector != nil {
			v := component.vector.eval(f)
			parts[i] = rankPart{score: v.float(), defined: v.kind == number}
		}
	}
	return parts
}

// rankRows computes the sort key of each row: its score or, for RRF, the sum over the components of the reciprocal of
// its rank in each. Rows without any score are left out, as from a full text or vector index.
func (c *collector) rankRows(f *frame) {
	r := c.p.rank
	weights, ok := r.weightsOf(f)
	if !ok {
		return
	}
	c.rows = slices.DeleteFunc(c.rows, func(own *row) bool {
		return !slices.ContainsFunc(own.parts, func(p rankPart) bool { return p.defined })
	})
	for _, own := range c.rows {
		for i := range own.parts {
			if part := &own.parts[i]; r.components[i].vector == nil && part.defined {
				part.score = bm25(part.counts, part.words, float64(c.documents), c.statistics[i].words,
					c.statistics[i].hits)
			}
		}
		if !r.fused {
			own.keys = []value{numberValue(own.parts[0].score)}
		}
	}
	if r.fused {
		c.fuseRanks(weights)
	}
}

// fuseRanks sets the keys of RRF. Rows with equal scores have the same rank. With a negative weight, the best row is
// the last.
func (c *collector) fuseRanks(weights []float64) {
	fused := make(map[*row]float64, len(c.rows))
	for i, weight := range weights {
		sorted := slices.Clone(c.rows)
		slices.SortStableFunc(sorted, func(a, b *row) int { return compareParts(a.parts[i], b.parts[i], weight < 0) })
		rank := 0
		for j, own := range sorted {
			if j == 0 || compareParts(sorted[j-1].parts[i], own.parts[i], weight < 0) != 0 {
				rank++
			}
			fused[own] += math.Abs(weight) / float64(fusionConstant+rank)
		}
	}
	for _, own := range c.rows {
		own.keys = []value{numberValue(fused[own])}
	}
}

// compareParts orders scores, the best first. Rows without a score come last.
func compareParts(a, b rankPart, reversed bool) int {
	switch {
	case a.defined != b.defined && a.defined:
		return -1
	case a.defined != b.defined:
		return 1
	case !a.defined:
		return 0
	case reversed:
		return cmp.Compare(a.score, b.score)
	}
	return cmp.Compare(b.score, a.score)
}

// weightsOf returns the weights of RRF, or 1 for each component.
func (r *ranking) weightsOf(f *frame) ([]float64, bool) {
	if r.weights == nil {
		return slices.Repeat([]float64{1}, len(r.components)), true
	}
	v := r.weights.eval(f)
	var all []float64
	if v.kind == array {
		all = f.vectorOf(v)
	}
	if len(all) != len(r.components) {
		f.failWith(failf(-1, "The weights of the RRF function are %s: want an array of %d numbers, one for each "+
			"component.", clip(string(v.appendJSON(nil))), len(r.components)))
		return nil, false
	}
	return all, true
}

// bm25 returns how well a text matches: for each phrase, how often the text has the phrase, compared with the length
// of the text, times how rare the phrase is among all documents.
func bm25(counts []float64, words, documents, totalWords float64, hits []float64) float64 {
	average, score := totalWords/documents, 0.0
	for i, n := range counts {
		if n == 0 || i >= len(hits) {
			continue
		}
		rarity := math.Log(1 + (documents-hits[i]+0.5)/(hits[i]+0.5))
		score += rarity * n * (bm25Saturation + 1) / (n + bm25Saturation*(1-bm25Length+bm25Length*words/average))
	}
	return score
}
