package cosmosrest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/netbatch"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
)

// sink is a response writer that keeps nothing but the status.
type sink struct {
	header http.Header
	status int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }

// shot is a signed request that can be sent again and again.
type shot struct {
	*http.Request
	body []byte
	sink sink
}

func newShot(b *testing.B, method, path string, headers map[string]string, body string) *shot {
	r := httptest.NewRequestWithContext(b.Context(), method, path, strings.NewReader(body))
	r.Header.Set("x-ms-date", time.Now().UTC().Format(http.TimeFormat))
	r.Header.Set("Authorization", sign(b, wellKnownKey, r))
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	return &shot{r, []byte(body), sink{header: http.Header{}}}
}

// at hands the request to a server.
func (s *shot) at(b *testing.B, h http.Handler, status int) {
	clear(s.sink.header)
	s.Body = io.NopCloser(bytes.NewReader(s.body))
	if h.ServeHTTP(&s.sink, s.Request); s.sink.status != status {
		b.Fatalf("status is %d, want %d", s.sink.status, status)
	}
}

// body is an item of 1 KB.
func kilobyte(id string) string {
	return fmt.Sprintf(`{"id":%q,"pk":"p","v":"%s"}`, id, strings.Repeat("x", 980))
}

func BenchmarkItemRead(b *testing.B) { readItems(b, Options{}) }

// Reads that a hook is told of, which does nothing.
func BenchmarkItemReadTold(b *testing.B) {
	readItems(b, Options{RequestDone: func(context.Context, RequestDone) {}})
}

func readItems(b *testing.B, o Options) {
	b.Helper()
	w, _ := newContainer(b, o)
	newShot(b, "POST", docs, under("p"), kilobyte("a")).at(b, w, 201)
	s := newShot(b, "GET", docs+"/a", under("p"), "")
	b.ReportAllocs()
	for b.Loop() {
		s.at(b, w, 200)
	}
}

func BenchmarkItemUpsert(b *testing.B) {
	w, _ := newContainer(b, Options{})
	s := newShot(b, "POST", docs, under("p", "x-ms-documentdb-is-upsert", "True", "prefer", "return=minimal"),
		kilobyte("a"))
	s.at(b, w, 201)
	b.ReportAllocs()
	for b.Loop() {
		s.at(b, w, 200)
	}
}

// Upserts of 32 clients, without waiting for a disk.
func BenchmarkItemUpsertParallel(b *testing.B) {
	db, err := docstore.Open(b.TempDir(), docstore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := db.Close(); err != nil {
			b.Error(err)
		}
	})
	w := serveStore(b, db, Options{})
	w.create(b, "db", `{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}`, nil)
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		s := newShot(b, "POST", docs, under("p", "x-ms-documentdb-is-upsert", "True", "prefer", "return=minimal"),
			kilobyte(wire.NewUUID()))
		s.at(b, w, 201)
		for pb.Next() {
			s.at(b, w, 200)
		}
	})
}

// Ten upserts in one batch, in both formats.
func BenchmarkBatch(b *testing.B) {
	var texts []string
	var rows []netbatch.Operation
	for i := range 10 {
		item := kilobyte(strconv.Itoa(i))
		texts = append(texts, `{"operationType":"Upsert","resourceBody":`+item+`}`)
		rows = append(rows, netbatch.Operation{
			Type: rowUpsert, ResourceType: new(int32(2)), Body: []byte(item),
			Minimal: true,
		})
	}
	for name, body := range map[string]string{
		"json":      "[" + strings.Join(texts, ",") + "]",
		"hybridrow": string(netbatch.Request(rows...)),
	} {
		b.Run(name, func(b *testing.B) {
			w, _ := newContainer(b, Options{})
			s := newShot(b, "POST", docs, under("p", "x-ms-cosmos-is-batch-request", "True", "x-ms-cosmos-batch-atomic",
				"True", "prefer", "return=minimal"), body)
			b.ReportAllocs()
			for b.Loop() {
				s.at(b, w, 200)
			}
		})
	}
}

// BenchmarkBulk measures bulks of 100 operations of a key. If each second operation is refused, because its item
// exists, the bulk costs no more.
func BenchmarkBulk(b *testing.B) {
	for name, second := range map[string]string{"AllUpserts": "Upsert", "HalfRefused": "Create"} {
		b.Run(name, func(b *testing.B) {
			w, _ := newContainer(b, Options{})
			var ops []string
			for i := range 100 {
				id, kind := fmt.Sprint("item-", i), "Upsert"
				if newShot(b, "POST", docs, under("p"), kilobyte(id)).at(b, w, 201); i%2 == 1 {
					kind = second
				}
				const op = `{"operationType":%q,"partitionKey":"[\"p\"]","resourceBody":%s}`
				ops = append(ops, fmt.Sprintf(op, kind, kilobyte(id)))
			}
			status := map[string]int{"Upsert": http.StatusOK, "Create": http.StatusMultiStatus}[second]
			bulk := newShot(b, "POST", docs, map[string]string{
				"x-ms-cosmos-is-batch-request": "True", "x-ms-cosmos-batch-atomic": "False",
				"x-ms-cosmos-batch-continue-on-error": "True",
			}, "["+strings.Join(ops, ",")+"]")
			for b.Loop() {
				bulk.at(b, w, status)
			}
		})
	}
}
