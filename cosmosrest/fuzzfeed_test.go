package cosmosrest

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/netbatch"
	"github.com/millrace/changefeed/cosmosrest/internal/query"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Requests of one kind, with one part of them from a stranger. FuzzServer has the whole of requests, and so reaches
// less of each part.

// fuzzed is a server that is made anew now and then, for one fuzz target.
type fuzzed struct {
	w      *world
	served int
}

const fuzzedPath = "/dbs/shop/colls/orders/docs"

// ask sends a request of a client that has the key, and judges the answer.
func (f *fuzzed) ask(t *testing.T, method, body string, header map[string]string) *httptest.ResponseRecorder {
	t.Helper()
	if f.served%5000 == 0 {
		f.w = fuzzWorld(t, f.w)
		for _, id := range []string{"2", "3", "4", "5"} {
			f.w.do(t, http.MethodPost, fuzzedPath, map[string]string{"x-ms-documentdb-partitionkey": `["London"]`},
				`{"id":"`+id+`","city":"London","n":[`+id+`,{}]}`).want(t, http.StatusCreated)
		}
	}
	f.served++
	r := httptest.NewRequestWithContext(t.Context(), method, fuzzedPath, strings.NewReader(body))
	r.Header.Set("x-ms-date", time.Now().UTC().Format(http.TimeFormat))
	r.Header.Set("Authorization", sign(t, wellKnownKey, r))
	for name, value := range header {
		if strings.ContainsAny(value, "\r\n\x00") {
			t.Skip("net/http would refuse it")
		}
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	rec := httptest.NewRecorder()
	f.w.ServeHTTP(rec, r)
	judgeAnswer(t, rec)
	return rec
}

// FuzzContinuation forges continuations of queries, which a checksum does not keep anybody from, and follows each to
// its end.
func FuzzContinuation(f *testing.F) {
	queries := []string{
		"SELECT * FROM c", "SELECT * FROM c ORDER BY c.id", "SELECT DISTINCT c.city FROM c",
		"SELECT c.city, COUNT(1) AS n FROM c GROUP BY c.city",
		"SELECT * FROM c OFFSET 1 LIMIT 2", "SELECT TOP 3 * FROM c ORDER BY c.n DESC",
		"SELECT VALUE x FROM c JOIN x IN c.n",
	}
	for i, text := range []string{
		`{}`, `{"m":"1","s":[{"e":"FF","a":2}]}`, `{"o":1,"t":1}`, `{"x":1,"p":{}}`, `{"g":"a","n":1}`,
		`{"t":9223372036854775807}`, `{"s":[{},{}]}`, `{"m":"zz"}`,
	} {
		f.Add(text, uint8(i))
	}
	var s fuzzed
	f.Fuzz(func(t *testing.T, text string, which uint8) {
		if s.w == nil {
			s.ask(t, http.MethodGet, "", nil)
		}
		cont, err := s.w.db.Container("shop/orders")
		if err != nil {
			t.Fatal(err)
		}
		beginning, err := query.ParseContinuation("", cont.RID())
		if err != nil {
			t.Fatal(err)
		}
		text = strings.Replace(text, "{", `{"q":`+strconv.FormatUint(beginning.Container, 10)+",", 1)
		text = strings.Replace(text, ",}", "}", 1)
		token := wire.EncodeContinuation([]byte(text))
		for page := 0; token != ""; page++ {
			if page > 100 {
				t.Fatalf("%q goes on for ever", text)
			}
			rec := s.ask(t, http.MethodPost, `{"query":"`+queries[int(which)%len(queries)]+`"}`, map[string]string{
				"Content-Type": "application/query+json", "x-ms-documentdb-isquery": "true",
				"x-ms-documentdb-partitionkey": `["London"]`,
				"x-ms-continuation":            token, "x-ms-max-item-count": "1",
			})
			token = rec.Header().Get("x-ms-continuation")
		}
	})
}

// FuzzBatch has the bodies of batches, atomic or bulk.
func FuzzBatch(f *testing.F) {
	for _, body := range []string{
		`[{"operationType":"Create","resourceBody":{"id":"a","city":"London"}},{"operationType":"Read","id":"a"}]`,
		`[{"operationType":"Upsert","ifMatch":"\"x\"","resourceBody":{"id":"a","city":"London"}},{"operationType":"Delete","id":"a"}]`,
		`[{"operationType":"Patch","id":"1","resourceBody":{"condition":"from c where c.n=1","operations":[{"op":"incr","path":"/n","value":1}]}}]`,
		`[{"operationType":"Replace","id":"1","resourceBody":{"id":"2"}}]`, `[{"operationType":7}]`, `[{}]`, `{}`, `[`,
		"\x81", "",
	} {
		f.Add(body, true, `["London"]`)
		f.Add(body, false, "")
	}
	for _, c := range netbatch.Cases(f, recordedRows, "request") {
		if len(c.Body) < 4<<10 {
			f.Add(string(c.Body), c.Meaning.Headers["x-ms-cosmos-batch-atomic"] == "True",
				c.Meaning.Headers["x-ms-documentdb-partitionkey"])
		}
	}
	london := row(rowUpsert, "", `{"id":"1","city":"London"}`)
	london.PartitionKey = new(`["London"]`)
	f.Add(string(netbatch.Request(london, london)), false, "")
	var s fuzzed
	f.Fuzz(func(t *testing.T, body string, atomic bool, key string) {
		header := map[string]string{
			"x-ms-cosmos-is-batch-request": "True", "x-ms-documentdb-partitionkey": key,
			"x-ms-cosmos-batch-atomic": "False",
		}
		if atomic {
			header["x-ms-cosmos-batch-atomic"] = "True"
		}
		s.ask(t, http.MethodPost, body, header)
	})
}

// FuzzFeed has the headers that say what of a change feed is wanted, and from where.
func FuzzFeed(f *testing.F) {
	f.Add(false, `"1"`, "", "0", "", "", "", "")
	f.Add(true, "*", "", "", "00", "3F", "", "0:-1#1")
	f.Add(false, "", "Tue, 02 Jan 2024 03:04:05 GMT", "", "", "FF", `["London"]`, "0:1#2#3=4,1:5")
	f.Add(true, `"9223372036854775807"`, "", "0", "", "", "", ":")
	var s fuzzed
	f.Fuzz(func(t *testing.T, all bool, etag, since, id, low, high, key, session string) {
		mode := "Incremental Feed"
		if all {
			mode = "Full-Fidelity Feed"
		}
		rec := s.ask(t, http.MethodGet, "", map[string]string{
			"A-IM": mode, "If-None-Match": etag, "If-Modified-Since": since, "x-ms-documentdb-partitionkeyrangeid": id,
			"x-ms-start-epk": low, "x-ms-end-epk": high, "x-ms-documentdb-partitionkey": key,
			"x-ms-session-token": session,
		})
		next := received(t, rec).Get("Etag")
		if _, ok := service.LSN(next); rec.Code < http.StatusBadRequest && !ok {
			t.Errorf("status %d with ETag %q, from which nobody can go on", rec.Code, next)
		}
	})
}
