package cosmosrest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/binaryjson"
	"github.com/millrace/changefeed/cosmosrest/internal/netbatch"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/rogpeppe/go-internal/txtar"
)

// FuzzServer sends whole requests, signed: whatever they are, the answer is none of the
// server's own faults, and says in JSON what was wrong.
func FuzzServer(f *testing.F) {
	for _, q := range transcribed(f) {
		var header strings.Builder
		for name, value := range q.header {
			header.WriteString(name + ": " + value + "\n")
		}
		f.Add(q.method, q.path, header.String(), q.body)
	}
	for _, q := range binaryRequests() {
		f.Add(q.method, q.path, q.header, q.body)
	}
	f.Add("GET", "/", "", "")
	f.Add("GET", "/dbs/shop/colls/orders/docs", "x-ms-continuation: abc\nx-ms-max-item-count: -1\n", "")
	f.Add("POST", "/offers", "Content-Type: application/query+json\n", `{"query":"SELECT * FROM root"}`)
	f.Add("POST", "/offers", "", "")
	f.Add("GET", "/dbs/shop/colls/orders/pkranges/0", "", "")
	f.Add("PUT", "/offers/x/", "", `{"content":{"offerThroughput":400}}`)
	var w *world
	served := 0
	f.Fuzz(func(t *testing.T, method, path, header, body string) {
		if served%5000 == 0 { // what was created is forgotten now and then
			w = fuzzWorld(t, w)
		}
		served++
		r := wildRequest(t, method, path, header, body)
		if r == nil {
			t.Skip("net/http would refuse it")
		}
		rec := httptest.NewRecorder()
		w.ServeHTTP(rec, r)
		judgeAnswer(t, rec)
	})
}

// fuzzWorld is a server with the container of the transcripts, in place of another. It
// outlives a test: the process ends it.
func fuzzWorld(t *testing.T, old *world) *world {
	t.Helper()
	if old != nil {
		if err := old.db.Close(); err != nil {
			t.Fatalf("close store: %v", err)
		}
	}
	db, err := docstore.Open("", docstore.Options{InMemory: true, CacheBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	w := serveStore(t, db, Options{})
	w.create(t, "shop",
		`{"id":"orders","partitionKey":{"paths":["/city"],"kind":"Hash","version":2},"changeFeedPolicy":{"retentionDuration":60}}`, nil)
	w.do(t, "POST", "/dbs/shop/colls/orders/docs", map[string]string{"x-ms-documentdb-partitionkey": `["London"]`},
		`{"id":"1","city":"London"}`).want(t, http.StatusCreated)
	return w
}

// binaryRequests are requests with bodies in binary JSON that want answers in it.
func binaryRequests() (all []struct{ method, path, header, body string }) {
	const wants = "x-ms-cosmos-supported-serialization-formats: CosmosBinary\n"
	const london = wants + "x-ms-documentdb-partitionkey: [\"London\"]\n"
	const place = "/dbs/shop/colls/orders/docs"
	add := func(method, path, header, body string) {
		all = append(all, struct{ method, path, header, body string }{method, path, header, body})
	}
	item := string(binaryjson.Append(nil, []byte(`{"id":"2","city":"London","n":[1,2.5,"x"],"o":{"a":null}}`)))
	add("POST", place, london, item)
	add("POST", place, london+"x-ms-documentdb-is-upsert: True\n", item)
	add("PUT", place+"/2", london, item)
	add("GET", place+"/1", london, "")
	add("GET", place, wants, "")
	add("GET", place, wants+"A-IM: Incremental Feed\n", "")
	add("POST", place, wants+"Content-Type: application/query+json\nx-ms-documentdb-query-enablecrosspartition: True\n",
		`{"query":"SELECT * FROM c"}`)
	patch := `[{"op":"set","path":"/n","value":5}]`
	add("PATCH", place+"/1", london, string(binaryjson.Append(nil, []byte(patch))))
	row := netbatch.Operation{ResourceType: new(int32(2)), Body: []byte(item)}
	add("POST", place, london+"x-ms-cosmos-is-batch-request: True\nx-ms-cosmos-batch-atomic: True\n",
		string(netbatch.Request(row)))
	return all
}

// transcribed are the requests of all transcripts.
func transcribed(t testing.TB) (all []wireRequest) {
	t.Helper()
	files, err := filepath.Glob("testdata/transcript/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.Files {
			var text strings.Builder
			for line := range strings.Lines(string(f.Data)) {
				if rest, ok := strings.CutPrefix(line, ">"); ok {
					text.WriteString(strings.TrimPrefix(rest, " "))
				}
			}
			all = append(all, parseRequest(text.String()))
		}
	}
	return all
}

// wildRequest is a signed request, or nil for one that never gets as far as a handler.
func wildRequest(t *testing.T, method, path, header, body string) *http.Request {
	u, err := url.ParseRequestURI(path)
	if err != nil || !strings.HasPrefix(path, "/") || len(method) > 20 {
		return nil
	}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1"+u.RequestURI(),
		strings.NewReader(body))
	if err != nil {
		return nil
	}
	r.RequestURI = r.URL.RequestURI()
	for line := range strings.Lines(header) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		r.Header.Set(name, value)
	}
	if r.Header.Get("X-Ms-Cosmos-Max-Polling-Interval") != "" {
		r.Header.Set("X-Ms-Cosmos-Max-Polling-Interval", "1")
	}
	r.Header.Set("X-Ms-Date", time.Now().UTC().Format(http.TimeFormat))
	if target, err := wire.ParsePath(r.URL.EscapedPath()); err == nil && target.Kind != "" {
		r.Header.Set("Authorization", sign(t, wellKnownKey, r))
	}
	return r
}

func judgeAnswer(t *testing.T, rec *httptest.ResponseRecorder) {
	t.Helper()
	h := received(t, rec)
	switch {
	case rec.Code >= http.StatusInternalServerError:
		t.Fatalf("status %d: %s", rec.Code, rec.Body)
	case h.Get(wire.HeaderActivity) == "" || h.Get(wire.AnswerCharge) == "":
		t.Fatalf("status %d without activity id or charge: %v", rec.Code, h)
	case rec.Code == http.StatusMethodNotAllowed && h.Get("Allow") == "":
		t.Fatal("status 405 does not say what is allowed")
	case rec.Code == http.StatusNotModified && h.Get("Etag") == "":
		t.Fatal("status 304 without an ETag")
	case h.Get("Content-Type") == "application/octet-stream":
		if all, err := netbatch.Results(rec.Body.Bytes()); err != nil || len(all) == 0 ||
			rec.Code >= http.StatusBadRequest {
			t.Fatalf("status %d: %d results, %v", rec.Code, len(all), err)
		}
		return
	case binaryjson.Is(rec.Body.Bytes()):
		_, err := binaryjson.AppendText(nil, rec.Body.Bytes(), 1<<30)
		if err != nil || rec.Code >= http.StatusBadRequest {
			t.Fatalf("status %d with a body in binary JSON: %v", rec.Code, err)
		}
		return
	case rec.Body.Len() > 0 && !json.Valid(rec.Body.Bytes()):
		t.Fatalf("status %d with a body that is no JSON: %q", rec.Code, rec.Body)
	case rec.Code < http.StatusBadRequest:
		return
	}
	var refusal struct{ Code, Message string }
	if err := json.Unmarshal(rec.Body.Bytes(), &refusal); err != nil || refusal.Code == "" || refusal.Message == "" {
		t.Fatalf("status %d: %q: want a code and a message", rec.Code, rec.Body)
	}
}
