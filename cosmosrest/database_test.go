package cosmosrest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

func TestAccountNamesTheAddressThatTheClientCalled(t *testing.T) {
	w := newWorld(t, Options{})
	for _, test := range []struct{ url, want string }{
		{"http://example.com/", "http://example.com/"},
		{"http://127.0.0.1:8081/", "http://127.0.0.1:8081/"},
		{"https://localhost:8081/", "https://127.0.0.1:8081/"},
		{"https://LOCALHOST/", "https://127.0.0.1/"},
		{"http://[::1]:8081/", "http://[::1]:8081/"},
	} {
		var account struct {
			ID                                   string
			WritableLocations, ReadableLocations []struct{ Name, DatabaseAccountEndpoint string }
			EnableMultipleWriteLocations         *bool
			UserConsistencyPolicy                struct{ DefaultConsistencyLevel string }
			QueryEngineConfiguration             string
			Changefeed                           struct{ MaxPollingIntervalInMs int }
		}
		w.do(t, "GET", test.url, nil, "").want(t, http.StatusOK).into(t, &account)
		if len(account.WritableLocations) != 1 || len(account.ReadableLocations) != 1 {
			t.Fatalf("%s: locations %v and %v, want one each", test.url, account.WritableLocations,
				account.ReadableLocations)
		}
		at := account.WritableLocations[0]
		if at != account.ReadableLocations[0] || at.Name != "South Central US" ||
			at.DatabaseAccountEndpoint != test.want {
			t.Errorf("%s: location %v, want %s", test.url, at, test.want)
		}
		if m := account.EnableMultipleWriteLocations; m == nil || *m {
			t.Errorf("%s: enableMultipleWriteLocations is not false", test.url)
		}
		if account.UserConsistencyPolicy.DefaultConsistencyLevel != "Session" ||
			account.Changefeed.MaxPollingIntervalInMs != 30000 ||
			!strings.HasPrefix(account.QueryEngineConfiguration, `{"maxSqlQueryInputLength":`) || account.ID == "" {
			t.Errorf("%s: account %+v", test.url, account)
		}
	}
}

func TestDatabaseLives(t *testing.T) {
	w := newWorld(t, Options{})
	made := w.do(t, "POST", "/dbs", nil, `{"id":"My Db"}`).want(t, http.StatusCreated)
	d := made.object(t)
	rid, _ := d["_rid"].(string)
	if d["id"] != "My Db" || len(rid) != 8 || d["_self"] != "dbs/"+rid+"/" || d["_colls"] != "colls/" ||
		d["_users"] != "users/" || d["_ts"].(float64) < 1 {
		t.Errorf("created %s", made.body)
	}
	etag := made.header.Get("etag")
	if etag == "" || d["_etag"] != etag {
		t.Errorf("ETag %q beside %s", etag, made.body)
	}
	for _, path := range []string{"/dbs/My%20Db", "/dbs/" + rid, "/dbs/" + rid + "/"} {
		read := w.do(t, "GET", path, nil, "").want(t, http.StatusOK)
		if string(read.body) != string(made.body) {
			t.Errorf("%s: %s, want %s", path, read.body, made.body)
		}
		same := w.do(t, "GET", path, map[string]string{"If-None-Match": etag}, "").want(t, http.StatusNotModified)
		if len(same.body) > 0 || same.header.Get("etag") != etag {
			t.Errorf("%s: not modified, with body %q and ETag %q", path, same.body, same.header.Get("etag"))
		}
		w.do(t, "GET", path, map[string]string{"If-Match": etag}, "").want(t, http.StatusOK)
		w.do(t, "GET", path, map[string]string{"If-Match": `"other"`}, "").refused(t, http.StatusPreconditionFailed,
			"0", "PreconditionFailed")
	}
	w.do(t, "POST", "/dbs", nil, `{"id":"My Db"}`).refused(t, http.StatusConflict, "0", "Conflict")
	w.do(t, "DELETE", "/dbs/My%20Db", map[string]string{"If-Match": `"other"`}, "").refused(t,
		http.StatusPreconditionFailed, "0", "PreconditionFailed")
	if gone := w.do(t, "DELETE", "/dbs/My%20Db", map[string]string{"If-Match": etag}, "").want(t,
		http.StatusNoContent); len(gone.body) > 0 {
		t.Errorf("deleted, with body %q", gone.body)
	}
	w.do(t, "GET", "/dbs/My%20Db", nil, "").refused(t, http.StatusNotFound, "0", "NotFound")
	w.do(t, "DELETE", "/dbs/My%20Db", nil, "").refused(t, http.StatusNotFound, "0", "NotFound")
	w.do(t, "GET", "/dbs/My%20Db/colls", nil, "").refused(t, http.StatusNotFound, "1003", "NotFound")
}

func TestDatabaseThatIsMadeAnewHasAnotherResourceID(t *testing.T) {
	w := newWorld(t, Options{})
	first := w.do(t, "POST", "/dbs", nil, `{"id":"d"}`).object(t)["_rid"]
	w.do(t, "DELETE", "/dbs/d", nil, "").want(t, http.StatusNoContent)
	if again := w.do(t, "POST", "/dbs", nil, `{"id":"d"}`).object(t)["_rid"]; again == first {
		t.Errorf("both have the resource id %v", first)
	}
}

func TestDatabaseRefusals(t *testing.T) {
	w := newWorld(t, Options{})
	for _, test := range []struct{ body, want string }{
		{``, "want a JSON object"},
		{`[]`, "want a JSON object"},
		{`null`, "want a JSON object"},
		{`{"id":"d"`, "want a JSON object"},
		{`{}`, "id is missing"},
		{`{"id":null}`, "id is missing"},
		{`{"id":5}`, "id is 5: want a string"},
		{`{"id":""}`, "non-empty string"},
		{`{"id":"a/b"}`, "invalid character"},
		{`{"id":"a#b"}`, "invalid character"},
		{`{"id":"a "}`, `id is \"a \"`},
		{`{"id":"` + strings.Repeat("x", 256) + `"}`, "less than '255' characters"},
	} {
		message := w.do(t, "POST", "/dbs", nil, test.body).refused(t, http.StatusBadRequest, "0", "BadRequest")
		if !strings.Contains(message, test.want) {
			t.Errorf("%s: message %q, want %q in it", test.body, message, test.want)
		}
	}
	w.do(t, "POST", "/dbs", nil, strings.Repeat(" ", wire.MaxProperties+1)).refused(t, http.StatusRequestEntityTooLarge,
		"0", "RequestEntityTooLarge")
}

func TestAPathThatIsTooDeepIsRefused(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.do(t, "GET", docs+"/a/attachments/b", under("p"), "").refused(t, http.StatusBadRequest, "0", "BadRequest")
}

func TestDatabasesAreListedInPages(t *testing.T) {
	w := newWorld(t, Options{})
	for i := range 5 {
		w.do(t, "POST", "/dbs", nil, fmt.Sprintf(`{"id":"d%d"}`, i)).want(t, http.StatusCreated)
	}
	if all := column(t, w.do(t, "GET", "/dbs", nil, "").list(t, "Databases"), "id"); all != "d0 d1 d2 d3 d4" {
		t.Errorf("all are %s", all)
	}
	query := `{"query":"SELECT * FROM root r WHERE r.id != @id","parameters":[{"name":"@id","value":"d2"}]}`
	for _, test := range []struct {
		method, body string
		want         []string
	}{
		{"GET", "", []string{"d0 d1", "d2 d3", "d4"}},
		{"POST", query, []string{"d0 d1", "d3 d4"}},
	} {
		headers := map[string]string{"x-ms-max-item-count": "2", "Content-Type": "application/query+json"}
		for i, want := range test.want {
			page := w.do(t, test.method, "/dbs", headers, test.body)
			if got := column(t, page.list(t, "Databases"), "id"); got != want {
				t.Errorf("%s page %d is %q, want %q", test.method, i, got, want)
			}
			next := page.header.Get("x-ms-continuation")
			if last := i == len(test.want)-1; last != (next == "") {
				t.Errorf("%s page %d has the continuation %q", test.method, i, next)
			}
			headers["x-ms-continuation"] = next
		}
	}
}

// Who lists page by page, and deletes what a page has, must not miss any.
func TestDatabasesDeletedBetweenPagesHideNoOther(t *testing.T) {
	w := newWorld(t, Options{})
	for i := range 5 {
		w.do(t, "POST", "/dbs", nil, fmt.Sprintf(`{"id":"d%d"}`, i)).want(t, http.StatusCreated)
	}
	headers := map[string]string{"x-ms-max-item-count": "2"}
	for range 3 {
		page := w.do(t, "GET", "/dbs", headers, "")
		for _, d := range page.list(t, "Databases") {
			w.do(t, "DELETE", "/dbs/"+d["id"].(string), nil, "").want(t, http.StatusNoContent)
		}
		headers["x-ms-continuation"] = page.header.Get("x-ms-continuation")
	}
	if left := w.do(t, "GET", "/dbs", nil, "").list(t, "Databases"); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

func TestDatabaseQueries(t *testing.T) {
	w := newWorld(t, Options{})
	for _, id := range []string{"b", "a", "c"} {
		w.do(t, "POST", "/dbs", nil, `{"id":"`+id+`"}`).want(t, http.StatusCreated)
	}
	for _, test := range []struct{ query, want string }{
		{`SELECT * FROM c`, "a b c"},
		{`SELECT * FROM c WHERE c.id = 'b'`, "b"},
		{`SELECT * FROM c ORDER BY c.id DESC`, "c b a"},
		{`SELECT TOP 2 * FROM c`, "a b"},
		{`SELECT * FROM c WHERE STARTSWITH(c.id, 'x')`, ""},
	} {
		for _, marker := range []map[string]string{
			{"Content-Type": "application/query+json"},
			{"Content-Type": "application/query+json; charset=utf-8", "x-ms-max-item-count": "-1"},
			{"x-ms-documentdb-query": "True"},
			{"x-ms-documentdb-isquery": "true"},
		} {
			rows := w.do(t, "POST", "/dbs", marker, `{"query":"`+test.query+`"}`).list(t, "Databases")
			if got := column(t, rows, "id"); got != test.want {
				t.Errorf("%s with %v: %q, want %q", test.query, marker, got, test.want)
			}
		}
	}
	marker := map[string]string{"Content-Type": "application/query+json"}
	for _, body := range []string{
		``, `{}`, `{"query":5}`, `{"query":"FORM c"}`,
		`{"query":"SELECT * FROM c","parameters":[{"name":"id"}]}`,
	} {
		w.do(t, "POST", "/dbs", marker, body).refused(t, http.StatusBadRequest, "0", "BadRequest")
	}
	w.do(t, "POST", "/dbs", map[string]string{"Content-Type": "application/query+json", "x-ms-continuation": "!"},
		`{"query":"SELECT * FROM c"}`).
		refused(t, http.StatusBadRequest, "0", "BadRequest")
	w.do(t, "GET", "/dbs", map[string]string{"x-ms-max-item-count": "-2"}, "").refused(t, http.StatusBadRequest, "0",
		"BadRequest")
}

// A continuation names a resource and none of its rows.
func TestTheRowsOfAResourceStayOnOnePage(t *testing.T) {
	w := newWorld(t, Options{})
	for _, id := range []string{"a", "b"} {
		w.create(t, "db", `{"id":"`+id+`","partitionKey":{"paths":["/x","/y"],"kind":"MultiHash","version":2}}`, nil)
	}
	headers := across("x-ms-max-item-count", "1")
	for _, id := range []string{"a", "b"} {
		a := w.do(t, "POST", "/dbs/db/colls", headers,
			`{"query":"SELECT c.id, p FROM c JOIN p IN c.partitionKey.paths"}`)
		rows := a.list(t, "DocumentCollections")
		if got := column(t, rows, "id") + " " + column(t, rows, "p"); got != id+" "+id+" /x /y" {
			t.Errorf("the page has %s, want both rows of %s", got, id)
		}
		headers["x-ms-continuation"] = a.header.Get("x-ms-continuation")
	}
	if next := headers["x-ms-continuation"]; next != "" {
		t.Errorf("after the last page there is another one: %q", next)
	}
}
