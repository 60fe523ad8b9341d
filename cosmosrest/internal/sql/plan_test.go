package sql

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func planOf(t testing.TB, query string, params ...Parameter) queryInfo {
	t.Helper()
	raw, err := bound(t, query, params...).Plan([]KeyRange{{"", "FF"}}, nil)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	var plan queryPlan
	if err := json.Unmarshal(raw, &plan); err != nil {
		t.Fatal(err)
	}
	if plan.Version != planVersion || len(plan.Ranges) != 1 || plan.Ranges[0] != (planRange{"", "FF", true, false}) {
		t.Errorf("%s: version %d, ranges %v", query, plan.Version, plan.Ranges)
	}
	return plan.Info
}

// Each " | " of a wanted query is a line feed.
func TestRewrittenQueries(t *testing.T) {
	const place = "({documentdb-formattableorderbyquery-filter})"
	tests := []struct{ query, want string }{
		{"SELECT * FROM c WHERE c.x = @two", ""},
		{"SELECT TOP @two * FROM c", ""},
		{"SELECT DISTINCT c.x FROM c", ""},
		{"SELECT DISTINCT TOP 3 c.x FROM c WHERE c.y", "SELECT DISTINCT c.x | FROM c | WHERE c.y"},
		{"SELECT DISTINCT VALUE c.x FROM c OFFSET 1 LIMIT 2", "SELECT DISTINCT VALUE c.x | FROM c"},
		{"SELECT c.x FROM c WHERE c.y OFFSET 3 LIMIT @two", "SELECT c.x | FROM c | WHERE c.y | OFFSET 0 LIMIT 5"},
		{"SELECT c.x FROM c OFFSET 3 LIMIT 2147483647", "SELECT c.x | FROM c | OFFSET 0 LIMIT 2147483650"},
		// a larger one is refused
		{"SELECT c.x FROM c OFFSET 3 LIMIT 4294967295", "SELECT c.x | FROM c | OFFSET 0 LIMIT 4294967295"},
		{
			"SELECT * FROM c ORDER BY c.x",
			`SELECT c._rid, [{"item": c.x}] AS orderByItems, c AS payload | FROM c | WHERE ` + place + ` | ORDER BY c.x`,
		},
		{
			"select top 5 d.a, 1 from docs d -- all\n where d.b = 1 or d.c\norder by d.x desc, d . y -- the end",
			`SELECT TOP 5 d._rid, [{"item": d.x}, {"item": d.y}] AS orderByItems, {"a": d.a, "$1": 1} AS payload | ` +
				`FROM docs AS d | WHERE (((d.b = 1) OR d.c) AND ` + place + `) | ORDER BY d.x DESC, d.y`,
		},
		{
			"SELECT VALUE t FROM c JOIN t IN c.tags WHERE t > 1 ORDER BY t OFFSET 1 LIMIT 2",
			`SELECT c._rid, [{"item": t}] AS orderByItems, t AS payload | FROM c | JOIN t IN c.tags | ` +
				`WHERE (((t > 1) AND ` + place + `) AND IS_DEFINED(t)) | ORDER BY t | OFFSET 0 LIMIT 3`,
		},
		{
			"SELECT * FROM t IN c.tags ORDER BY t.x",
			`SELECT DOCUMENT_RID() AS _rid, [{"item": t.x}] AS orderByItems, t AS payload | FROM t IN c.tags | WHERE ` +
				place + ` | ORDER BY t.x`,
		},
		{
			"SELECT VALUE s FROM (SELECT c.x FROM c) s ORDER BY s.x",
			`SELECT DOCUMENT_RID() AS _rid, [{"item": s.x}] AS orderByItems, s AS payload | FROM ( |     SELECT c.x | ` +
				`    FROM c | ) AS s | WHERE (` + place + ` AND IS_DEFINED(s)) | ORDER BY s.x`,
		},
		{"SELECT VALUE EXISTS(SELECT 1 FROM c ORDER BY c.x)", ""},
		{"SELECT DISTINCT TOP 1 VALUE x FROM x IN (SELECT VALUE [2, 1]) ORDER BY x", ""},
		{"SELECT VALUE COUNT(1) FROM c", `SELECT VALUE [{"item": COUNT(1)}] | FROM c`},
		{
			"SELECT VALUE AVG(c.x) FROM c WHERE c.y",
			`SELECT VALUE [{"item": {"sum": SUM(c.x), "count": COUNT(c.x)}}] | FROM c | WHERE c.y`,
		},
		{
			"SELECT MIN(c.x) AS m, COUNT(1) FROM c",
			`SELECT {"m": {"item": MIN(c.x), "item2": {"min": MIN(c.x), "count": COUNT(c.x)}}, ` +
				`"$1": {"item": COUNT(1)}} AS payload | FROM c`,
		},
		{
			"SELECT TOP 3 c.k, SUM(c.x) AS s FROM c GROUP BY c.k",
			`SELECT [{"item": c.k}] AS groupByItems, {"k": c.k, "s": {"item": SUM(c.x)}} AS payload | FROM c | GROUP BY c.k`,
		},
		{
			"SELECT VALUE c.k FROM c GROUP BY c.k, c.l",
			`SELECT [{"item": c.k}, {"item": c.l}] AS groupByItems, c.k AS payload | FROM c | GROUP BY c.k, c.l`,
		},
		{
			"SELECT VALUE MAX(c.x) FROM c GROUP BY c.k",
			`SELECT [{"item": c.k}] AS groupByItems, [{"item": MAX(c.x), "item2": {"max": MAX(c.x), ` +
				`"count": COUNT(c.x)}}] AS payload | FROM c | GROUP BY c.k`,
		},
		{"SELECT COUNT(1) AS n FROM (SELECT DISTINCT c.x, c.y FROM c WHERE c.z)", "SELECT DISTINCT c.x, c.y | FROM c | WHERE c.z"},
	}
	for _, test := range tests {
		want := strings.ReplaceAll(test.want, " | ", "\n")
		long := "-- " + strings.Repeat("long", maxKeptSyntax) + "\n" + test.query
		for _, query := range []string{test.query, long} {
			if got := planOf(t, query, Parameter{"@two", []byte("2")}).RewrittenQuery; got != want {
				t.Errorf("%s\n got %s\nwant %s", test.query, got, want)
			}
		}
	}
}

func TestPlanIsWhatClientsRead(t *testing.T) {
	tests := []struct{ query, want string }{
		{
			"SELECT TOP @two * FROM c",
			`{"distinctType":"None","top":2,"offset":null,"limit":null,"orderBy":[],"orderByExpressions":[],"groupByExpressions":[],` +
				`"groupByAliases":[],"aggregates":[],"groupByAliasToAggregateType":{},"rewrittenQuery":"","hasSelectValue":false,"dCountInfo":null,"hasNonStreamingOrderBy":false}`,
		},
		{
			"SELECT c.k, AVG(c.x) AS a FROM c GROUP BY c.k OFFSET 1 LIMIT 2",
			`{"distinctType":"None","top":null,"offset":1,"limit":2,"orderBy":[],"orderByExpressions":[],` +
				`"groupByExpressions":["c.k"],"groupByAliases":["k","a"],"aggregates":[],"groupByAliasToAggregateType":{"a":"Average","k":null},` +
				`"rewrittenQuery":"SELECT [{\"item\": c.k}] AS groupByItems, {\"k\": c.k, \"a\": {\"item\": {\"sum\": SUM(c.x), \"count\": COUNT(c.x)}}} AS payload\nFROM c\nGROUP BY c.k",` +
				`"hasSelectValue":false,"dCountInfo":null,"hasNonStreamingOrderBy":false}`,
		},
		{
			"SELECT VALUE SUM(c.x) FROM c",
			`{"distinctType":"None","top":null,"offset":null,"limit":null,"orderBy":[],"orderByExpressions":[],"groupByExpressions":[],` +
				`"groupByAliases":[],"aggregates":["Sum"],"groupByAliasToAggregateType":{},"rewrittenQuery":"SELECT VALUE [{\"item\": SUM(c.x)}]\nFROM c",` +
				`"hasSelectValue":true,"dCountInfo":null,"hasNonStreamingOrderBy":false}`,
		},
	}
	for _, test := range tests {
		raw, err := bound(t, test.query, Parameter{"@two", []byte("2")}).Plan(nil, nil)
		want := `{"partitionedQueryExecutionInfoVersion":2,"queryInfo":` + test.want +
			`,"queryRanges":[],"hybridSearchQueryInfo":null}`
		if err != nil || string(raw) != want {
			t.Errorf("%s: %v\n got %s\nwant %s", test.query, err, raw, want)
		}
	}
}

func TestPlanTellsWhetherDistinctRowsAreSorted(t *testing.T) {
	tests := []struct{ query, want string }{
		{"SELECT DISTINCT c.x FROM c", "Unordered"},
		{"SELECT DISTINCT c.x FROM c ORDER BY c.x", "Ordered"},
		{"SELECT DISTINCT VALUE c.x FROM c ORDER BY c.x DESC", "Ordered"},
		{"SELECT DISTINCT c.x, c.y FROM c ORDER BY c.y, c.x", "Ordered"},
		{"SELECT DISTINCT c.x, c.y FROM c ORDER BY c.x", "Unordered"},
		{"SELECT DISTINCT c.x FROM c ORDER BY c.y", "Unordered"},
	}
	for _, test := range tests {
		if got := planOf(t, test.query).DistinctType; got != test.want {
			t.Errorf("%s: %s, want %s", test.query, got, test.want)
		}
	}
}

func TestConditionsHaveNoPlan(t *testing.T) {
	q, err := ParseCondition("from c where c.x = 1")
	if err != nil {
		t.Fatal(err)
	}
	b, err := q.Bind(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Plan(nil, nil); err == nil || err.Error() != "A condition has no query plan." {
		t.Errorf("error %v", err)
	}
}

func TestPlansThatCannotBe(t *testing.T) {
	tests := []struct{ query, want string }{
		{"SELECT VALUE COUNT(1) + 1 FROM c", "Compositions of aggregates and other expressions are not allowed."},
		{"SELECT {'n': COUNT(1)} AS x FROM c", "Compositions of aggregates and other expressions are not allowed."},
		{
			"SELECT VALUE COUNT(s.y) FROM (SELECT DISTINCT VALUE c.x FROM c) s",
			"A subquery with DISTINCT in FROM is not supported across partitions.",
		},
		{"SELECT * FROM c.x[0] ORDER BY 1", "The collection in FROM needs an alias."},
		{"SELECT VALUE 1 ORDER BY 1", "'ORDER BY' is not valid if FROM clause is omitted."},
	}
	for _, test := range tests {
		if _, err := bound(t, test.query).Plan(nil, nil); err == nil || err.Error() != test.want {
			t.Errorf("%s: %v, want %s", test.query, err, test.want)
		}
	}
}

// merged are queries whose parts a client merges.
var merged = []string{
	"SELECT * FROM c WHERE c.pk = 'a'",
	"SELECT TOP 3 * FROM c",
	"SELECT c.id FROM c OFFSET 2 LIMIT 3",
	"SELECT DISTINCT VALUE c.n FROM c",
	"SELECT DISTINCT TOP 2 c.pk FROM c",
	"SELECT * FROM c ORDER BY c.n",
	"SELECT * FROM c ORDER BY c.n DESC, c.id",
	"SELECT VALUE c.name FROM c ORDER BY c.id",
	"SELECT c.id, c.n + 1 FROM c WHERE c.pk = 'a' OR c.n = 1 ORDER BY c.pk DESC",
	"SELECT TOP 3 c.id FROM c ORDER BY c.n",
	"SELECT TOP 2 t, c.id FROM c JOIN t IN c.tags ORDER BY t DESC",
	"SELECT c.id FROM c ORDER BY c.id OFFSET 1 LIMIT @two",
	"SELECT DISTINCT c.pk FROM c ORDER BY c.pk",
	"SELECT DISTINCT TOP 2 VALUE c.pk FROM c ORDER BY c.n",
	"SELECT DISTINCT TOP 2 VALUE c.pk FROM c ORDER BY c.pk",
	"SELECT VALUE COUNT(1) FROM c",
	"SELECT VALUE COUNTIF(c.n = 1) FROM c",
	"SELECT VALUE MAKELIST(c.n) FROM c",
	"SELECT c.pk, MAKESET(c.n) AS s, MAKELIST(c.id) AS l FROM c GROUP BY c.pk",
	"SELECT TOP 2 c.id FROM c ORDER BY VectorDistance([c.n], [2], false, {'distanceFunction': 'dotproduct'})",
	"SELECT VALUE SUM(c.n) FROM c WHERE IS_NUMBER(c.n)",
	"SELECT VALUE AVG(c.n) FROM c WHERE IS_NUMBER(c.n)",
	"SELECT VALUE AVG(c.none) FROM c",
	"SELECT VALUE MIN(c.n) FROM c",
	"SELECT VALUE MAX(c.n) FROM c WHERE c.pk = 'a'",
	"SELECT VALUE MAX(c.none) FROM c",
	"SELECT COUNT(1) AS n, MIN(c.id) AS a, MAX(c.name) AS z, SUM(1), AVG(c.none) AS none FROM c",
	"SELECT c.pk, COUNT(1) AS n, MAX(c.name) AS z FROM c GROUP BY c.pk",
	"SELECT c.name, c.pk, AVG(c.n) AS avg FROM c WHERE IS_NUMBER(c.n) GROUP BY c.pk, c.name",
	"SELECT VALUE COUNT(1) FROM c GROUP BY c.name",
	"SELECT VALUE c.pk FROM c GROUP BY c.pk",
	"SELECT TOP 1 c.pk, COUNT(1) AS n FROM c GROUP BY c.pk",
	"SELECT DISTINCT VALUE COUNT(1) FROM c GROUP BY c.id",
	"SELECT t, COUNT(1) AS n FROM c JOIN t IN c.tags GROUP BY t OFFSET 1 LIMIT 1",
	"SELECT DISTINCT VALUE c.n FROM c OFFSET 1 LIMIT 2",
	"SELECT COUNT(1) AS n FROM (SELECT DISTINCT c.pk FROM c WHERE IS_DEFINED(c.n))",
	"SELECT COUNT(s) FROM (SELECT DISTINCT VALUE c.n FROM c) s",
	"SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.none FROM c)",
}

// A client that merges what two ranges return gets what one range with all documents returns.
func TestMergedPartsAreTheWhole(t *testing.T) {
	two := Parameter{"@two", []byte("2")}
	for _, query := range merged {
		whole, err := run(t, query, families, two)
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		info := planOf(t, query, two)
		part := query
		if info.RewrittenQuery != "" {
			part = strings.Replace(info.RewrittenQuery, filterPlace, "true", 1)
		}
		for cut := range len(families) + 1 {
			var parts [][]value
			for _, docs := range [][]string{families[:cut], families[cut:]} {
				text, err := run(t, part, docs, two)
				if err != nil {
					t.Fatalf("%s: %v", part, err)
				}
				parts = append(parts, parseRows(text))
			}
			if got := joinRows(merge(info, parts)); got != canonicalRows(whole) {
				t.Errorf("%s of %d and %d documents\n got %s\nwant %s", query, cut, len(families)-cut, got,
					canonicalRows(whole))
			}
		}
	}
}

func parseRows(text string) []value {
	var rows []value
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" {
			rows = append(rows, documentValue([]byte(line)))
		}
	}
	return rows
}

func canonicalRows(text string) string { return joinRows(parseRows(text)) }

func joinRows(rows []value) string {
	var texts []string
	for _, r := range rows {
		texts = append(texts, canonical(r))
	}
	return strings.Join(texts, "\n")
}

// get looks a path up in a row.
func get(v value, names ...string) value {
	for _, name := range names {
		v = step{name: name, index: -1}.of(v)
	}
	return v
}

// merge does what the JavaScript SDK's pipeline does: sort or fold, tell apart, cut.
func merge(info queryInfo, parts [][]value) []value {
	rows := slices.Concat(parts...)
	switch {
	case len(info.OrderBy) > 0:
		rows = mergeSorted(info, rows)
	case len(info.Aggregates)+len(info.GroupByExpressions)+len(info.AliasToAggregate) > 0:
		rows = mergeGroups(info, rows)
	}
	if info.DistinctType != "None" {
		rows = mergeDistinct(info.DistinctType == "Ordered", rows)
	}
	if info.Top != nil {
		rows = rows[:min(int(*info.Top), len(rows))]
	}
	if info.Limit != nil {
		rows = rows[min(int(*info.Offset), len(rows)):]
		rows = rows[:min(int(*info.Limit), len(rows))]
	}
	if info.DCountInfo != nil {
		return []value{countOf(rows, info.DCountInfo.Alias)}
	}
	return rows
}

// countOf is the number of rows, as a column unless the alias is empty.
func countOf(rows []value, alias string) value {
	n := numberValue(float64(len(rows)))
	if alias == "" {
		return n
	}
	return objectNode{[]field{newField(alias, constant{n})}}.eval(&frame{work: maxWork})
}

func mergeSorted(info queryInfo, rows []value) []value {
	slices.SortStableFunc(rows, func(a, b value) int {
		x, y := elements(get(a, "orderByItems")), elements(get(b, "orderByItems"))
		for i, direction := range info.OrderBy {
			d := order(get(x[i], "item"), get(y[i], "item"))
			if direction == "Descending" {
				d = -d
			}
			if d != 0 {
				return d
			}
		}
		return 0
	})
	for i, r := range rows {
		rows[i] = get(r, "payload")
	}
	return rows
}

func mergeDistinct(sorted bool, rows []value) []value {
	if sorted {
		return slices.CompactFunc(rows, equal)
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(rows, func(v value) bool {
		key := canonical(v)
		repeated := seen[key]
		seen[key] = true
		return repeated
	})
}

// mergeGroups folds the payloads of each group, column by column; a query with VALUE has one without a name.
func mergeGroups(info queryInfo, rows []value) []value {
	var ids []string
	keys := map[string][]value{}
	groups := map[string][]value{}
	for _, r := range rows {
		id, payload := "", r
		if items := get(r, "groupByItems"); items.kind != undefined {
			id = canonical(items)
			keys[id] = elements(items)
		}
		if id != "" || !info.HasSelectValue {
			payload = get(r, "payload")
		}
		if groups[id] == nil {
			ids = append(ids, id)
		}
		groups[id] = append(groups[id], payload)
	}
	slices.SortFunc(ids, func(a, b string) int {
		return slices.CompareFunc(keys[a], keys[b], func(x, y value) int {
			return order(get(x, "item"), get(y, "item"))
		})
	})
	var out []value
	for _, id := range ids {
		var merged value
		switch {
		case len(info.Aggregates) > 0:
			var parts []value
			for _, p := range groups[id] {
				parts = append(parts, elements(p)...)
			}
			merged = mergeAggregate(info.Aggregates[0], parts)
		case info.HasSelectValue:
			merged = groups[id][0]
		default:
			merged = mergeColumns(info, groups[id])
		}
		if merged.kind != undefined {
			out = append(out, merged)
		}
	}
	return out
}

func mergeColumns(info queryInfo, payloads []value) value {
	var row objectNode
	for _, alias := range info.GroupByAliases {
		v := get(payloads[0], alias)
		if kind := info.AliasToAggregate[alias]; kind != nil {
			var parts []value
			for _, p := range payloads {
				parts = append(parts, get(p, alias))
			}
			v = mergeAggregate(*kind, parts)
		}
		row.members = append(row.members, newField(alias, constant{v}))
	}
	return row.eval(&frame{work: maxWork})
}

// mergeAggregate adds up the parts of an aggregate. One that is undefined, though there were values, makes the whole
// undefined, as in the .NET SDK.
func mergeAggregate(kind string, parts []value) value {
	var sum, count float64
	var best value
	var list []value
	for _, p := range parts {
		item := get(p, "item")
		switch kind {
		case "MakeList", "MakeSet":
			list = append(list, elements(item)...)
		case "Average":
			if get(item, "sum").kind == undefined {
				return value{}
			}
			sum += get(item, "sum").float()
			count += get(item, "count").float()
		case "Min", "Max":
			v := get(p, "item2", strings.ToLower(kind))
			if v.kind == undefined && get(p, "item2", "count").float() > 0 {
				return value{}
			}
			if v.kind != undefined && (best.kind == undefined || order(v, best) < 0 == (kind == "Min")) {
				best = v
			}
		default:
			if item.kind == undefined {
				return value{}
			}
			sum += item.float()
		}
	}
	switch kind {
	case "MakeList", "MakeSet":
		return listed(list, kind == "MakeSet")
	case "Average":
		return numberValue(sum / count)
	case "Min", "Max":
		return best
	}
	return numberValue(sum)
}

// listed is the array of values, or of those that are new.
func listed(list []value, once bool) value {
	w := arrayWriter{f: &frame{work: maxWork}}
	seen := map[string]bool{}
	for _, v := range list {
		if key := canonical(v); !once || !seen[key] {
			seen[key] = true
			w.add(v)
		}
	}
	return w.value()
}

func elements(v value) []value { return (&frame{work: maxWork}).elementsOf(v) }

func TestAPlanIsForClientsThatCanRunIt(t *testing.T) {
	tests := []struct{ query, features string }{
		{"SELECT * FROM c", ""},
		{"SELECT VALUE EXISTS(SELECT 1 FROM c)", ""},
		{"SELECT VALUE COUNT(1) FROM c", "Aggregate"},
		{"SELECT COUNT(1) FROM c", "Aggregate NonValueAggregate"},
		{"SELECT COUNT(1) AS n, MAX(c.x) AS m FROM c", "MultipleAggregates NonValueAggregate"},
		{"SELECT c.k, COUNT(1) AS n FROM c GROUP BY c.k", "Aggregate NonValueAggregate GroupBy"},
		{"SELECT VALUE c.k FROM c GROUP BY c.k", "GroupBy"},
		{"SELECT VALUE COUNTIF(c.x) FROM c", "Aggregate CountIf"},
		{"SELECT VALUE MAKESET(c.x) FROM c", "Aggregate ListAndSetAggregate"},
		{"SELECT * FROM c ORDER BY VectorDistance(c.v, [1])", "NonStreamingOrderBy OrderBy"},
		{"SELECT * FROM c ORDER BY RANK FullTextScore(c.t, 'a')", "HybridSearch"},
		{
			"SELECT * FROM c ORDER BY RANK RRF(FullTextScore(c.t, 'a'), VectorDistance(c.v, [1]), [1, 2])",
			"HybridSearch WeightedRankFusion",
		},
		{"SELECT DISTINCT c.x FROM c", "Distinct"},
		{"SELECT TOP 1 c.x FROM c ORDER BY c.x", "OrderBy Top"},
		{"SELECT c.x FROM c ORDER BY c.x, c.y OFFSET 1 LIMIT 2", "OffsetAndLimit MultipleOrderBy"},
		{"SELECT VALUE COUNT(1) FROM (SELECT DISTINCT c.x FROM c)", "Distinct DCount"},
	}
	for _, test := range tests {
		needed := strings.Fields(test.features)
		if _, err := bound(t, test.query).Plan(nil, func(f string) bool {
			return slices.Contains(needed, f)
		}); err != nil {
			t.Errorf("%s for a client with %s: %v", test.query, test.features, err)
		}
		_, err := bound(t, test.query).Plan(nil, func(string) bool { return false })
		var got []string
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				if name, ok := strings.CutPrefix(line, "Query contained "); ok {
					got = append(got, name[:strings.Index(name, ",")])
				}
			}
		}
		if !slices.Equal(got, needed) {
			t.Errorf("%s for a client without features: %v, want it to name %v", test.query, err, needed)
		}
	}
}
