package cosmosrest

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/meter"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// hostile is a query that computes for about a second on the document of [newHostileWorld].
const hostile = "SELECT VALUE COUNT(1) FROM c JOIN x IN c.a JOIN y IN c.a JOIN z IN c.a"

// newHostileWorld is a server with two documents, of which one has a long array.
func newHostileWorld(t *testing.T) *world {
	t.Helper()
	w, _ := newContainer(t, Options{})
	w.write(t, "c")
	array := strings.Repeat("1,", 2000) + "1"
	w.do(t, "POST", "/dbs/db/colls/c/docs", keyed, `{"id":"2","pk":"p","a":[`+array+`]}`).want(t, http.StatusCreated)
	return w
}

// compute sends a query for the key of the documents.
func (w *world) compute(t *testing.T, query string) answer {
	t.Helper()
	return w.do(t, "POST", "/dbs/db/colls/c/docs", map[string]string{
		"Content-Type": wire.QueryType, "x-ms-documentdb-partitionkey": `["p"]`,
	}, fmt.Sprintf(`{"query":%q}`, query))
}

func (a answer) charge(t *testing.T) float64 {
	t.Helper()
	ru, err := strconv.ParseFloat(a.header.Get("x-ms-request-charge"), 64)
	if err != nil {
		t.Fatalf("%s: %v", a.request, err)
	}
	return ru
}

// sqlItems is the largest number of items of an IN.
const sqlItems = 16_000

func TestAQueryIsChargedForWhatItComputes(t *testing.T) {
	w := newHostileWorld(t)
	list := "c.n IN (2" + strings.Repeat(",2", sqlItems-2)
	long := strings.Repeat(list+") OR ", 3) + list
	for _, c := range []struct {
		query        string
		status       int
		least, atMax float64
	}{
		{"SELECT * FROM c", http.StatusOK, 1, 10},
		{hostile, http.StatusBadRequest, 1000, 2000}, // also though nothing came of it
		{
			"SELECT VALUE x FROM c JOIN x IN c.a JOIN y IN c.a WHERE x IN (" + strings.Repeat("2,", 500) + "3)",
			http.StatusBadRequest, 1000, 2000,
		},
		{"SELECT VALUE x FROM c JOIN x IN c.a WHERE (x+x+x+x+x+x+x+x+x+x+x+x)*x*x*x*x = 3", http.StatusOK, 1, 10},
		// to be read
		{"SELECT * FROM c WHERE " + long + ",1)", http.StatusOK, 300, 1000},
		{"SELECT * FROM c WHERE " + long + ",)", http.StatusBadRequest, 300, 1000},
	} {
		a := w.compute(t, c.query)
		a.want(t, c.status)
		if ru := a.charge(t); ru < c.least || ru > c.atMax {
			t.Errorf("%.80s is %.2f RU, want %g to %g", c.query, ru, c.least, c.atMax)
		}
	}
}

func TestQueriesOfAnAccountAreChargedForWhatTheyCompute(t *testing.T) {
	w, _ := newContainer(t, Options{})
	long := "SELECT * FROM c WHERE c.x IN (" + strings.Repeat("2,", 50_000) + "1)"
	for _, path := range []string{"/offers", "/dbs", "/dbs/db/colls"} {
		a := w.do(t, "POST", path, map[string]string{"Content-Type": wire.QueryType, "x-ms-documentdb-isquery": "true"},
			fmt.Sprintf(`{"query":%q}`, long))
		a.want(t, http.StatusOK)
		if ru := a.charge(t); ru < 300 {
			t.Errorf("a query of %s is %.2f RU, want 300 or more", path, ru)
		}
	}
}

func TestQueriesThatComputeTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHostileWorld(t)
		others := make([]meter.Request, w.load.Usage().MaxTurns)
		for i := range others {
			others[i] = w.load.Request(t.Context())
			if err := others[i].Work(meter.FreeWork); err != nil {
				t.Fatal(err)
			}
		}
		begun := time.Now()
		refused := make(chan answer)
		go func() { refused <- w.compute(t, hostile) }()
		synctest.Wait()
		w.do(t, "GET", "/dbs/db/colls/c/docs/1", keyed, "").want(t, http.StatusOK)
		w.compute(t, "SELECT VALUE COUNT(1) FROM c").want(t, http.StatusOK)
		if time.Since(begun) > 0 {
			t.Errorf("others waited for %v", time.Since(begun))
		}
		a := <-refused
		a.refused(t, http.StatusTooManyRequests, "3200", "TooManyRequests")
		if took := time.Since(begun); took != meter.MaxWait ||
			!strings.Contains(string(a.body), "had no turn for 10s") {
			t.Errorf("after %v: %s: want the cause, after %v", took, a.body, meter.MaxWait)
		}
		go func() { refused <- w.compute(t, hostile) }()
		synctest.Wait()
		others[0].End()
		if a := <-refused; a.status != http.StatusBadRequest {
			t.Errorf("with a turn: %d %s", a.status, a.body)
		}
		if u := w.load.Usage(); u.Turns != u.MaxTurns-1 {
			t.Errorf("%d turns are taken, want %d: the query gave its turn back", u.Turns, u.MaxTurns-1)
		}
	})
}

func TestArraysThatFunctionsTakeApartAreBounded(t *testing.T) {
	w := newHostileWorld(t)
	const query = "SELECT VALUE ARRAY_LENGTH(SetUnion(c.a, c.a)) FROM c WHERE c.id = '2'"
	w.compute(t, query).want(t, http.StatusOK)
	if held := w.load.Usage().Held; held != 0 {
		t.Errorf("%d bytes are held after the query", held)
	}
	others := w.load.Request(t.Context())
	if err := others.Hold(meter.MaxHeld - 1000); err != nil {
		t.Fatal(err)
	}
	w.compute(t, query).refused(t, http.StatusTooManyRequests, "3200", "TooManyRequests")
	if held := w.load.Usage().Held; held != meter.MaxHeld-1000 {
		t.Errorf("%d bytes are held after the query, want those of others", held)
	}
}

// What a function has taken apart is let go when it has computed its value, so a query may take any number apart,
// one after the other.
func TestArraysOfAllRowsAreNotHeldTogether(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.item(t, "a", `,"rows":[1,1,1,1],"a":[1`+strings.Repeat(",1", 100_000)+`]`) // each row takes 6 MB apart
	others := w.load.Request(t.Context())
	defer others.End()
	if err := others.Hold(meter.MaxHeld - 10<<20); err != nil {
		t.Fatal(err)
	}
	const query = "SELECT VALUE x FROM c JOIN x IN c.rows WHERE ARRAY_LENGTH(ARRAY_SLICE(c.a, 0, 1)) = x"
	a := w.ask(t, under("p", pairs(across())...), query).want(t, http.StatusOK)
	if got, want := a.header.Get("x-ms-item-count"), "4"; got != want {
		t.Errorf("%s rows, want %s", got, want)
	}
}

func TestAnswersThatNobodyReadsAreBounded(t *testing.T) {
	w, _ := newContainer(t, Options{})
	large := fmt.Sprintf(`{"id":"1","pk":"p","text":%q}`, strings.Repeat("x", meter.Large))
	w.do(t, "POST", "/dbs/db/colls/c/docs", keyed, large).want(t, http.StatusCreated)
	w.holdAnswers(t, meter.MaxSending-1000) // to others
	for _, c := range []struct{ method, path string }{
		{"GET", "/dbs/db/colls/c/docs/1"},
		{"GET", "/dbs/db/colls/c/docs"},
	} {
		a := w.do(t, c.method, c.path, keyed, "")
		a.refused(t, http.StatusTooManyRequests, "3200", "TooManyRequests")
		if !strings.Contains(string(a.body), "slow to read") {
			t.Errorf("%s: want the cause", a.body)
		}
	}
	w.do(t, "GET", "/dbs/db", nil, "").want(t, http.StatusOK)
	if n := w.load.Usage().Sending; n != meter.MaxSending-1000 {
		t.Errorf("%d bytes are being sent, want those of others", n)
	}
}

// holdAnswers has so many bytes being sent until the test ends.
func (w *world) holdAnswers(t *testing.T, bytes int) {
	t.Helper()
	sent, err := w.load.Send(bytes, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sent)
}
