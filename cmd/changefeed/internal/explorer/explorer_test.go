package explorer

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// A person finds a container, its partitions and its documents without knowing a name.
func TestContainersAreDescribed(t *testing.T) {
	w := newWorld(t)
	w.put(many(7)...)
	var all struct{ Places []listing }
	w.get("containers", nil, &all)
	if len(all.Places) != 1 || all.Places[0].In != "store in memory" || len(all.Places[0].Containers) != 1 {
		t.Fatalf("%+v", all)
	}
	c := all.Places[0].Containers[0]
	if c.Name != "shop/orders" || *c.Documents != 7 || *c.Partitions != 2 || *c.Retention != 3600 ||
		!slices.Equal(c.Paths, []string{"/city"}) {
		t.Errorf("%+v", c)
	}
	var one described
	w.get("container", of(), &one)
	if !one.Cuts || one.Unit != "shop/orders" || len(one.Partitions) != 2 ||
		math.Abs(one.Partitions[0].To-0.5) > 1e-6 ||
		one.Partitions[1].From != one.Partitions[0].To || one.Partitions[1].To != 1 || *one.Documents != 7 {
		t.Errorf("%+v", one)
	}
}

// Without a store there is an error that says so; a store that is hidden is shown no more.
func TestNothingIsShownBeforeAndAfterAStoreIsOpen(t *testing.T) {
	w := newWorld(t)
	w.e.places = nil
	w.refuses(http.StatusNotFound, "no store or account open", http.MethodGet, "containers", nil, "", "")
	hide := w.e.Show(OfStore(w.db, "data", nil))
	again := w.e.Show(OfStore(w.db, "data", nil)) // as by two units of one account
	var all struct{ Places []listing }
	w.get("containers", nil, &all)
	if len(all.Places) != 1 || all.Places[0].In != "store data" {
		t.Errorf("%+v", all)
	}
	hide()
	w.get("containers", url.Values{"in": {"store data"}}, &all)
	again()
	w.refuses(http.StatusNotFound, "no store or account open", http.MethodGet, "query", of("sql", "SELECT 1"), "",
		"")
}

// What is wrong is named, with its value and with what would be right, in the words of the request.
func TestMistakesAreNamed(t *testing.T) {
	w := newWorld(t)
	w.put(many(1)...)
	get, post := http.MethodGet, http.MethodPost
	for _, tt := range []struct {
		status             int
		words              string
		method, what, body string
		q                  url.Values
	}{
		{404, "no GET /nothing", get, "nothing", "", nil},
		{400, `container is "": want database/container`, get, "container", "", nil},
		{400, `container is "a/b/c": want`, get, "container", "", of("container", "a/b/c")},
		{404, "container is shop/other", get, "container", "", of("container", "shop/other")},
		{404, `in is "x": want one of ["store in memory"]`, get, "container", "", of("in", "x")},
		{400, "sql is empty: want a query", get, "query", "", of()},
		{400, "the query is refused", get, "query", "", of("sql", "SELECT nonsense FROM")},
		{400, "param is city: want name=value", get, "query", "", of("sql", "SELECT 1", "param", "city")},
		{400, "@n has no value", get, "query", "", of("sql", "SELECT * FROM c WHERE c.n=@n")},
		{400, "max is 501: want 1 to 500", get, "query", "", of("sql", "SELECT 1", "max", "501")},
		{400, "max is 0: want 1 to 500", get, "query", "", of("sql", "SELECT 1", "max", "0")},
		{400, "key is [}: want text", get, "query", "", of("sql", "SELECT 1", "key", "[}")},
		{400, `key is ["a","b"]: want 1 value`, get, "query", "", of("sql", "SELECT 1", "key", `["a","b"]`)},
		{400, "id is empty", get, "item", "", of()},
		{400, "key is missing", get, "item", "", of("id", "0")},
		{404, `there is no document "x"`, get, "item", "", of("id", "x", "key", "c0")},
		{400, "line 1, byte 9", post, "item", `{"id": nope}`, of()},
		{400, "the document has no id", post, "item", `{"city":"c0"}`, of()},
		{400, "the body has 2 documents: want one", post, "item", `{"id":"1"}{"id":"2"}`, of()},
		{400, "If-Match is missing", http.MethodPut, "item", `{"id":"0","city":"c0"}`, of("id", "0", "key", "c0")},
		{400, "If-Match is missing", http.MethodDelete, "item", "", of("id", "0", "key", "c0")},
		{400, "mode is some: want latest or all", get, "feed", "", of("mode", "some")},
		{400, "from is never: want beginning, now", get, "feed", "", of("from", "never")},
		{400, "from is beginning: want now with mode all", get, "feed", "", of("mode", "all", "from", "beginning")},
		{404, "ID is 9: there is no such partition: want one of 0, 1", post, "split", `{"id":"9"}`, of()},
		{400, "at is xyz: want hex", post, "split", `{"id":"1","at":"xyz"}`, of()},
		{400, "the body is no JSON of this request", post, "split", `{"what":1}`, of()},
		{400, "want two partitions", post, "merge", `{"ids":["1"]}`, of()},
		{400, "partition_key is empty", post, "containers", `{}`, of("container", "shop/new")},
		{
			400, "partitions is -1: want", post, "containers", `{"partition_key":["/a"],"partitions":-1}`,
			of("container", "a/b"),
		},
		{
			400, "retention_seconds is 61", post, "containers", `{"partition_key":["/a"],"retention_seconds":61}`,
			of("container", "shop/new"),
		},
		{409, "there is such a container already", post, "containers", `{"partition_key":["/a"]}`, of()},
		{400, `confirm is "shop": want "shop/orders"`, http.MethodDelete, "containers", "", of("confirm", "shop")},
		{400, `view is "": want query, item or feed`, get, "copy", "", of()},
	} {
		w.refuses(tt.status, tt.words, tt.method, tt.what, tt.q, tt.body, "")
	}
	if got := w.orders.Spec().ID; got != "orders" || len(w.rows(of("sql", "SELECT * FROM c"))) != 1 {
		t.Error("a mistake has changed something")
	}
}

// A container is made and deleted, but only by somebody who has written its name twice.
func TestContainersComeAndGo(t *testing.T) {
	w := newWorld(t)
	q := of("container", "other/new")
	var made struct {
		Name       string
		Partitions int
		TTL        int     `json:"ttl_seconds"`
		Retention  float64 `json:"retention_seconds"`
	}
	w.ask(http.StatusCreated, http.MethodPost, "containers", q,
		`{"partition_key":["/a","/b"],"partitions":3,"ttl_seconds":60,"retention_seconds":120}`, "", &made)
	if made.Name != "other/new" || made.Partitions != 3 || made.TTL != 60 || made.Retention != 120 {
		t.Errorf("%+v", made)
	}
	q.Set("confirm", "other/new")
	var gone map[string]string
	w.ask(http.StatusOK, http.MethodDelete, "containers", q, "", "", &gone)
	if _, err := w.db.Container("other/new"); !errors.Is(err, feed.ErrNotFound) {
		t.Errorf("after the deletion: %v", err)
	}
}

// A partition is split where somebody wants it, and merged again.
func TestPartitionsAreSplitAndMerged(t *testing.T) {
	w := newWorld(t)
	var made struct{ Made []partition }
	w.ask(http.StatusOK, http.MethodPost, "split", of(), `{"id":"0","at":"1000000000000000000000000000000a"}`, "",
		&made)
	if len(made.Made) != 2 || made.Made[0].To != 0.25 || !slices.Contains(made.Made[1].Parents, "0") {
		t.Fatalf("%+v", made)
	}
	ids, err := json.Marshal(map[string][]string{"ids": {made.Made[0].ID, made.Made[1].ID}})
	if err != nil {
		t.Fatal(err)
	}
	w.ask(http.StatusOK, http.MethodPost, "merge", of(), string(ids), "", &made)
	if len(made.Made) != 1 || made.Made[0].From != 0 || math.Abs(made.Made[0].To-0.5) > 1e-6 {
		t.Errorf("%+v", made)
	}
}

// throttled is an account that refuses all requests but the one about itself.
func throttled(account http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			w.Header().Set("X-Ms-Retry-After-Ms", "2500")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = w.Write([]byte(`{"message":"Request rate is large"}`))
			return
		}
		account.ServeHTTP(w, r)
	}
}

// accountAt is the place of shop/orders in the account at a URL.
func accountAt(t *testing.T, url string) Place {
	t.Helper()
	settings := place.Settings{}
	at, err := settings.Parse("source", url+"/shop/orders")
	if err != nil {
		t.Fatal(err)
	}
	opener := place.NewOpener(settings)
	t.Cleanup(func() { _ = opener.Close() })
	return Place{Name: url, Opener: opener, Whole: at}
}

// An account that is throttled says so in its place, and hides no other.
func TestAThrottledAccountHidesNoOther(t *testing.T) {
	w := newWorld(t)
	account := httptest.NewServer(throttled(serverOf(t, w.db)))
	defer account.Close()
	w.e.Show(accountAt(t, account.URL))
	var all struct{ Places []listing }
	w.get("containers", nil, &all)
	if len(all.Places) != 2 || len(all.Places[0].Containers) != 1 || all.Places[0].Error != nil {
		t.Fatalf("%+v, want the containers of the store", all)
	}
	if of := all.Places[1]; of.In != account.URL || of.Error == nil || !strings.Contains(*of.Error, "429") {
		t.Errorf("%+v, want that the account is throttled", of)
	}
}

// An account that is throttled says so at once, and when to come back. The page waits, and shows that.
func TestAThrottledAccountIsToldAtOnce(t *testing.T) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	server, err := cosmosrest.New(db, cosmosrest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	account := httptest.NewServer(throttled(server))
	defer account.Close()
	e := New()
	e.Show(accountAt(t, account.URL))
	for _, what := range []string{
		"/containers", "/container?container=shop/orders",
		"/query?sql=SELECT+1&container=shop/orders",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // less than a command waits
		defer cancel()
		got := httptest.NewRecorder()
		e.ServeHTTP(got, httptest.NewRequestWithContext(ctx, http.MethodGet, what, nil))
		if got.Code != http.StatusTooManyRequests || got.Header().Get("Retry-After") != "3" ||
			!strings.Contains(got.Body.String(), `"retry_seconds":2.5`) {
			t.Errorf("%s: %d, %v: %s", what, got.Code, got.Header(), got.Body)
		}
	}
}

// An account by its address is shown as the store of a server is.
func TestAnAccountIsShown(t *testing.T) {
	w := newWorld(t)
	w.put(many(3)...)
	server, err := cosmosrest.New(w.db, cosmosrest.Options{Throughput: cosmosrest.Unlimited})
	if err != nil {
		t.Fatal(err)
	}
	account := httptest.NewServer(server)
	defer account.Close()
	settings := place.Settings{}
	at, err := settings.Parse("source", account.URL+"/shop/orders")
	if err != nil {
		t.Fatal(err)
	}
	opener := place.NewOpener(settings)
	defer opener.Close()
	w.e.places = nil
	w.e.Show(Place{Name: account.URL, Opener: opener, Whole: at})
	if got := w.rows(of("sql", "SELECT * FROM c", "max", "2")); len(got) != 3 {
		t.Errorf("rows %q", got)
	}
	var one described
	w.get("container", of(), &one)
	if !one.Cuts || len(one.Partitions) != 2 {
		t.Errorf("%+v", one)
	}
	var made struct{ Made []partition }
	w.ask(http.StatusOK, http.MethodPost, "split", of(), `{"id":"1"}`, "", &made)
	if len(made.Made) != 2 {
		t.Errorf("%+v", made)
	}
	var all struct{ Places []listing }
	w.get("containers", nil, &all)
	if len(all.Places) != 1 || len(all.Places[0].Containers) != 1 {
		t.Errorf("%+v", all)
	}
}
