package faulty_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/cosmosrest/faulty"
)

// origin counts the requests that it carries out.
type origin struct{ carried []string }

// ServeHTTP implements http.Handler.
func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.carried = append(o.carried, r.Method+" "+r.URL.Path)
	w.WriteHeader(http.StatusOK)
}

// ask asks an injector, and reports an aborted connection as status 0.
func ask(i http.Handler, method, path string) (answer *httptest.ResponseRecorder) {
	answer = httptest.NewRecorder()
	defer func() {
		if recover() == http.ErrAbortHandler {
			answer = &httptest.ResponseRecorder{}
		}
	}()
	i.ServeHTTP(answer, httptest.NewRequest(method, path, nil))
	return answer
}

// A fault is for the requests that it fits, as often as was ordered, in the order of the orders.
func TestAFaultIsForTheRequestsThatItFits(t *testing.T) {
	o := &origin{}
	i := faulty.New(o)
	for _, f := range []faulty.Fault{
		{Container: "shop/orders", Status: 429, SubStatus: 3200, RetryAfter: 1500 * time.Millisecond, Times: 2},
		{Container: "shop/orders", Method: "post", Status: 449},
		{Status: 503},
		{Container: "shop/ord", Lose: true},
	} {
		if err := i.Add(f); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/", 200}, // of the account: SDKs ask for that whenever they like
		{"GET", "/dbs/shop/colls/orders", 429},
		{"POST", "/dbs/shop/colls/orders/docs", 429},
		{"GET", "/dbs/shop/colls/ord", 503}, // the first that fits
		{"GET", "/dbs/shop/colls/orders/docs/1", 200},
		{"POST", "/dbs/shop/colls/orders/docs", 449},
		{"POST", "/dbs/shop/colls/orders/docs", 200},
		{"POST", "/dbs/shop/colls/ord/docs", 0},
		{"POST", "/dbs/shop/colls/ord/docs", 200},
	} {
		answer := ask(i, tt.method, tt.path)
		if answer.Code != tt.status {
			t.Errorf("%s %s: status %d, want %d", tt.method, tt.path, answer.Code, tt.status)
		}
		headers := map[string][]string(answer.Header()) // the names are in the service's form
		if tt.status == 429 && (headers["x-ms-retry-after-ms"][0] != "1500" || headers["x-ms-substatus"][0] != "3200") {
			t.Errorf("headers %v", headers)
		}
		if tt.status >= 400 {
			var body struct{ Code, Message string }
			err := json.Unmarshal(answer.Body.Bytes(), &body)
			if err != nil || body.Code == "" || !strings.Contains(body.Message, "ordered as a fault") {
				t.Errorf("%d: body %s, %v", tt.status, answer.Body, err)
			}
		}
	}
	want := "GET / GET /dbs/shop/colls/orders/docs/1 POST /dbs/shop/colls/orders/docs POST /dbs/shop/colls/ord/docs " +
		"POST /dbs/shop/colls/ord/docs"
	if got := strings.Join(o.carried, " "); got != want {
		t.Errorf("carried out: %s\nwant         %s", got, want)
	}
	if left := i.Pending(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestADelayedRequestIsCarriedOutLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &origin{}
		i := faulty.New(o)
		for range 2 {
			if err := i.Add(faulty.Fault{Delay: 3 * time.Second}); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if answer := ask(i, "GET", "/dbs"); answer.Code != 200 || time.Since(began) != 3*time.Second {
			t.Errorf("status %d after %v", answer.Code, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		i.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", "/dbs", nil))
		if len(o.carried) != 1 {
			t.Errorf("%v were carried out: want none of a client that has gone", o.carried)
		}
	})
}

func TestAFaultThatIsNotPossibleIsRefused(t *testing.T) {
	for want, f := range map[string]faulty.Fault{
		`container is "orders": want DATABASE/CONTAINER`:     {Container: "orders", Status: 429},
		"status is 302: want 400 to 599":                     {Status: 302},
		"status is 600: want 400 to 599":                     {Status: 600},
		"status is 503, and lose is set: want one of them":   {Status: 503, Lose: true},
		"the fault does nothing: want a status, lose or a d": {},
		"status is missing: want one beside sub_status":      {SubStatus: 3200, Delay: time.Second},
		"sub_status is -1: want a positive number":           {Status: 429, SubStatus: -1},
		"retry_after is -1s: want a positive duration":       {Status: 429, RetryAfter: -time.Second},
		"delay is 11m0s: want 0 to 10m0s":                    {Delay: 11 * time.Minute},
		"times is -1: want a positive number":                {Status: 429, Times: -1},
	} {
		i := faulty.New(nil)
		if err := i.Add(f); err == nil || !strings.Contains(err.Error(), want) || len(i.Pending()) != 0 {
			t.Errorf("%+v: got %v, want %s", f, err, want)
		}
	}
}

// Programs in other languages order faults over HTTP, with the key of the account.
func TestFaultsAreOrderedOverHTTP(t *testing.T) {
	server := cosmostest.NewTestServer(t)
	for _, tt := range []struct {
		method, auth, body string
		status             int
		want               string
	}{
		{"POST", "", `{"status":429}`, 401, "want the header Authorization: Bearer KEY"},
		{"POST", "Bearer x", `{"status":429}`, 401, "want the header"},
		{"POST", "Bearer " + server.Key, `{"status":429,"retry_after":0.5,"times":3,"container":"a/b"}`, 204, ""},
		{"POST", "Bearer " + server.Key, `{"delay":1e300}`, 400, "delay is"},
		{"POST", "Bearer " + server.Key, `{"state":429}`, 400, `unknown field "state"`},
		{"POST", "Bearer " + server.Key, `{"status":"429"}`, 400, "cannot unmarshal string"},
		{"PUT", "Bearer " + server.Key, ``, 405, "method is PUT: want POST, GET or DELETE"},
		{
			"GET", "Bearer " + server.Key, ``, 200,
			`[{"container":"a/b","status":429,"retry_after":0.5,"times":3}]`,
		},
		{"DELETE", "Bearer " + server.Key, ``, 204, ""},
		{"GET", "Bearer " + server.Key, ``, 200, `[]`},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tt.method, server.URL+faulty.ControlPath,
			strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", tt.auth)
		resp, err := server.Client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != tt.status || !strings.Contains(string(text), tt.want) {
			t.Errorf("%s %s: %d %s, want %d %s", tt.method, tt.body, resp.StatusCode, text, tt.status, tt.want)
		}
	}
}

func ExampleInjector_Add() {
	server := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "carried out") })
	injector := faulty.New(server)
	if err := injector.Add(faulty.Fault{Container: "shop/orders", Status: 410, SubStatus: 1002}); err != nil {
		fmt.Println(err)
	}
	for range 2 {
		answer := httptest.NewRecorder()
		injector.ServeHTTP(answer, httptest.NewRequest("GET", "/dbs/shop/colls/orders/docs", nil))
		fmt.Println(answer.Code)
	}
	// Output:
	// 410
	// 200
}
