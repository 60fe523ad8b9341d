package cosmosrest

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
)

// The plans of a hosted account of 2026 (testdata/plans/hosted.ndjson), as its gateway answered them: to requests for
// a plan, and in the refusals of queries that it does not serve itself.
func TestPlansAreThoseOfAHostedAccount(t *testing.T) {
	raw, err := os.ReadFile("testdata/plans/hosted.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, Options{})
	byNumber, byKey := strings.Trim(compositeIndexes("n", "id"), "[]"), strings.Trim(compositeIndexes("pk", "id"), "[]")
	w.create(t, "db", `{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},
		"indexingPolicy":{"includedPaths":[{"path":"/*"}],"compositeIndexes":[[`+byNumber+`],[`+byKey+`]]}}`, nil)
	equal, all := 0, 0
	for line := range bytes.Lines(raw) {
		var p struct {
			Name, Query, Features, Error string
			PlanRequest                  bool
			Info, QueryRanges            any
		}
		if err := json.Unmarshal(line, &p); err != nil {
			t.Fatal(err)
		}
		headers := across("x-ms-documentdb-query-enablecrosspartition", "True")
		if p.PlanRequest {
			headers = planned(p.Features)
		}
		all++
		a := w.ask(t, headers, p.Query)
		var body struct {
			AdditionalErrorInfo string
			Message             string
		}
		a.into(t, &body)
		if p.Error != "" {
			if text, _ := json.Marshal(p.Error); strings.Contains(body.Message, string(text)) {
				equal++
			} else {
				t.Errorf("%s: %s: refused with %q, want %q", p.Name, p.Query, body.Message, p.Error)
			}
			continue
		}
		var plan struct{ QueryInfo, QueryRanges any }
		text := a.body
		if !p.PlanRequest {
			text = []byte(body.AdditionalErrorInfo)
		}
		if err := json.Unmarshal(text, &plan); err != nil {
			t.Errorf("%s: %s: answered %s", p.Name, p.Query, a.body)
			continue
		}
		if !reflect.DeepEqual(plan.QueryInfo, p.Info) || !reflect.DeepEqual(plan.QueryRanges, p.QueryRanges) {
			t.Errorf("%s: %s\n got %s\nwant %s", p.Name, p.Query, text, line)
			continue
		}
		equal++
	}
	t.Logf("%d of %d are equal", equal, all)
}
