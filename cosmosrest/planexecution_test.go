package cosmosrest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// Clients run a query by its plan: they send the rewritten query to the partitions that the plan's ranges touch, page
// by page, and merge the rows. planClient does this as the SDKs do, and reads nothing but the plan and the rows.
type planClient struct {
	*world
	path       string
	cont       *docstore.Container
	parameters json.RawMessage
	page       string
}

// clientPlan is what a client reads of a plan.
type clientPlan struct {
	Info struct {
		DistinctType       string
		Top, Offset, Limit *int
		OrderBy            []string
		GroupByExpressions []string
		GroupByAliases     []string
		Aggregates         []string
		AliasToAggregate   map[string]*string `json:"groupByAliasToAggregateType"`
		RewrittenQuery     string
		HasSelectValue     bool
		DCountInfo         *struct{ DCountAlias string }
	} `json:"queryInfo"`
	Ranges []keySpan `json:"queryRanges"`
}

// run returns the rows of a query; ok is false if the query has no plan.
func (c *planClient) run(t *testing.T, query string) (rows []any, plan clientPlan, ok bool) {
	t.Helper()
	a := c.do(t, "POST", c.path, planned(everyFeature), c.body(query))
	if a.status != 200 {
		return nil, plan, false
	}
	a.into(t, &plan)
	text := cmp.Or(plan.Info.RewrittenQuery, query)
	text = strings.ReplaceAll(text, "{documentdb-formattableorderbyquery-filter}", "true")
	for _, part := range c.touched(t, plan.Ranges) {
		rows = append(rows, c.pages(t, part, text)...)
	}
	return merged(t, &plan, rows), plan, true
}

// body is the body of a query with the parameters.
func (c *planClient) body(query string) string {
	q := map[string]any{"query": query}
	if c.parameters != nil {
		q["parameters"] = c.parameters
	}
	b, _ := json.Marshal(q)
	return string(b)
}

// touched are the partitions that the ranges of a plan touch.
func (c *planClient) touched(t *testing.T, ranges []keySpan) (ids []string) {
	t.Helper()
	parts, err := c.cont.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range parts {
		if slices.ContainsFunc(ranges, func(span keySpan) bool { return touches(span, part.Range) }) {
			ids = append(ids, part.ID)
		}
	}
	return ids
}

// touches reports whether a range of a plan has a key of a partition.
func touches(span keySpan, part feed.Range) bool {
	above := span.Max > part.Min || span.IsMaxInclusive && span.Max == part.Min
	return span.Min < part.Max && above
}

// pages are the rows of a query in a partition.
func (c *planClient) pages(t *testing.T, partition, query string) (rows []any) {
	t.Helper()
	headers := across("x-ms-documentdb-partitionkeyrangeid", partition, "x-ms-max-item-count", c.page)
	for {
		a := c.do(t, "POST", c.path, headers, c.body(query)).want(t, 200)
		var page struct{ Documents []any }
		a.into(t, &page)
		rows = append(rows, page.Documents...)
		next := a.header.Get("x-ms-continuation")
		if next == "" {
			return rows
		}
		headers["x-ms-continuation"] = next
	}
}

// merged puts the rows of the partitions together.
func merged(t *testing.T, plan *clientPlan, rows []any) []any {
	t.Helper()
	info := &plan.Info
	switch {
	case len(info.OrderBy) > 0:
		rows = sortedPayloads(t, info.OrderBy, rows)
	case len(info.GroupByExpressions)+len(info.Aggregates)+len(info.AliasToAggregate) > 0:
		rows = foldedGroups(t, plan, rows)
	}
	if info.DistinctType != "None" {
		seen := map[string]bool{}
		rows = slices.DeleteFunc(rows, func(row any) bool {
			key := jsonOf(row)
			again := seen[key]
			seen[key] = true
			return again
		})
	}
	if info.Offset != nil {
		rows = rows[min(*info.Offset, len(rows)):]
	}
	for _, most := range []*int{info.Limit, info.Top} {
		if most != nil {
			rows = rows[:min(*most, len(rows))]
		}
	}
	if d := info.DCountInfo; d != nil {
		if d.DCountAlias == "" {
			return []any{float64(len(rows))}
		}
		return []any{map[string]any{d.DCountAlias: float64(len(rows))}}
	}
	return rows
}

// jsonOf is the JSON of a value, with sorted members.
func jsonOf(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// sortedPayloads sorts rows by their items, and leaves their payloads. Each row has the resource id of its document.
func sortedPayloads(t *testing.T, directions []string, rows []any) (payloads []any) {
	t.Helper()
	slices.SortStableFunc(rows, func(x, y any) int {
		a, b := x.(map[string]any)["orderByItems"].([]any), y.(map[string]any)["orderByItems"].([]any)
		for i, direction := range directions {
			d := sortedBefore(a[i].(map[string]any), b[i].(map[string]any))
			if direction == "Descending" {
				d = -d
			}
			if d != 0 {
				return d
			}
		}
		return 0
	})
	for _, row := range rows {
		members := row.(map[string]any)
		if rid, _ := members["_rid"].(string); rid == "" || len(members["orderByItems"].([]any)) != len(directions) {
			t.Errorf("the row %s has no _rid, or not %d items", jsonOf(row), len(directions))
		}
		if payload, ok := members["payload"]; ok {
			payloads = append(payloads, payload)
		}
	}
	return payloads
}

// sortedBefore compares two items: undefined, null, booleans, numbers, strings.
func sortedBefore(a, b map[string]any) int {
	x, y := a["item"], b["item"]
	rank := func(item map[string]any) int {
		switch v, ok := item["item"]; v.(type) {
		case nil:
			if ok {
				return 1
			}
			return 0
		case bool:
			return 2
		case float64:
			return 3
		case string:
			return 4
		}
		return 5
	}
	if d := rank(a) - rank(b); d != 0 {
		return d
	}
	switch v := x.(type) {
	case bool:
		return cmp.Compare(jsonOf(v), jsonOf(y)) // "false" < "true"
	case float64:
		return cmp.Compare(v, y.(float64))
	case string:
		return cmp.Compare(v, y.(string))
	}
	return 0
}

// foldedGroups adds up the parts of each group. Rows without groupByItems are all of one group.
func foldedGroups(t *testing.T, plan *clientPlan, rows []any) (out []any) {
	t.Helper()
	info := &plan.Info
	groups := map[string][]any{}
	for _, row := range rows {
		id, payload := "", row
		if len(info.GroupByExpressions) > 0 || !info.HasSelectValue {
			members := row.(map[string]any)
			id, payload = jsonOf(members["groupByItems"]), members["payload"]
			if n := len(info.GroupByExpressions); n > 0 && len(members["groupByItems"].([]any)) != n {
				t.Errorf("the row %s has not %d groupByItems", jsonOf(row), n)
			}
		}
		groups[id] = append(groups[id], payload)
	}
	for _, id := range slices.Sorted(maps.Keys(groups)) {
		payloads := groups[id]
		if len(info.Aggregates) > 0 {
			var parts []any
			for _, p := range payloads {
				parts = append(parts, p.([]any)...)
			}
			if v, ok := foldedAggregate(info.Aggregates[0], parts); ok {
				out = append(out, v)
			}
			continue
		}
		if info.HasSelectValue {
			out = append(out, payloads[0])
			continue
		}
		row := map[string]any{}
		for _, alias := range info.GroupByAliases {
			kind := info.AliasToAggregate[alias]
			if kind == nil {
				if v, ok := payloads[0].(map[string]any)[alias]; ok {
					row[alias] = v
				}
				continue
			}
			var parts []any
			for _, p := range payloads {
				parts = append(parts, p.(map[string]any)[alias])
			}
			if v, ok := foldedAggregate(*kind, parts); ok {
				row[alias] = v
			}
		}
		out = append(out, row)
	}
	return out
}

// foldedAggregate adds up the parts of an aggregate; ok is false if the aggregate is undefined.
func foldedAggregate(kind string, parts []any) (v any, ok bool) {
	var sum, count float64
	var best map[string]any
	var list []any
	for _, part := range parts {
		members := part.(map[string]any)
		item, has := members["item"]
		switch kind {
		case "Average":
			pair := item.(map[string]any)
			s, defined := pair["sum"].(float64)
			if !defined {
				return nil, false
			}
			sum, count = sum+s, count+pair["count"].(float64)
		case "Min", "Max":
			both := members["item2"].(map[string]any)
			extreme, seen := both[strings.ToLower(kind)]
			if !seen && both["count"].(float64) > 0 {
				return nil, false
			}
			next := map[string]any{"item": extreme}
			if seen && (best == nil || sortedBefore(next, best) < 0 == (kind == "Min")) {
				best = next
			}
		case "MakeList", "MakeSet":
			list = append(list, item.([]any)...)
		default:
			if !has {
				return nil, false
			}
			sum += item.(float64)
		}
	}
	switch kind {
	case "Average":
		return sum / count, count > 0
	case "Min", "Max":
		return best["item"], best != nil
	case "MakeList", "MakeSet":
		return list, true
	}
	return sum, true
}

// planDocument is a document with the properties that the service's plans name.
func planDocument(r *rand.Rand, i int) string {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	doc := fmt.Sprintf(`{"id":"d%03d","age":%d,"income":%d`, i, r.IntN(5), r.IntN(100))
	doc += fmt.Sprintf(`,"team":%s,"name":%s`, pick(`"x"`, `"y"`), pick(`"ann"`, `"bob"`, `"cy"`, `"2"`))
	key := pick(`1`, `2`, `5`, `42`, `-1`, `"a"`, `"b"`, `"key"`, `"你好"`, `true`, `false`, `null`)
	doc += fmt.Sprintf(`,"key":%s,"pk":%s,"PartitionKey":"p%d"`, key, pick(`1`, `2`), r.IntN(9))
	if r.IntN(4) > 0 {
		doc += fmt.Sprintf(`,"blah":%d`, r.IntN(7))
	}
	doc += fmt.Sprintf(`,"blah2":%d,"orderByField1":%d,"orderByField2":"%d","property1":%d,"property4":%s`, r.IntN(9),
		r.IntN(4), i, i, pick(`"asdf"`, `"other"`))
	doc += fmt.Sprintf(`,"field":"F%d","field1":%d,"field4":%d,"b":%d,"scores":[%d,%d],"groups":[{"name":"g%d"}]`,
		r.IntN(3), i, i, i, r.IntN(3), r.IntN(3), r.IntN(2))
	return doc + fmt.Sprintf(`,"address":{"city":"city%d"},"text":"swim %d"}`, r.IntN(3), i)
}

// withKeys sets the values at a container's key paths that the documents do not have.
func withKeys(r *rand.Rand, doc string, keys []string) string {
	value := func() string {
		return []string{`1`, `2`, `4`, `5`, `null`, `true`, `false`, `"a"`, `""`, `"Hello World"`, `"a%"`}[r.IntN(11)]
	}
	switch strings.Join(keys, " ") {
	case "/a":
		doc = doc[:len(doc)-1] + `,"a":` + value() + `}`
	case "/a/c":
		doc = doc[:len(doc)-1] + `,"a":{"c":` + value() + `}}`
	case "/a/b/c":
		doc = doc[:len(doc)-1] + `,"a":{"b":{"c":` + value() + `}}}`
	case "/a/b/c /a/c", "/a/b/c /b /a/c":
		doc = doc[:len(doc)-1] + `,"a":{"b":{"c":` + value() + `},"c":` + value() + `}}`
	}
	return doc
}

// fill splits a container into four partitions, and writes documents.
func fill(t *testing.T, cont *docstore.Container, keys []string) {
	t.Helper()
	for _, id := range []string{"0", "1", "2"} {
		if _, err := cont.Split(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	r := rand.New(rand.NewPCG(27, 2))
	for i := range 60 {
		if _, err := cont.Upsert(t.Context(), []byte(withKeys(r, planDocument(r, i), keys))); err != nil {
			t.Fatal(err)
		}
	}
}

// counts are the words of a query that limit its rows.
var rowCounts = regexp.MustCompile(`TOP (\d+|@\w+) |OFFSET \d+ LIMIT \d+`)

// changing are functions that return another value each time.
var changing = regexp.MustCompile(`GetCurrent|RAND\(`)

// sameRows compares rows in any order; elements of arrays too, because the lists of aggregates have no order.
func sameRows(a, b []any) bool {
	return slices.Equal(slices.Sorted(slices.Values(sortedTexts(a))), slices.Sorted(slices.Values(sortedTexts(b))))
}

// sortedTexts are the texts of rows, with sorted arrays.
func sortedTexts(rows []any) (texts []string) {
	for _, row := range rows {
		texts = append(texts, jsonOf(sortedArrays(row)))
	}
	return texts
}

func sortedArrays(v any) any {
	switch v := v.(type) {
	case []any:
		list := slices.Clone(v)
		slices.SortFunc(list, func(a, b any) int { return strings.Compare(jsonOf(a), jsonOf(b)) })
		return list
	case map[string]any:
		for name, member := range v {
			v[name] = sortedArrays(member)
		}
	}
	return v
}

// differs compares the rows of a client with those of the whole container, which a lenient server computes itself.
func (c *planClient) differs(t *testing.T, lenient *world, query string, rows []any, plan *clientPlan) string {
	t.Helper()
	direct := func(text string) []any {
		a := lenient.do(t, "POST", c.path, across("x-ms-max-item-count", "1000"), c.body(text)).want(t, 200)
		var page struct{ Documents []any }
		a.into(t, &page)
		return page.Documents
	}
	want := direct(query)
	switch last := len(plan.Info.OrderBy) - 1; {
	case changing.MatchString(query):
		want, rows = want[:min(1, len(want))], rows[:min(1, len(rows))]
		if len(want) == len(rows) {
			return ""
		}
	case last > 0 || strings.Contains(query, "ORDER BY r.field4"): // the sort keys of these are unique
		if slices.Equal(sortedTexts(rows), sortedTexts(want)) {
			return ""
		}
	case rowCounts.MatchString(query) && len(plan.Info.Aggregates)+len(plan.Info.AliasToAggregate) == 0:
		// Of rows that sort the same, any may be among the first.
		all := sortedTexts(direct(rowCounts.ReplaceAllString(query, "")))
		for _, text := range sortedTexts(rows) {
			i := slices.Index(all, text)
			if i < 0 {
				return fmt.Sprintf("the row %s is none of the query", text)
			}
			all = slices.Delete(all, i, i+1)
		}
		if len(rows) == len(want) {
			return ""
		}
	case sameRows(rows, want):
		return ""
	}
	return fmt.Sprintf("by the plan: %s\ndirectly: %s", jsonOf(rows), jsonOf(want))
}

// moreMerged are queries about rows of several partitions that no plan of the service is about.
var moreMerged = []string{
	"SELECT DISTINCT VALUE c.team FROM c",
	"SELECT DISTINCT c.team, c.name FROM c WHERE c.age > 1",
	"SELECT DISTINCT TOP 2 c.name FROM c",
	"SELECT DISTINCT VALUE c.age FROM c OFFSET 1 LIMIT 2",
	"SELECT DISTINCT VALUE c.name FROM c ORDER BY c.name",
	"SELECT COUNT(1) AS n FROM (SELECT DISTINCT c.team, c.age FROM c)",
	"SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.name FROM c WHERE c.age > 2)",
	"SELECT COUNT(1) FROM (SELECT DISTINCT c.none FROM c) AS d",
	"SELECT VALUE SUM(c.income) FROM c WHERE c.age IN (1, 2)",
	"SELECT c.team, COUNTIF(c.age > 2) AS old, SUM(c.income) AS s FROM c GROUP BY c.team",
	"SELECT * FROM c ORDER BY c.orderByField1 DESC, c.orderByField2 DESC OFFSET 5 LIMIT 7",
	"SELECT VALUE s FROM c JOIN s IN c.scores WHERE s > 0 ORDER BY c.orderByField1, c.orderByField2",
	"SELECT VALUE c.none FROM c ORDER BY c.id",
}

// The rewritten queries are answered in the form that the SDKs merge: a client with a small merging executor has the
// rows of each query of the service's plans.
func TestAClientHasTheRowsOfAQueryByItsPlan(t *testing.T) {
	w := &planWorld{newWorld(t, Options{}), map[string]*docstore.Container{}}
	lenient := serveStore(t, w.db, Options{Lenient: true})
	all := servicePlans(t)
	for _, query := range moreMerged {
		all = append(all, servicePlan{Query: query, Keys: []string{"/key"}})
	}
	ran := 0
	for _, p := range all {
		if p.Info == nil && p.number > 0 {
			continue
		}
		known := len(w.conts)
		id, cont := w.container(t, p.Keys)
		if len(w.conts) > known {
			fill(t, cont, p.Keys)
		}
		c := &planClient{
			world: w.world, path: "/dbs/db/colls/" + id[strings.LastIndexByte(id, '/')+1:] + "/docs", cont: cont,
			parameters: p.Parameters, page: "7",
		}
		rows, plan, ok := c.run(t, p.Query)
		if !ok {
			continue
		}
		ran++
		if different := c.differs(t, lenient, p.Query, rows, &plan); different != "" {
			t.Errorf("%d %s\n%s\nrewritten: %s\n%s", p.number, p.Name, p.Query, plan.Info.RewrittenQuery, different)
		}
	}
	if ran < len(all)/2 {
		t.Errorf("only %d of %d queries have a plan", ran, len(all))
	}
	t.Logf("%d queries were run by their plans", ran)
}
