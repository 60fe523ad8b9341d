package cosmosrest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// plan is what a client needs of a query plan.
type plan struct {
	Info struct {
		OrderBy        []string
		RewrittenQuery string
	} `json:"queryInfo"`
	Ranges []struct {
		Min, Max                       string
		IsMinInclusive, IsMaxInclusive bool
	} `json:"queryRanges"`
}

func TestQueryPlan(t *testing.T) {
	w, cont := newRanges(t, Options{})
	asked := planned("Aggregate, OrderBy")
	key, err := cont.LogicalPartition(`["p"]`)
	if err != nil {
		t.Fatal(err)
	}
	at := key.Range()
	for _, test := range []struct{ query, min, max string }{
		{"SELECT * FROM c", "", "FF"},
		{"SELECT * FROM c WHERE c.pk = 'p' ORDER BY c.id", at.Min, at.Min},
		{"SELECT * FROM c WHERE c.pk IN ()", "", "FF"},
	} {
		a := w.ask(t, asked, test.query)
		if strings.Contains(test.query, "()") {
			a.refused(t, 400, "0", "BadRequest")
			continue
		}
		var p plan
		a.want(t, 200).into(t, &p)
		if len(p.Ranges) != 1 || p.Ranges[0].Min != test.min || p.Ranges[0].Max != test.max ||
			!p.Ranges[0].IsMinInclusive || p.Ranges[0].IsMaxInclusive != (test.min == test.max) {
			t.Errorf("plan of %s is %s, want the range %q-%q", test.query, a.body, test.min, test.max)
		}
	}
	w.ask(t, asked, "SELECT * FORM c").refused(t, 400, "0", "BadRequest")
}

// A client sends a query to the ranges of its plan, and cannot send it to none. As in the service, the range is the
// point where the key space begins.
func TestThePlanOfAFilterThatLetsNothingPassHasARange(t *testing.T) {
	w, _ := newRanges(t, Options{})
	for _, filter := range []string{"c.pk = undefined", "false", "c.pk = 'a' AND c.pk = 'b'"} {
		var p plan
		w.ask(t, planned(""), "SELECT * FROM c WHERE "+filter).want(t, 200).into(t, &p)
		if len(p.Ranges) != 1 || p.Ranges[0].Min != "" || p.Ranges[0].Max != "" || !p.Ranges[0].IsMaxInclusive {
			t.Errorf("%s: the ranges are %v", filter, p.Ranges)
		}
	}
}

// planned are the headers of a request for a plan, by a client that can do some things.
func planned(features string) map[string]string {
	return map[string]string{
		"content-type": wire.QueryType, "x-ms-cosmos-is-query-plan-request": "True",
		"x-ms-cosmos-supported-query-features": features,
	}
}

func TestAPlanThatTheClientCannotRunIsRefused(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.ask(t, planned("OrderBy,aggregate , NonValueAggregate"), "SELECT COUNT(1) FROM c").want(t, 200)
	for _, features := range []string{"", "Aggregate,Distinct"} {
		a := w.ask(t, planned(features), "SELECT COUNT(1) FROM c")
		a.refused(t, 400, "0", "BadRequest")
		if !strings.Contains(string(a.body),
			"Query contained NonValueAggregate, which the calling client does not support.") {
			t.Errorf("a client with %q got %s", features, a.body)
		}
	}
}

// TestRefusedQueryRunsByItsPlan does what SDKs do with the plan in a refusal.
func TestRefusedQueryRunsByItsPlan(t *testing.T) {
	w, cont := newRanges(t, Options{})
	a := w.ask(t, across(), "SELECT * FROM c ORDER BY c.id DESC")
	a.refused(t, 400, "1004", "BadRequest")
	var body struct{ AdditionalErrorInfo string }
	a.into(t, &body)
	var p plan
	if err := json.Unmarshal([]byte(body.AdditionalErrorInfo), &p); err != nil || len(p.Info.OrderBy) != 1 {
		t.Fatalf("plan is %q: %v", body.AdditionalErrorInfo, err)
	}
	parts, err := cont.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	query := strings.ReplaceAll(p.Info.RewrittenQuery, "{documentdb-formattableorderbyquery-filter}", "true")
	var all []string
	for _, part := range parts {
		headers := across("x-ms-documentdb-partitionkeyrangeid", part.ID, "x-ms-max-item-count", "10")
		for _, row := range w.ask(t, headers, query).list(t, "Documents") {
			if payload, ok := row["payload"].(map[string]any); ok {
				all = append(all, fmt.Sprint(payload["id"]))
			}
		}
	}
	slices.Sort(all)
	if got := strings.Join(all, " "); got != "a b c d e" {
		t.Errorf("the ranges have %s", got)
	}
}
