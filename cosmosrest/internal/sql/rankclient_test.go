package sql

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A client that runs the plan of ORDER BY RANK, as the SDKs do.

// statisticsOf is an answer to the statistics query.
type statisticsOf struct {
	Documents float64 `json:"documentCount"`
	Texts     []struct {
		Words float64   `json:"totalWordCount"`
		Hits  []float64 `json:"hitCounts"`
	} `json:"fullTextStatistics"`
}

// componentRow is an answer to a component query.
type componentRow struct {
	RID     string `json:"_rid"`
	Payload struct {
		Payload json.RawMessage `json:"payload"`
		Scores  []float64       `json:"componentScores"`
	} `json:"payload"`
	fused float64
}

// runPlan runs a query over two halves of the documents.
func runPlan(t *testing.T, query string, docs []string) (rows []string) {
	t.Helper()
	raw, err := bound(t, query, rankParameters...).Plan([]KeyRange{{"", "FF"}}, nil)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	var plan struct {
		Hybrid hybridPlan `json:"hybridSearchQueryInfo"`
	}
	if err := json.Unmarshal(raw, &plan); err != nil {
		t.Fatal(err)
	}
	halves := [][]string{docs[:len(docs)/2], docs[len(docs)/2:]}
	var sum statisticsOf
	for i, half := range halves {
		var own statisticsOf
		if err := json.Unmarshal([]byte(runPart(t, plan.Hybrid.Statistics, half)), &own); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			sum = own
			continue
		}
		sum.Documents += own.Documents
		for j, text := range own.Texts {
			sum.Texts[j].Words += text.Words
			for k, n := range text.Hits {
				sum.Texts[j].Hits[k] += n
			}
		}
	}
	found := map[string]*componentRow{}
	var all []*componentRow
	for _, component := range plan.Hybrid.Components {
		var own []*componentRow
		for _, half := range halves {
			for line := range strings.Lines(runPart(t, filled(component.RewrittenQuery, sum), half)) {
				row := &componentRow{}
				if err := json.Unmarshal([]byte(line), row); err != nil {
					t.Fatal(err)
				}
				own = append(own, row)
				if found[row.RID] == nil {
					found[row.RID] = row
					all = append(all, row)
				}
			}
		}
	}
	return plan.Hybrid.merge(all)
}

func runPart(t *testing.T, query string, docs []string) string {
	t.Helper()
	got, err := run(t, query, docs, rankParameters...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return got
}

// filled writes the sums into a query.
func filled(query string, sum statisticsOf) string {
	pairs := []string{filterPlace, "true", documentCountPlace, fmt.Sprint(sum.Documents)}
	for i, text := range sum.Texts {
		hits, _ := json.Marshal(text.Hits)
		pairs = append(pairs, fmt.Sprintf(wordCountPlace, i), fmt.Sprint(text.Words), fmt.Sprintf(hitCountsPlace, i),
			string(hits))
	}
	return strings.NewReplacer(pairs...).Replace(query)
}

// merge ranks the rows by each component, fuses the ranks, and cuts.
func (h *hybridPlan) merge(all []*componentRow) (rows []string) {
	for i, component := range h.Components {
		weight := 1.0
		if len(h.Weights) > 0 {
			weight = h.Weights[i]
		}
		slices.SortStableFunc(all, func(a, b *componentRow) int {
			diff := compareFloats(a.Payload.Scores[i], b.Payload.Scores[i])
			if component.OrderBy[0] == "Descending" {
				return -diff
			}
			return diff
		})
		rank := 0
		for j, row := range all {
			if j == 0 || row.Payload.Scores[i] != all[j-1].Payload.Scores[i] {
				rank++
			}
			row.fused += weight / float64(60+rank)
		}
	}
	slices.SortStableFunc(all, func(a, b *componentRow) int { return compareFloats(b.fused, a.fused) })
	if h.Skip != nil {
		all = all[min(int(*h.Skip), len(all)):]
	}
	for _, row := range all[:min(int(*h.Take), len(all))] {
		rows = append(rows, string(row.Payload.Payload))
	}
	return rows
}

// The plans are the service's, literally: those of the tests of .NET's SDK.
func TestPlansOfRanksAreTheServices(t *testing.T) {
	const words = `_FullTextScore(c.text, ["swim", "run"], {documentdb-formattablehybridsearchquery-totaldocumentcount}, ` +
		`{documentdb-formattablehybridsearchquery-totalwordcount-0}, {documentdb-formattablehybridsearchquery-hitcountsarray-0})`
	const filter = "\nFROM c\nWHERE ({documentdb-formattableorderbyquery-filter})\nORDER BY "
	const statistics = `SELECT COUNT(1) AS documentCount, [{"totalWordCount": SUM(_FullTextWordCount(c.text)), "hitCounts": ` +
		`[COUNTIF(FullTextContains(c.text, "swim")), COUNTIF(FullTextContains(c.text, "run"))]}] AS fullTextStatistics` + "\nFROM c"
	const none = "SELECT COUNT(1) AS documentCount, [] AS fullTextStatistics\nFROM c"
	row := func(own string, scores ...string) string {
		return `SELECT TOP 120 c._rid, [{"item": ` + own + `}] AS orderByItems, {"payload": c, "componentScores": [` +
			strings.Join(scores, ", ") + `]} AS payload` + filter + own
	}
	const image, backup = "_VectorScore(c.image, [1, 2, 3])", "_VectorScore(c.backup_image, [0.5, 0.25, 0.375])"
	const low, high = " ?? -1.79769e+308)", " ?? 1.79769e+308)"
	for _, test := range []struct {
		query, statistics string
		rewritten, order  []string
		weights           []float64
	}{
		{
			`SELECT TOP 10 * FROM c ORDER BY RANK FullTextScore(c.text, "swim", 'run')`, statistics,
			[]string{row(words, "("+words+" ?? -1)") + " DESC"},
			[]string{"Descending"},
			nil,
		},
		{
			`SELECT TOP 10 * FROM c ORDER BY RANK RRF(FullTextScore(c.text, "swim", "run"), VectorDistance(c.image, [1, 2, 3]))`,
			statistics,
			[]string{
				row(words, "("+words+" ?? -1)", "("+image+low) + " DESC",
				row(image, "("+words+" ?? -1)", "("+image+low),
			},
			[]string{"Descending", "Descending"},
			nil,
		},
		{
			"SELECT TOP 10 * FROM c ORDER BY RANK RRF(VectorDistance(c.backup_image, [0.5, 0.25, 0.375]), " +
				"VectorDistance(c.image, [1, 2, 3]), [1, -0.3])", none,
			[]string{row(backup, "("+backup+low, "("+image+high), row(image, "("+backup+low, "("+image+high) + " ASC"},
			[]string{"Descending", "Ascending"},
			[]float64{1, 0.3},
		},
	} {
		raw, h := hybridPlanOf(t, test.query)
		if h.Statistics != test.statistics || h.NeedsAll != (test.statistics != none) || *h.Take != 10 ||
			h.Skip != nil || !slices.Equal(h.Weights, test.weights) || len(h.Components) != len(test.rewritten) {
			t.Errorf("the plan of %s is %s", test.query, raw)
			continue
		}
		for i, component := range h.Components {
			if component.RewrittenQuery != test.rewritten[i] || component.OrderBy[0] != test.order[i] ||
				!component.HasNonStreamingOrderBy || *component.Top != 120 {
				t.Errorf("component %d of %s\n got %s %v\nwant %s", i, test.query, component.RewrittenQuery,
					component.OrderBy, test.rewritten[i])
			}
		}
	}
}

// hybridPlanOf returns the plan of a query, as text and decoded.
func hybridPlanOf(t *testing.T, query string) ([]byte, hybridPlan) {
	t.Helper()
	raw, err := bound(t, query).Plan(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var plan struct {
		Hybrid hybridPlan `json:"hybridSearchQueryInfo"`
	}
	if err := json.Unmarshal(raw, &plan); err != nil {
		t.Fatal(err)
	}
	return raw, plan.Hybrid
}

// A client skips the rows of OFFSET after it has merged the components, so each component must contain them, too.
func TestComponentsOfRanksContainTheSkippedRows(t *testing.T) {
	for _, test := range []struct {
		counts string
		rows   int64
	}{
		{"OFFSET 500 LIMIT 10", 1020}, {"OFFSET 40 LIMIT 10", 120}, {"OFFSET 0 LIMIT 70", 140},
	} {
		_, h := hybridPlanOf(t, "SELECT * FROM c ORDER BY RANK FullTextScore(c.text, 'swim') "+test.counts)
		component := h.Components[0]
		tail := fmt.Sprintf("OFFSET 0 LIMIT %d", test.rows)
		if *component.Offset != 0 || *component.Limit != test.rows ||
			!strings.HasSuffix(component.RewrittenQuery, tail) {
			t.Errorf("%s: the component is %s, want %s", test.counts, component.RewrittenQuery, tail)
		}
	}
}

func TestRanksThatCannotBe(t *testing.T) {
	for _, test := range []struct{ query, want string }{
		{
			"SELECT * FROM c ORDER BY RANK RRF(FullTextScore(c.t, 'a'), FullTextScore(c.u, 'a'), [1])",
			"The weights of the RRF function are '[1]': want an array of 2 numbers, one for each component.",
		},
		{
			"SELECT * FROM c ORDER BY VectorDistance(c.v, [1], false, {distanceFunction: 'near'})",
			`VectorDistance has the distanceFunction '"near"': want cosine, dotproduct or euclidean.`,
		},
	} {
		if _, err := run(t, test.query, []string{`{"t":"a","v":[1]}`}); err == nil || err.Error() != test.want {
			t.Errorf("%s: %v, want %s", test.query, err, test.want)
		}
	}
}

// The nearest vectors come first, whichever distance function the policy of the container names, and rows without a
// vector are left out.
func TestTheNearestVectorsComeFirst(t *testing.T) {
	docs := []string{
		`{"id":"a","o":{"v":[1,1]}}`, `{"id":"b","o":{"v":[5,0.1]}}`, `{"id":"c"}`, `{"id":"d","o":{"v":[0,1]}}`,
		`{"id":"e","o":{"v":[2,0.5]}}`, `{"id":"f","o":{"v":[1]}}`,
	}
	for _, test := range []struct{ distance, want, direction string }{
		{"", "b e a d", "Descending"},
		{"cosine", "b e a d", "Descending"},
		{"dotproduct", "b e a d", "Descending"},
		{"euclidean", "a e d b", "Ascending"},
	} {
		b := bound(t, "SELECT TOP 9 VALUE c.id FROM c ORDER BY VectorDistance(c.o[@v], [1, 0])", Parameter{"@v", []byte(`"v"`)})
		b.Distances(map[string]string{"/o/v": test.distance, "/v": "euclidean"})
		info, err := PlanOf(b)
		if err != nil || info.OrderBy[0] != test.direction || !info.HasNonStreamingOrderBy {
			t.Errorf("%s: plan %+v, %v", test.distance, info, err)
		}
		r := b.NewRun()
		for _, doc := range docs {
			if err := r.Add([]byte(doc)); err != nil {
				t.Fatal(err)
			}
		}
		rows, err := r.Finish()
		var got []string
		for _, row := range rows {
			got = append(got, strings.Trim(string(row.JSON), `"`))
		}
		if err != nil || strings.Join(got, " ") != test.want {
			t.Errorf("by %q: %v, %v; want %s", test.distance, got, err, test.want)
		}
	}
}
