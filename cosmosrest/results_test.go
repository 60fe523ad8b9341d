package cosmosrest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
)

// Results of queries that others recorded at the real service (testdata/recorded/results.ndjson, collected from the
// baselines of Azure/azure-cosmos-dotnet-v3 and Azure/azure-cosmos-client-engine; each line names its source).

// recordedResult is a query with its rows, or the documents of a set.
type recordedResult struct {
	Set, Description, Query string
	Documents               []map[string]any
	Result                  any
}

// withoutDocuments are the queries whose documents nobody recorded: 295 products of a sample database. Queries that
// find none of them are compared all the same.
func (r *recordedResult) withoutDocuments() bool {
	return r.Set == "aggregates" && !strings.Contains(r.Query, "NonExistentCategory")
}

// isUnordered tells of results whose order the SDK made.
func (r *recordedResult) isUnordered() bool {
	return r.Set == "groupby" || strings.Contains(r.Query, "MAKE")
}

func recordedResults(t *testing.T) (all []recordedResult) {
	t.Helper()
	file, err := os.ReadFile("testdata/recorded/results.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(file)) {
		var r recordedResult
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// mixedDocuments are the documents of the set "mixed", as its results tell: each value of a type is once under the
// type's own key and once among all types.
func mixedDocuments(all []recordedResult) (docs []map[string]any) {
	for _, key := range []string{"doubleOnly", "stringOnly", "boolOnly", "nullOnly", "objectOnlyKey", "arrayOnlyKey"} {
		i := slices.IndexFunc(all, func(r recordedResult) bool {
			return strings.Contains(r.Query, "MAKELIST") && strings.Contains(r.Query, `"`+key+`"`)
		})
		for _, v := range all[i].Result.([]any) {
			docs = append(docs, map[string]any{"key": key, "field": v}, map[string]any{"key": "mixed", "field": v})
		}
	}
	docs = append(docs, map[string]any{"key": "oneArrayKey", "field": []any{}},
		map[string]any{"key": "oneObjectKey", "field": map[string]any{}})
	for range 20 {
		docs = append(docs, map[string]any{"key": "undefinedKey"})
	}
	return docs
}

func TestRecordedResults(t *testing.T) {
	all := recordedResults(t)
	worlds := map[string]*world{}
	for set, docs := range map[string][]map[string]any{
		"groupby": all[0].Documents, "mixed": mixedDocuments(all), "aggregates": nil,
	} {
		w, cont := newContainer(t, Options{})
		worlds[set] = w
		for i, doc := range docs {
			if doc["id"] == nil {
				doc["id"] = fmt.Sprint(i)
			}
			doc["pk"] = "p"
			body, err := json.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := cont.Create(t.Context(), body); err != nil {
				t.Fatal(err)
			}
		}
	}
	compared, unreachable := 0, 0
	for _, r := range all {
		switch {
		case r.Query == "":
		case r.withoutDocuments():
			unreachable++
		default:
			compared++
			compareResult(t, worlds[r.Set], r)
		}
	}
	if compared != 158 || unreachable != 10 {
		t.Errorf("%d results are compared, and %d have no documents: want 158 and 10", compared, unreachable)
	}
}

// compareResult runs a query over the single range of a container, as a client does that merges ranges.
func compareResult(t *testing.T, w *world, r recordedResult) {
	t.Helper()
	a := w.ask(t, across("x-ms-documentdb-partitionkeyrangeid", "0"), r.Query)
	if a.status == http.StatusBadRequest && strings.Contains(string(a.body), "SC2005") {
		t.Logf("%s: the server has no such function yet", r.Query)
		return
	}
	var page struct{ Documents []any }
	a.want(t, http.StatusOK).into(t, &page)
	got := any(page.Documents)
	if r.Set == "mixed" { // the recording has the only row, or null if there is none
		if got = nil; len(page.Documents) > 0 {
			got = page.Documents[0]
		}
	}
	if one, want := sortedText(got, r.isUnordered()), sortedText(r.Result, r.isUnordered()); one != want {
		t.Errorf("%s:\n%s, want\n%s", r.Query, one, want)
	}
}

// sortedText writes a value as JSON, and the elements of a list without an order in that of their texts.
func sortedText(v any, unordered bool) string {
	list, ok := v.([]any)
	if !ok || !unordered {
		b, _ := json.Marshal(v)
		return string(b)
	}
	var texts []string
	for _, element := range list {
		texts = append(texts, sortedText(element, false))
	}
	slices.Sort(texts)
	return "[" + strings.Join(texts, ",") + "]"
}
