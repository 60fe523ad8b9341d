package cosmosotel

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// recorded are the attributes of a span that are the same in each run.
func recorded(s sdk.ReadOnlySpan) map[string]string {
	all := map[string]string{"name": s.Name(), "status": s.Status().Code.String()}
	for _, a := range s.Attributes() {
		switch a.Key {
		case "server.port", "azure.cosmosdb.operation.request_charge", "server.address":
		case "azure.service.request.id":
			if a.Value.AsString() == "" {
				all["no activity"] = "true"
			}
		default:
			all[string(a.Key)] = a.Value.String()
		}
	}
	return all
}

// Each request of a client has a span with what it does, where, and how that ended, and a parent.
func TestEachRequestHasASpan(t *testing.T) {
	server := cosmostest.NewTestServer(t)
	spans := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))
	client, err := cosmos.OpenString(t.Context(), server.ConnectionString(), cosmos.Options{
		Transport: Transport(http.DefaultClient, Options{TracerProvider: provider}),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := server.DB.CreateDatabase(t.Context(), "shop", nil); err != nil {
		t.Fatal(err)
	}
	spec := docstore.ContainerSpec{Database: "shop", ID: "orders", Paths: []string{"/city"}}
	if _, err := server.DB.CreateContainer(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	ctx, parent := provider.Tracer("test").Start(t.Context(), "parent")
	orders, err := client.Container(ctx, "shop", "orders")
	if err != nil {
		t.Fatal(err)
	}
	write := feed.Write{Op: feed.WriteUpsert, ID: "a secret", Body: []byte(`{"id":"a secret","city":"Oslo"}`)}
	if _, err := orders.Commit(ctx, feed.Key("Oslo"), []feed.Write{write}); err != nil {
		t.Fatal(err)
	}
	from := feed.Position{Start: feed.FromBeginning()}
	if _, err := orders.Read(ctx, feed.FullRange(), from, feed.ReadOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Container(ctx, "shop", "none"); !errors.Is(err, feed.ErrNotFound) {
		t.Fatal(err)
	}
	parent.End()
	base := func(name, container string, more map[string]string) map[string]string {
		operation, _, _ := strings.Cut(name, " ")
		all := map[string]string{
			"name": name, "db.system.name": "azure.cosmosdb", "db.operation.name": operation, "db.namespace": "shop",
			"db.collection.name": container, "db.response.status_code": "200", "status": "Unset",
		}
		maps.Copy(all, more)
		return all
	}
	for _, want := range []map[string]string{
		base("read_container orders", "orders", nil),
		base("execute_batch orders", "orders", nil),
		base("query_change_feed orders", "orders", nil),
		base("read_container none", "none", map[string]string{
			"db.response.status_code": "404", "error.type": "404", "status": "Error",
		}),
	} {
		found := false
		for _, s := range spans.Ended() {
			got := recorded(s)
			delete(got, "azure.cosmosdb.response.sub_status_code")
			if maps.Equal(got, want) {
				found = true
				if s.Parent().SpanID() != parent.SpanContext().SpanID() {
					t.Errorf("%s is no child of the span of its call", s.Name())
				}
			}
		}
		if !found {
			t.Errorf("no span is %v; the spans are", want)
			for _, s := range spans.Ended() {
				t.Errorf("%v", recorded(s))
			}
		}
	}
	for _, s := range spans.Ended() {
		for _, a := range s.Attributes() {
			if strings.Contains(a.Value.String(), "secret") {
				t.Errorf("%s has a document or its ID in %s", s.Name(), a.Key)
			}
		}
	}
}

// sender answers requests.
type sender func(*http.Request) (*http.Response, error)

func (s sender) Do(r *http.Request) (*http.Response, error) { return s(r) }

// A span has the activity of the answer or else that of the request, the sub-status and the charge. The span ends with
// the body, or with an error, whose text has no address.
func TestASpanEndsWithItsAnswer(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	o := Options{TracerProvider: sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))}
	request := func() *http.Request {
		const address = "https://h:8081/dbs/a%2Fb/colls/c/docs/secret"
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		r.Header.Set("X-Ms-Activity-Id", "asked")
		return r
	}
	value := func(key attribute.Key) string {
		ended := spans.Ended()
		for _, a := range ended[len(ended)-1].Attributes() {
			if a.Key == key {
				return a.Value.String()
			}
		}
		return ""
	}
	answer, err := Transport(sender(func(*http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		w.Header().Set("x-ms-activity-id", "served")
		w.Header().Set("x-ms-substatus", "3200")
		w.Header().Set("x-ms-request-charge", "2.5")
		w.WriteHeader(http.StatusTooManyRequests)
		return w.Result(), nil
	}), o).Do(request())
	if err != nil || len(spans.Ended()) != 0 {
		t.Fatalf("%v, %d spans before the body is closed", err, len(spans.Ended()))
	}
	_, _ = io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	_ = answer.Body.Close()
	if len(spans.Ended()) != 1 {
		t.Fatalf("%d spans, want one", len(spans.Ended()))
	}
	for key, want := range map[attribute.Key]string{
		"azure.service.request.id": "served", "azure.cosmosdb.response.sub_status_code": "3200",
		"azure.cosmosdb.operation.request_charge": "2.5", "server.address": "h", "server.port": "8081",
		"db.namespace": "a/b", "db.operation.name": "read_item", "error.type": "429",
	} {
		if got := value(key); got != want {
			t.Errorf("%s is %q, want %s", key, got, want)
		}
	}
	away := &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
		return nil, errors.New("no route")
	})}
	r := request()
	r.RequestURI = ""
	if _, err := Transport(away, o).Do(r); err == nil { //nolint:bodyclose // there is none
		t.Fatal("no error")
	}
	last := spans.Ended()[1]
	if last.Status().Code != codes.Error || last.Status().Description != "no route" ||
		value("azure.service.request.id") != "asked" {
		t.Errorf("%v %v", last.Status(), last.Attributes())
	}
}

// A status of 400 and above is an error; that nothing has changed is none.
func TestOnlyARefusalIsAnError(t *testing.T) {
	for status, want := range map[int]codes.Code{
		http.StatusOK: codes.Unset, http.StatusNotModified: codes.Unset,
		http.StatusBadRequest: codes.Error, http.StatusServiceUnavailable: codes.Error,
	} {
		spans := tracetest.NewSpanRecorder()
		o := Options{TracerProvider: sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))}
		answer, err := Transport(sender(func(*http.Request) (*http.Response, error) {
			w := httptest.NewRecorder()
			w.WriteHeader(status)
			return w.Result(), nil
		}), o).Do(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://h/dbs/d", nil))
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if got := spans.Ended()[0].Status().Code; got != want {
			t.Errorf("the status of %d is %v, want %v", status, got, want)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(q *http.Request) (*http.Response, error) { return r(q) }

// Operations have the names of the conventions.
func TestOperationsHaveTheirNames(t *testing.T) {
	for _, tt := range []struct{ method, path, header, want string }{
		{"GET", "/", "", "read_account"},
		{"GET", "/dbs", "", "read_all_databases"},
		{"POST", "/dbs", "", "create_database"},
		{"GET", "/dbs/d", "", "read_database"},
		{"POST", "/dbs/d/colls", "", "create_container"},
		{"DELETE", "/dbs/d/colls/c", "", "delete_container"},
		{"GET", "/dbs/d/colls/c/docs", "", "read_all_items"},
		{"GET", "/dbs/d/colls/c/docs", "A-IM", "query_change_feed"},
		{"POST", "/dbs/d/colls/c/docs", "", "create_item"},
		{"POST", "/dbs/d/colls/c/docs", "x-ms-documentdb-is-upsert", "upsert_item"},
		{"POST", "/dbs/d/colls/c/docs", "x-ms-documentdb-isquery", "query_items"},
		{"POST", "/dbs/d/colls/c/docs", "x-ms-cosmos-is-batch-request", "execute_batch"},
		{"GET", "/dbs/d/colls/c/docs/i", "", "read_item"},
		{"PUT", "/dbs/d/colls/c/docs/i", "", "replace_item"},
		{"PATCH", "/dbs/d/colls/c/docs/i", "", "patch_item"},
		{"DELETE", "/dbs/d/colls/c/docs/i", "", "delete_item"},
		{"GET", "/dbs/d/colls/c/pkranges", "", "read_all_partition_key_ranges"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), tt.method, tt.path, nil)
		if tt.header != "" {
			r.Header.Set(tt.header, "True")
		}
		if got, _, _ := describe(r); got != tt.want {
			t.Errorf("%s %s %s is %s, want %s", tt.method, tt.path, tt.header, got, tt.want)
		}
	}
}
