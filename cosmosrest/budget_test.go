package cosmosrest

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/docstore"
)

// key of the documents that these tests write and read.
var keyed = map[string]string{"x-ms-documentdb-partitionkey": `["p"]`}

// drain reads a document until the server refuses, and gives how often it did not.
func (w *world) drain(t *testing.T, container string) (served int, refusal answer) {
	t.Helper()
	for served = range 100_000 {
		a := w.do(t, "GET", "/dbs/db/colls/"+container+"/docs/1", keyed, "")
		if a.status == http.StatusTooManyRequests {
			a.refused(t, http.StatusTooManyRequests, "3200", "TooManyRequests")
			return served, a
		}
		a.want(t, http.StatusOK)
	}
	t.Fatal("never refused")
	return 0, answer{}
}

func (w *world) write(t *testing.T, container string) {
	t.Helper()
	w.do(t, "POST", "/dbs/db/colls/"+container+"/docs", keyed, `{"id":"1","pk":"p"}`).want(t, http.StatusCreated)
}

func retryAfter(t *testing.T, a answer) time.Duration {
	t.Helper()
	ms, err := strconv.Atoi(a.header.Get("x-ms-retry-after-ms"))
	if err != nil || ms < 1 {
		t.Fatalf("retry after %q", a.header.Get("x-ms-retry-after-ms"))
	}
	return time.Duration(ms) * time.Millisecond
}

func named(id string) string { return strings.Replace(smallContainer, `"c"`, `"`+id+`"`, 1) }

func TestOfferThrottles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSmallWorld(t)
		time.Sleep(time.Second)
		served, refusal := w.drain(t, "c")
		if served != 400 {
			t.Errorf("%d reads in a second of 400 RU, want 400", served)
		}
		time.Sleep(retryAfter(t, refusal))
		w.do(t, "GET", "/dbs/db/colls/c/docs/1", keyed, "").want(t, http.StatusOK)

		// A new throughput counts at once.
		o := w.theOffer(t, "true")
		w.do(t, "PUT", "/"+o["_self"].(string), nil, `{"content":{"offerThroughput":600}}`).want(t, http.StatusOK)
		w.drain(t, "c")
		time.Sleep(time.Second)
		if served, _ := w.drain(t, "c"); served != 600 {
			t.Errorf("%d reads in a second of 600 RU, want 600", served)
		}
	})
}

// newSmallWorld has a container with a throughput of 400 RU/s, and an item in it.
func newSmallWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, Options{})
	w.create(t, "db", smallContainer, map[string]string{"x-ms-offer-throughput": "400"})
	w.write(t, "c")
	return w
}

func TestAChangeOfTheThroughputRefillsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSmallWorld(t)
		w.drain(t, "c")
		o := w.theOffer(t, "true")
		w.do(t, "PUT", "/"+o["_self"].(string), nil, `{"content":{"offerThroughput":500}}`).want(t, http.StatusOK)
		w.do(t, "GET", "/dbs/db/colls/c/docs/1", keyed, "").want(t, http.StatusTooManyRequests)
	})
}

func TestRangesShareTheThroughput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSmallWorld(t)
		for _, test := range []struct {
			change string
			want   int
		}{
			{`{"operation":"split","id":"0"}`, 200},
			{`{"operation":"split","id":"1"}`, 134}, // below 0 by a part of the last one
			{`{"operation":"merge","ids":["3","4"]}`, 200},
		} {
			w.do(t, "POST", "/dbs/db/colls/c/partitions", nil, test.change).want(t, http.StatusOK)
			w.drain(t, "c")
			time.Sleep(2 * time.Second)
			if served, _ := w.drain(t, "c"); served != test.want {
				t.Errorf("%s: %d reads in a second, want %d", test.change, served, test.want)
			}
		}
	})
}

func TestContainersWithoutAnOffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{Throughput: 50})
		w.create(t, "db", named("own"), map[string]string{"x-ms-offer-throughput": "400"})
		w.create(t, "db", named("other"), nil)
		w.write(t, "own")
		w.write(t, "other")
		time.Sleep(time.Second)
		for container, want := range map[string]int{"own": 400, "other": 50} {
			if served, _ := w.drain(t, container); served != want {
				t.Errorf("%s: %d reads in a second, want %d", container, served, want)
			}
		}
	})
}

func TestContainersShareTheThroughputOfTheirDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Options{Throughput: 10})
		w.do(t, "POST", "/dbs", map[string]string{"x-ms-offer-throughput": "400"}, `{"id":"db"}`).want(t,
			http.StatusCreated)
		for _, id := range []string{"a", "b"} {
			w.create(t, "db", named(id), nil)
			w.write(t, id)
		}
		w.create(t, "db", named("own"), map[string]string{"x-ms-offer-throughput": "500"})
		w.write(t, "own")
		time.Sleep(time.Second)
		for i := range 399 {
			w.do(t, "GET", "/dbs/db/colls/"+[]string{"a", "b"}[i%2]+"/docs/1", keyed, "").want(t, http.StatusOK)
		}
		for _, test := range []struct {
			container string
			want      int
		}{{"a", 1}, {"b", 0}, {"own", 500}} {
			if served, _ := w.drain(t, test.container); served != test.want {
				t.Errorf("%s: %d reads more, want %d", test.container, served, test.want)
			}
		}
		o := w.theOffer(t, "root.content.offerThroughput = 400")
		w.do(t, "PUT", "/"+o["_self"].(string), nil, `{"content":{"offerThroughput":700}}`).want(t, http.StatusOK)
		w.drain(t, "a")
		time.Sleep(time.Second)
		if served, _ := w.drain(t, "b"); served != 700 {
			t.Errorf("%d reads in a second of 700 RU", served)
		}
	})
}

func TestUnlimitedServerDoesNotThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, o := range []Options{{Throughput: Unlimited}, {}} {
			w := newWorld(t, o)
			headers := map[string]string{"x-ms-offer-throughput": "400"}
			if o.Throughput == 0 {
				headers = nil
			}
			w.create(t, "db", smallContainer, headers)
			w.write(t, "c")
			for range 1000 {
				w.do(t, "GET", "/dbs/db/colls/c/docs/1", keyed, "").want(t, http.StatusOK)
			}
		}
	})
}

func TestThroughputOptionIsChecked(t *testing.T) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := New(db, Options{Throughput: -2}); err == nil ||
		!strings.Contains(err.Error(), "throughput is -2: want") {
		t.Errorf("a throughput of -2: %v", err)
	}
}

// Budgets are made, used and forgotten by many at once.
func TestBudgetsUnderConcurrency(t *testing.T) {
	w := newWorld(t, Options{Throughput: 1000})
	w.create(t, "db", named("kept"), nil)
	w.write(t, "kept")
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			id := fmt.Sprintf("c%d", i)
			for range 20 {
				statuses := [...]int{
					w.do(t, "POST", "/dbs/db/colls", map[string]string{"x-ms-offer-throughput": "400"},
						named(id)).status,
					w.do(t, "GET", "/dbs/db/colls/"+id+"/docs/1", keyed, "").status,
					w.do(t, "GET", "/dbs/db/colls/kept/docs/1", keyed, "").status,
					w.do(t, "DELETE", "/dbs/db/colls/"+id, nil, "").status,
				}
				if statuses != [...]int{201, 404, 200, 204} {
					t.Errorf("create, read, read of another, delete: %v", statuses)
				}
			}
		})
	}
	wg.Wait()
	w.do(t, "POST", "/dbs/db/colls", nil, smallContainer).want(t, http.StatusCreated)
	w.do(t, "GET", "/dbs/db/colls/c/docs/1", keyed, "").want(t, http.StatusNotFound)
	if left := w.budgets.Containers(); left != 2 {
		t.Errorf("%d containers have budgets, want 2", left)
	}
}

func BenchmarkBudgetOff(b *testing.B) {
	w, cont := newContainer(b, Options{})
	for b.Loop() {
		if err := w.budgets.Admit(b.Context(), cont, "0"); err != nil {
			b.Fatal(err)
		}
		w.budgets.Spend(cont, "0", 1)
	}
}
