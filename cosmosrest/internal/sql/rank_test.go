package sql

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// ranked is a document of the tests of ORDER BY RANK.
type ranked struct {
	ID     string    `json:"id"`
	Title  string    `json:"title,omitempty"`
	Text   string    `json:"text,omitempty"`
	Vector []float64 `json:"v,omitempty"`
	RID    string    `json:"_rid"`
}

// newRanked numbers documents as the store does.
func newRanked(i int, title, text string, vector []float64) ranked {
	rid := make([]byte, 16)
	binary.LittleEndian.PutUint64(rid[8:], uint64(i+1))
	return ranked{fmt.Sprint("d", i), title, text, vector, base64.StdEncoding.EncodeToString(rid)}
}

func (r *ranked) json() string {
	b, _ := json.Marshal(r)
	return string(b)
}

// drawRanked draws documents of few words, so that many have a word of the query.
func drawRanked(draw *rand.Rand, n int) (docs []ranked) {
	words := strings.Fields("red green blue swim run the a of")
	text := func(most int) string {
		var out []string
		for range draw.IntN(most) {
			out = append(out, words[draw.IntN(len(words))])
		}
		return strings.Join(out, " ")
	}
	for i := range n {
		var vector []float64
		if draw.IntN(5) > 0 {
			vector = []float64{draw.Float64(), draw.Float64() - 0.5}
		}
		docs = append(docs, newRanked(i, text(4), text(12), vector))
	}
	return docs
}

// score is the score of a text by the definition of BM25; ok says whether it has one. A term may be several, a/b.
func score(docs []ranked, of func(ranked) string, own ranked, terms ...string) (total float64, ok bool) {
	if of(own) == "" {
		return 0, false
	}
	const k, b = 1.2, 0.75
	lengths := 0
	for _, d := range docs {
		lengths += len(strings.Fields(of(d)))
	}
	average := float64(lengths) / float64(len(docs))
	times := func(d ranked, term string) (n float64) {
		for i, text := 0, strings.Fields(of(d)); i < len(text); i++ {
			for either := range strings.SplitSeq(term, "/") {
				if strings.HasPrefix(strings.Join(text[i:], " ")+" ", either+" ") {
					n++
				}
			}
		}
		return n
	}
	for _, term := range terms {
		having := 0.0
		for _, d := range docs {
			having += min(1, times(d, term))
		}
		n := times(own, term)
		total += math.Log(1+(float64(len(docs))-having+0.5)/(having+0.5)) * n * (k + 1) /
			(n + k*(1-b+b*float64(len(strings.Fields(of(own))))/average))
	}
	return total, true
}

func title(d ranked) string { return d.Title }
func text(d ranked) string  { return d.Text }

// fuse ranks the scores of each component by hand, and adds up the reciprocal ranks.
func fuse(components [][]float64, weights []float64) (fused []float64) {
	fused = make([]float64, len(components[0]))
	for c, scores := range components {
		sign := 1.0
		if weights[c] < 0 {
			sign = -1
		}
		for i, own := range scores {
			better := map[float64]bool{}
			for _, other := range scores {
				if !math.IsNaN(other) && (math.IsNaN(own) || sign*other > sign*own) {
					better[other] = true
				}
			}
			fused[i] += math.Abs(weights[c]) / float64(60+1+len(better))
		}
	}
	return fused
}

// Each query returns rows by descending score, as computed by hand, and a plan merged by a client does the same.
func TestRanksAreThoseComputedByHand(t *testing.T) {
	draw := rand.New(rand.NewPCG(5, 6))
	nan := func(x float64, ok bool) float64 {
		if !ok {
			return math.NaN()
		}
		return x
	}
	for range 40 {
		docs := drawRanked(draw, 2+draw.IntN(30))
		words := func(of func(ranked) string, terms ...string) (all []float64) {
			for _, d := range docs {
				all = append(all, nan(score(docs, of, d, terms...)))
			}
			return all
		}
		var near []float64
		for _, d := range docs {
			near = append(near, nan(cosineTo(d.Vector)))
		}
		for _, test := range []struct {
			query string
			want  []float64
		}{
			{"SELECT TOP 5 c.id FROM c ORDER BY RANK FullTextScore(c.text, 'swim')", words(text, "swim")},
			{"SELECT c.id FROM c ORDER BY RANK FullTextScore(c.text, ['swim', 'red run']) OFFSET 1 LIMIT 4", words(text, "swim", "red run")},
			// Of the words of the texts, some are near the terms.
			{
				"SELECT TOP 5 c.id FROM c ORDER BY RANK FullTextScore(c.text, {'term': 'Swam', 'distance': 1}, 'red')",
				words(text, "swim", "red"),
			},
			{
				"SELECT TOP 9 c.id FROM c ORDER BY RANK FullTextScore(c.text, [{distance: 1, term: 'o'}, 'run'])",
				words(text, "a/of", "run"),
			},
			{
				"SELECT TOP 7 * FROM c ORDER BY RANK RRF(FullTextScore(c.text, {'term': @two, 'distance': 2}), " +
					"FullTextScore(c.title, {'term': 'Redd!', 'distance': 1}))",
				fuse([][]float64{words(text, "the"), words(title, "red")}, []float64{1, 1}),
			},
			{
				"SELECT TOP 7 * FROM c ORDER BY RANK RRF(FullTextScore(c.text, 'swim', @two), FullTextScore(c.title, 'red'))",
				fuse([][]float64{words(text, "swim", "the"), words(title, "red")}, []float64{1, 1}),
			},
			{
				"SELECT TOP 7 c.id FROM c ORDER BY RANK RRF(VectorDistance(c.v, [1, 0]), FullTextScore(c[@name], 'red'), [2, 1])",
				fuse([][]float64{near, words(title, "red")}, []float64{2, 1}),
			},
			{
				"SELECT TOP 9 c.id FROM c ORDER BY RANK RRF(FullTextScore(c.text, 'a'), VectorDistance(c.v, [1, 0]), [1, -0.5])",
				fuse([][]float64{words(text, "a"), near}, []float64{1, -0.5}),
			},
		} {
			checkRanks(t, docs, test.query, test.want)
		}
	}
}

// cosineTo is the cosine to the vector [1, 0].
func cosineTo(v []float64) (float64, bool) {
	if v == nil {
		return 0, false
	}
	return v[0] / math.Sqrt(v[0]*v[0]+v[1]*v[1]), true
}

var rankParameters = []Parameter{{"@two", []byte(`"the"`)}, {"@name", []byte(`"title"`)}}

// checkRanks runs a query as a whole, and by its plan over two ranges.
func checkRanks(t *testing.T, docs []ranked, query string, scores []float64) {
	t.Helper()
	b := bound(t, query, rankParameters...)
	offset, limit := b.Limit()
	byID := map[string]float64{}
	var want []float64
	for i, d := range docs {
		byID[d.ID] = scores[i]
		if fusedOf(query) && d.Title == "" && d.Text == "" && d.Vector == nil || math.IsNaN(scores[i]) {
			continue
		}
		if fusedOf(query) && !appears(d, query) {
			continue
		}
		want = append(want, scores[i])
	}
	slices.SortFunc(want, func(a, b float64) int { return compareFloats(b, a) })
	want = want[min(int(offset), len(want)):]
	want = want[:min(int(limit), len(want))]
	var all []string
	for _, d := range docs {
		all = append(all, d.json())
	}
	whole, err := run(t, query, all, rankParameters...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	ways := map[string][]string{"whole": strings.Split(whole, "\n"), "by its plan": runPlan(t, query, all)}
	for how, rows := range ways {
		var got []float64
		for _, row := range rows {
			if row == "" {
				continue // no rows
			}
			var d ranked
			if err := json.Unmarshal([]byte(row), &d); err != nil {
				t.Fatalf("%s returns %s", query, row)
			}
			got = append(got, byID[d.ID])
		}
		if !slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }) {
			t.Fatalf("%s over %d documents, %s: scores %v, want %v", query, len(docs), how, got, want)
		}
	}
}

func fusedOf(query string) bool { return strings.Contains(query, "RRF") }

// appears says whether a document has any of the properties by which a query ranks.
func appears(d ranked, query string) bool {
	return d.Text != "" && strings.Contains(query, "c.text") || d.Vector != nil && strings.Contains(query, "c.v") ||
		d.Title != "" && (strings.Contains(query, "c.title") || strings.Contains(query, "@name"))
}

func compareFloats(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
