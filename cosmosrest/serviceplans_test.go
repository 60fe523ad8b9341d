package cosmosrest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// servicePlan is a query with the plan, or the refusal, of the service's own planner, from the baselines of the .NET
// SDK (testdata/plans/service.ndjson).
type servicePlan struct {
	Name       string
	Query      string
	Parameters json.RawMessage
	Keys       []string
	Kind       string
	Info       map[string]any
	Ranges     []string
	Error      json.RawMessage
	Raw        string

	number int
}

// servicePlans reads the plans.
func servicePlans(t testing.TB) (all []servicePlan) {
	t.Helper()
	raw, err := os.ReadFile("testdata/plans/service.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(raw) {
		p := servicePlan{number: len(all) + 1}
		if err := json.Unmarshal(line, &p); err != nil {
			t.Fatalf("plan %d: %v", p.number, err)
		}
		all = append(all, p)
	}
	return all
}

// body is the request for the plan.
func (p *servicePlan) body() string {
	q := map[string]any{"query": p.Query}
	if p.Parameters != nil {
		q["parameters"] = p.Parameters
	}
	b, _ := json.Marshal(q)
	return string(b)
}

// everyFeature are the features of a client that can do everything.
const everyFeature = "Aggregate, CompositeAggregate, Distinct, GroupBy, MultipleOrderBy, MultipleAggregates, " +
	"OffsetAndLimit, OrderBy, Top, NonValueAggregate, DCount, NonStreamingOrderBy, ListAndSetAggregate, CountIf, " +
	"HybridSearch, WeightedRankFusion, HybridSearchSkipOrderByRewrite"

// planWorld is a server with a container for each set of partition key paths.
type planWorld struct {
	*world
	conts map[string]*docstore.Container
}

// container makes the container of a plan, or finds it.
func (w *planWorld) container(t testing.TB, keys []string) (name string, cont *docstore.Container) {
	t.Helper()
	if len(keys) == 0 {
		keys = []string{"/noQueryNamesThis"}
	}
	id := "c" + strconv.Itoa(len(w.conts))
	paths := strings.Join(keys, " ")
	if c, ok := w.conts[paths]; ok {
		return c.ID(), c
	}
	kind := "Hash"
	if len(keys) > 1 {
		kind = "MultiHash"
	}
	list, _ := json.Marshal(keys)
	// Paths such as /key[0] have plans, but new containers cannot have them.
	lenient := serveStore(t, w.db, Options{Lenient: true})
	c := lenient.create(t, "db", fmt.Sprintf(`{"id":%q,"partitionKey":{"paths":%s,"kind":%q,"version":2},
		"indexingPolicy":{"includedPaths":[{"path":"/*"}],"compositeIndexes":%s}}`, id, list, kind,
		compositeIndexes("orderByField1", "orderByField2")), nil)
	w.conts[paths] = c
	return c.ID(), c
}

// compositeIndexes are the indexes that sorting by these two properties needs, in both directions.
func compositeIndexes(one, two string) string {
	index := func(order string) string {
		return fmt.Sprintf(`[{"path":"/%s","order":%q},{"path":"/%s","order":%q}]`, one, order, two, order)
	}
	return "[" + index("ascending") + "," + index("descending") + "]"
}

// plan asks for the plan of a query.
func (w *planWorld) plan(t testing.TB, p *servicePlan) (answer, *docstore.Container) {
	t.Helper()
	id, cont := w.container(t, p.Keys)
	id = id[strings.LastIndexByte(id, '/')+1:]
	return w.do(t, "POST", "/dbs/db/colls/"+id+"/docs", planned(everyFeature), p.body()), cont
}

// differences compares our answer with the service's; no text means that they are equal.
func (p *servicePlan) differences(t testing.TB, a answer, cont *docstore.Container) string {
	t.Helper()
	var refused struct {
		QueryInfo   map[string]any
		QueryRanges []struct {
			Min, Max any
		}
		HybridSearchQueryInfo map[string]any
	}
	switch {
	case p.Raw != "":
		return "a plan of a hybrid search, as XML"
	case p.Error != nil && json.Unmarshal(p.Error, &refused) == nil && refused.HybridSearchQueryInfo != nil:
		var got struct{ HybridSearchQueryInfo any }
		a.into(t, &got)
		return differentMember("hybridSearchQueryInfo", got.HybridSearchQueryInfo, refused.HybridSearchQueryInfo)
	case refused.QueryInfo != nil: // a plan with a number that the .NET SDK cannot read
		refused.QueryInfo["hasSelectValue"] = refused.QueryInfo["hasSelectValue"] == 1.0
		refused.QueryInfo["hasNonStreamingOrderBy"] = refused.QueryInfo["hasNonStreamingOrderBy"] == 1.0
		p.Info, p.Ranges = refused.QueryInfo, []string{`[[],"Infinity")`}
	case p.Error != nil:
		return differentRefusal(t, a, p.Error)
	}
	if a.status != 200 {
		return fmt.Sprintf("refused: %s", a.body)
	}
	var got struct {
		Version     int `json:"partitionedQueryExecutionInfoVersion"`
		QueryInfo   map[string]any
		QueryRanges []keySpan
		Hybrid      json.RawMessage `json:"hybridSearchQueryInfo"`
	}
	a.into(t, &got)
	if got.Version != 2 || string(got.Hybrid) != "null" {
		return fmt.Sprintf("version %d, hybridSearchQueryInfo %s", got.Version, got.Hybrid)
	}
	for name, want := range p.Info {
		if ours := got.QueryInfo[name]; !reflect.DeepEqual(ours, want) {
			return fmt.Sprintf("%s is\n%v, want\n%v", name, ours, want)
		}
	}
	var want []keySpan
	for _, text := range p.Ranges {
		span, err := spanOf(text, cont)
		if err != nil {
			return err.Error()
		}
		want = append(want, span)
	}
	slices.SortFunc(want, func(x, y keySpan) int { return strings.Compare(x.Min, y.Min) })
	if !slices.Equal(got.QueryRanges, want) {
		return fmt.Sprintf("ranges are %v, want %v", got.QueryRanges, want)
	}
	return ""
}

// differentMember compares a value with the service's, whose library writes 0 and 1 for booleans and leaves out empty
// members.
func differentMember(name string, got, want any) string {
	switch want := want.(type) {
	case map[string]any:
		members, _ := got.(map[string]any)
		for member, v := range want {
			if different := differentMember(name+"."+member, members[member], v); different != "" {
				return different
			}
		}
		return ""
	case []any:
		list, _ := got.([]any)
		if len(list) != len(want) {
			return fmt.Sprintf("%s is %v, want %v", name, got, want)
		}
		for i, v := range want {
			if different := differentMember(fmt.Sprintf("%s[%d]", name, i), list[i], v); different != "" {
				return different
			}
		}
		return ""
	}
	if _, ok := got.(bool); ok {
		want = want == 1.0
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Sprintf("%s is\n%v, want\n%v", name, got, want)
	}
	return ""
}

// keySpan is an element of queryRanges.
type keySpan struct {
	Min, Max                       string
	IsMinInclusive, IsMaxInclusive bool
}

// spanOf converts a range of partition keys, as the service's library writes it, to the range of effective partition
// keys that the gateway makes of it: [[1.0],[1.0]] is the point of the key [1].
func spanOf(text string, cont *docstore.Container) (keySpan, error) {
	list := "[" + text[1:len(text)-1] + "]"
	var ends []json.RawMessage
	if err := json.Unmarshal([]byte(list), &ends); err != nil || len(ends) != 2 {
		return keySpan{}, fmt.Errorf("range %s: %w", text, err)
	}
	span := keySpan{IsMinInclusive: text[0] == '[', IsMaxInclusive: text[len(text)-1] == ']'}
	for i, end := range []*string{&span.Min, &span.Max} {
		switch key := string(ends[i]); key {
		case "[]":
		case `"Infinity"`:
			*end = "FF"
		default:
			place, err := cont.LogicalPartition(feed.PartitionKey(key))
			if err != nil || !place.Whole() {
				return keySpan{}, fmt.Errorf("the range %s has no key of this container: %w", text, err)
			}
			*end = place.Range().Min
		}
	}
	return span, nil
}

// differentRefusal compares a refusal with the service's. Our message begins with the service's sentence.
func differentRefusal(t testing.TB, a answer, want json.RawMessage) string {
	t.Helper()
	if a.status != 400 {
		return fmt.Sprintf("status %d, want a refusal %s", a.status, want)
	}
	type one struct {
		Severity string
		Location any
		Code     any
		Message  string
	}
	read := func(text []byte) (list []one) {
		var members map[string]json.RawMessage
		if json.Unmarshal(text, &members) != nil {
			return nil
		}
		_ = json.Unmarshal(members["errors"], &list)
		var plain []string
		_ = json.Unmarshal(members["Errors"], &plain)
		for _, message := range plain {
			list = append(list, one{Message: message})
		}
		return list
	}
	var body struct{ Message string }
	a.into(t, &body)
	text, _, _ := strings.Cut(strings.TrimPrefix(body.Message, "Message: "), "\r\nActivityId")
	ours, theirs := read([]byte(text)), read(want)
	equal := len(ours) == len(theirs)
	for i := range ours {
		equal = equal && strings.HasPrefix(ours[i].Message, theirs[i].Message)
		if equal {
			ours[i].Message = theirs[i].Message
			equal = reflect.DeepEqual(ours[i], theirs[i])
		}
	}
	if !equal {
		return fmt.Sprintf("refused with %s, want %s", text, want)
	}
	return ""
}

// planExceptions reads the kept list of plans that differ: number, name and reason, between tabs.
func planExceptions(t testing.TB) map[int]string {
	t.Helper()
	raw, err := os.ReadFile("testdata/plans/exceptions.txt")
	if err != nil {
		t.Fatal(err)
	}
	list := map[int]string{}
	for line := range strings.Lines(string(raw)) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if strings.HasPrefix(line, "#") {
			continue
		}
		n, err := strconv.Atoi(fields[0])
		if err != nil || len(fields) != 3 {
			t.Fatalf("line %q of the exceptions: want a number, a name and a reason", line)
		}
		list[n] = fields[2]
	}
	return list
}

// The plans are the service's, to the letter. A plan that differs stands in the kept list with its reason.
func TestPlansAreTheServices(t *testing.T) {
	w := &planWorld{newWorld(t, Options{}), map[string]*docstore.Container{}}
	exceptions := planExceptions(t)
	all := servicePlans(t)
	for _, p := range all {
		a, cont := w.plan(t, &p)
		different := p.differences(t, a, cont)
		reason, kept := exceptions[p.number]
		switch {
		case different != "" && !kept:
			t.Errorf("%d\t%s\n%s\n%s", p.number, p.Name, p.Query, different)
		case different == "" && kept:
			t.Errorf("%d %s is equal now: remove it from testdata/plans/exceptions.txt (%s)", p.number, p.Name, reason)
		}
	}
	t.Logf("%d of %d plans are equal", len(all)-len(exceptions), len(all))
	text, err := os.ReadFile("../docs/server.md")
	if err != nil {
		t.Fatal(err)
	}
	wanted := []string{fmt.Sprintf("%d of %d", len(all)-len(exceptions), len(all))}
	reasons := map[string]int{}
	for _, reason := range exceptions {
		reasons[reason]++
	}
	for reason, n := range reasons {
		wanted = append(wanted, fmt.Sprintf("\n| %d | %s |\n", n, reason))
	}
	for _, want := range wanted {
		if !strings.Contains(string(text), want) {
			t.Errorf("docs/server.md does not contain %q", want)
		}
	}
}
