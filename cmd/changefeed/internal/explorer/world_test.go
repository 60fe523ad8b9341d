package explorer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
)

// world is an explorer of a store in memory, with a container shop/orders partitioned by /city.
type world struct {
	t      *testing.T
	db     *docstore.DB
	orders *docstore.Container
	e      *Explorer
	url    string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.CreateDatabase(t.Context(), "shop", nil); err != nil {
		t.Fatal(err)
	}
	orders, err := db.CreateContainer(t.Context(), docstore.ContainerSpec{
		Database: "shop", ID: "orders", Paths: []string{"/city"}, Ranges: 2, Retention: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, db: db, orders: orders, e: New()}
	w.e.Show(OfStore(db, "", func() string { return "" }))
	server := httptest.NewServer(http.StripPrefix("/store", w.e))
	t.Cleanup(server.Close)
	w.url = server.URL + "/store/"
	return w
}

// put writes documents.
func (w *world) put(documents ...string) {
	w.t.Helper()
	for _, d := range documents {
		if _, err := w.orders.Upsert(w.t.Context(), []byte(d)); err != nil {
			w.t.Fatal(err)
		}
	}
}

// of are values of a question about shop/orders.
func of(values ...string) url.Values {
	q := url.Values{"container": {"shop/orders"}}
	for i := 0; i+1 < len(values); i += 2 {
		q.Set(values[i], values[i+1])
		if values[i] == "param" {
			q["param"] = strings.Split(values[i+1], "\n")
		}
	}
	return q
}

// send sends a request.
func (w *world) send(ctx context.Context, method, what string, q url.Values, body, etag string) *http.Response {
	w.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, w.url+what+"?"+q.Encode(), strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if etag != "" {
		r.Header.Set("If-Match", etag)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	return response
}

// ask sends a request, compares the status, and decodes the answer.
func (w *world) ask(want int, method, what string, q url.Values, body, etag string, into any) {
	w.t.Helper()
	response := w.send(w.t.Context(), method, what, q, body, etag)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if response.StatusCode != want {
		w.t.Fatalf("%s %s?%s: %d %s, want %d", method, what, q.Encode(), response.StatusCode, text, want)
	}
	if err := json.Unmarshal(text, into); err != nil {
		w.t.Fatalf("%s %s: %v in %s", method, what, err, text)
	}
}

// get reads something.
func (w *world) get(what string, q url.Values, into any) {
	w.t.Helper()
	w.ask(http.StatusOK, http.MethodGet, what, q, "", "", into)
}

// refuses compares the status and the words of a refusal.
func (w *world) refuses(status int, words, method, what string, q url.Values, body, etag string) failure {
	w.t.Helper()
	var f failure
	w.ask(status, method, what, q, body, etag, &f)
	if !strings.Contains(f.Error, words) {
		w.t.Errorf("%s %s?%s: %q, want %q", method, what, q.Encode(), f.Error, words)
	}
	return f
}

// rows reads all pages of a query, and returns its rows.
func (w *world) rows(q url.Values) (texts []string) {
	w.t.Helper()
	for {
		var p page
		w.get("query", q, &p)
		for _, r := range p.Rows {
			texts = append(texts, r.Text)
		}
		if p.Next == "" {
			return texts
		}
		q.Set("after", p.Next)
	}
}

// many are documents of some cities.
func many(n int) (documents []string) {
	for i := range n {
		documents = append(documents, fmt.Sprintf(`{"id":"%d","city":"c%d","n":%[1]d}`, i, i%5))
	}
	return documents
}

// serverOf serves a store as an account.
func serverOf(t *testing.T, db *docstore.DB) http.Handler {
	t.Helper()
	server, err := cosmosrest.New(db, cosmosrest.Options{Throughput: cosmosrest.Unlimited})
	if err != nil {
		t.Fatal(err)
	}
	return server
}
