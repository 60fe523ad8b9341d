package cosmosrest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
)

// told keeps what the hook is told.
type told struct{ all []RequestDone }

func (d *told) hook(_ context.Context, r RequestDone) { d.all = append(d.all, r) }

// last returns what was told since the last call, which is one request.
func (d *told) last(t *testing.T) RequestDone {
	t.Helper()
	if len(d.all) != 1 {
		t.Fatalf("%d requests are told, want 1: %+v", len(d.all), d.all)
	}
	r := d.all[0]
	d.all = nil
	return r
}

// equals compares what was told of a request with its answer.
func (r RequestDone) equals(t *testing.T, a answer) {
	t.Helper()
	header := func(name string) string { return a.header.Get(name) }
	sub, _ := strconv.Atoi(header("x-ms-substatus")) // 0 if there is none
	if r.Status != a.status || r.SubStatus != sub || r.Bytes != int64(len(a.body)) ||
		fmt.Sprintf("%.2f", r.Charge) != header("x-ms-request-charge") || r.Activity != header("x-ms-activity-id") ||
		r.Scheme != "http" || r.Method+" " != a.request[:len(r.Method)+1] || r.Client != "192.0.2.1" {
		t.Errorf("%s: told %+v, answered %d with %v", a.request, r, a.status, a.header)
	}
}

// requestsOfAllOperations are one or more requests of each operation, in an order in which they succeed, and what is no
// operation.
var requestsOfAllOperations = []struct {
	name, method, path string
	headers            map[string]string
	body               string
	status             int
}{
	{"create_database", "POST", "/dbs", nil, `{"id":"db"}`, 201},
	{"query_databases", "POST", "/dbs", across(), `{"query":"SELECT * FROM r"}`, 200},
	{"read_all_databases", "GET", "/dbs", nil, "", 200},
	{"read_database", "GET", "/dbs/db", nil, "", 200},
	{"create_container", "POST", "/dbs/db/colls", nil, smallContainer, 201},
	{"query_containers", "POST", "/dbs/db/colls", across(), `{"query":"SELECT * FROM r"}`, 200},
	{"read_all_containers", "GET", "/dbs/db/colls", nil, "", 200},
	{"read_container", "GET", "/dbs/db/colls/c", nil, "", 200},
	{"replace_container", "PUT", "/dbs/db/colls/c", nil, smallContainer, 200},
	{"query_offers", "POST", "/offers", across(), `{"query":"SELECT * FROM r"}`, 200},
	{"read_all_offers", "GET", "/offers", nil, "", 200},
	{"read_offer", "GET", "/offers/none", nil, "", 404},
	{"replace_offer", "PUT", "/offers/none", nil, "{}", 404},
	{"create_item", "POST", docs, under("p"), `{"id":"1","pk":"p"}`, 201},
	{"create_item", "POST", docs, under("p"), `{"id":"1","pk":"p"}`, 409},
	{"upsert_item", "POST", docs, under("p", "x-ms-documentdb-is-upsert", "True"), `{"id":"1","pk":"p"}`, 200},
	{"query_items", "POST", docs, across(), `{"query":"SELECT * FROM c"}`, 200},
	{"query_plan", "POST", docs, map[string]string{
		"content-type": wire.QueryType, "x-ms-cosmos-is-query-plan-request": "True",
	}, `{"query":"SELECT * FROM c"}`, 200},
	{"execute_batch", "POST", docs, batchOf("true"), `[{"operationType":"Read","id":"1"}]`, 200},
	{"execute_batch", "POST", docs, batchOf("true"), `[{"operationType":"Read","id":"none"}]`, 207},
	{"execute_bulk", "POST", docs, map[string]string{
		"x-ms-cosmos-is-batch-request": "True", "x-ms-documentdb-partitionkeyrangeid": "0",
	}, `[{"operationType":"Read","id":"1","partitionKey":"[\"p\"]"}]`, 200},
	{"read_all_items", "GET", docs, nil, "", 200},
	{"query_change_feed", "GET", docs, map[string]string{"a-im": "Incremental Feed"}, "", 200},
	{"read_item", "GET", docs + "/1", under("p"), "", 200},
	{"read_item", "GET", docs + "/1", under("p", "x-ms-consistency-level", "Strong"), "", 400},
	{"replace_item", "PUT", docs + "/1", under("p"), `{"id":"1","pk":"p"}`, 200},
	{"patch_item", "PATCH", docs + "/1", under("p"), `[{"op":"set","path":"/n","value":1}]`, 200},
	{"delete_item", "DELETE", docs + "/1", under("p"), "", 204},
	{"read_feed_ranges", "GET", "/dbs/db/colls/c/pkranges", nil, "", 200},
	{"change_partitions", "POST", "/dbs/db/colls/c/partitions", nil, `{"operation":"split","id":"0"}`, 200},
	{"read_account", "GET", "/", nil, "", 200},
	{"create_backup", "GET", "/backup", nil, "", 200},
	{"check_store", "GET", "/check", nil, "", 200},
	{"_OTHER", "POST", "/offers", nil, `{"id":"x"}`, 405},
	{"_OTHER", "DELETE", docs, nil, "", 405},
	{"_OTHER", "GET", "/dbs/db/colls/c/sprocs", nil, "", 400},
	{"_OTHER", "GET", "/none/of/them", nil, "", 400},
	{"delete_container", "DELETE", "/dbs/db/colls/c", nil, "", 204},
	{"delete_database", "DELETE", "/dbs/db", nil, "", 204},
}

// Each request is told once, with the name of its operation and what its answer says. The documentation lists these
// names and no others.
func TestEachRequestIsToldWithTheNameOfItsOperation(t *testing.T) {
	var d told
	w := newWorld(t, Options{RequestDone: d.hook})
	names := map[string]bool{}
	for _, c := range requestsOfAllOperations {
		begun := time.Now()
		a := w.do(t, c.method, c.path, c.headers, c.body)
		a.want(t, c.status)
		r := d.last(t)
		r.equals(t, a)
		if r.Operation != c.name || r.Began.Before(begun) || r.Duration <= 0 || r.Duration > time.Since(begun) {
			t.Errorf("%s %s is %s, began %v after the call, took %v; want %s", c.method, c.path, r.Operation,
				r.Began.Sub(begun), r.Duration, c.name)
		}
		names[c.name] = true
	}
	text, err := os.ReadFile("requestdone.go")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, line := range regexp.MustCompile(`(?m)^\t//\t(.*)$`).FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, strings.Fields(line[1])...)
	}
	slices.Sort(documented)
	if got := slices.Sorted(maps.Keys(names)); !slices.Equal(got, documented) || len(got) != 33 {
		t.Errorf("the operations are\n%d %q, documented are\n%q", len(got), got, documented)
	}
}

// A refused request is told too, with the operation that it asked for, and a date only if a key has signed it.
func TestARefusedRequestIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d told
		w := newSmallWorld(t)
		w.o.RequestDone = d.hook
		ahead := time.Now().Add(20 * time.Minute).UTC().Truncate(time.Second)
		signature := func(date string) string {
			r := httptest.NewRequestWithContext(t.Context(), "GET", docs+"/1", nil)
			r.Header.Set("x-ms-date", date)
			return sign(t, wellKnownKey, r)
		}
		skewed := under("p", "x-ms-date", ahead.Format(http.TimeFormat), "authorization",
			signature(ahead.Format(http.TimeFormat)))
		for _, c := range []struct {
			about   string
			headers map[string]string
			status  int
			signed  time.Time
		}{
			{"no key", under("p", "authorization", ""), 401, time.Time{}},
			{"a wrong signature", under("p", "authorization", signature("another day")), 401, time.Time{}},
			{"a date that is none", under("p", "x-ms-date", "x", "authorization", signature("x")), 401, time.Time{}},
			{"a clock that is ahead", skewed, 403, ahead},
		} {
			a := w.do(t, "GET", docs+"/1", c.headers, "")
			a.want(t, c.status)
			r := d.last(t)
			r.equals(t, a)
			if r.Operation != "read_item" || !r.Signed.Equal(c.signed) {
				t.Errorf("%s: told %+v, want a read_item signed %v", c.about, r, c.signed)
			}
		}
		time.Sleep(time.Second)
		served, refusal := w.drain(t, "c")
		r := d.all[len(d.all)-1]
		r.equals(t, refusal)
		if len(d.all) != served+1 || r.Operation != "read_item" || r.SubStatus != 3200 ||
			r.Began.Sub(r.Signed) >= time.Second || r.Began.Before(r.Signed) {
			t.Errorf("%d requests are told, want %d; the last is %+v", len(d.all), served+1, r)
		}
	})
}

// A web page that calls a server on this machine by another name is refused before its path is read.
func TestARefusedHostIsTold(t *testing.T) {
	var d told
	w := newWorld(t, Options{RequestDone: d.hook})
	r := httptest.NewRequestWithContext(t.Context(), "GET", "http://evil.test"+docs, nil)
	r.Header.Set("a-im", "Incremental Feed")
	w.ServeHTTP(httptest.NewRecorder(), r)
	if got := d.last(t); got.Operation != "query_change_feed" || got.Status != http.StatusForbidden {
		t.Errorf("told %+v", got)
	}
}

// A request that panics is told with the 500 that it is answered with, and once.
func TestARequestThatPanicsIsTold(t *testing.T) {
	var d told
	w := newWorld(t, Options{RequestDone: d.hook})
	read := operations[""]["GET one"].run
	t.Cleanup(func() { operations[""]["GET one"].run = read })
	operations[""]["GET one"].run = func(*call) error { panic("a defect") }
	a := w.do(t, "GET", "/", nil, "")
	a.want(t, http.StatusInternalServerError)
	d.last(t).equals(t, a)
}

// A read of a change feed is told with the time that it has waited.
func TestTheWaitForAChangeIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d told
		w, c := newContainer(t, Options{RequestDone: d.hook})
		d.all = nil
		go func() {
			time.Sleep(3 * time.Second)
			if _, err := c.Create(t.Context(), []byte(`{"id":"1","pk":"p"}`)); err != nil {
				t.Error(err)
			}
		}()
		w.do(t, "GET", docs, map[string]string{
			"a-im": "Incremental Feed", "x-ms-cosmos-max-polling-interval": "10000",
		}, "").want(t, http.StatusOK)
		if r := d.last(t); r.Duration != 3*time.Second {
			t.Errorf("the read took %v, want 3 s", r.Duration)
		}
	})
}

// The hook costs no allocation.
func TestTheHookAllocatesNothing(t *testing.T) {
	allocations := func(o Options) float64 {
		db, err := docstore.Open("", docstore.Options{InMemory: true})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		w := serveStore(t, db, o)
		w.create(t, "db", smallContainer, nil)
		w.write(t, "c")
		r := httptest.NewRequestWithContext(t.Context(), "GET", docs+"/1", nil)
		r.Header["X-Ms-Date"] = []string{time.Now().UTC().Format(http.TimeFormat)}
		r.Header.Set("Authorization", sign(t, wellKnownKey, r))
		r.Header["X-Ms-Documentdb-Partitionkey"] = []string{`["p"]`}
		s := sink{header: http.Header{}}
		return testing.AllocsPerRun(1000, func() {
			clear(s.header)
			if w.ServeHTTP(&s, r); s.status != http.StatusOK {
				t.Fatalf("status is %d", s.status)
			}
		})
	}
	var charge float64
	with := allocations(Options{RequestDone: func(_ context.Context, r RequestDone) { charge += r.Charge }})
	if without := allocations(Options{}); with > without || charge == 0 {
		t.Errorf("%v allocations with a hook, %v without", with, without)
	}
}
