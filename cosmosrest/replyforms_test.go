package cosmosrest

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// Replies in the form of the service, beside those of the transcript replies.txtar.

func TestBatchesStoreNumbersAsTheServiceDoes(t *testing.T) {
	w, _ := newContainer(t, Options{})
	all, statuses := w.send(t, `[{"operationType":"Create","resourceBody":{"id":"a","pk":"p","n":1.0}},`+
		`{"operationType":"Patch","id":"a","resourceBody":{"operations":[{"op":"add","path":"/m","value":2e1}]}}]`).
		results(t, http.StatusOK)
	if statuses != "201 200" || !strings.Contains(string(all[1].ResourceBody), `"n":1,"_rid"`) ||
		!strings.Contains(string(all[1].ResourceBody), `,"m":20,"_ts"`) {
		t.Errorf("statuses %s, item %s", statuses, all[1].ResourceBody)
	}
	_, statuses = w.bulk(t, `[{"operationType":"Create","partitionKey":"[\"p\"]","resourceBody":{"id":"b","pk":"p","n":1e400}},`+
		`{"operationType":"Create","partitionKey":"[\"p\"]","resourceBody":{"id":"c","pk":"p"}}]`).
		results(t, http.StatusMultiStatus)
	if statuses != "400 201" {
		t.Errorf("a bulk with a number out of range: %s, want 400 201", statuses)
	}
	w.do(t, "PUT", docs+"/a", under("p"), `{"id":"a","pk":"p","n":0.50}`).want(t, http.StatusOK)
	patched := w.do(t, "PATCH", docs+"/a", under("p"), `[{"op":"set","path":"/n","value":3.0}]`).want(t, http.StatusOK)
	if !strings.Contains(string(patched.body), `"n":3,`) {
		t.Errorf("patched to %s", patched.body)
	}
	patched = w.do(t, "PATCH", docs+"/a", under("p"), `[{"op":"incr","path":"/n","value":1e20}]`).want(t, http.StatusOK)
	if !strings.Contains(string(patched.body), `"n":1e+020,`) {
		t.Errorf("incremented to %s", patched.body)
	}
}

// A parameter may have no number that no document can have, wherever in its value the number stands.
func TestAParameterOutOfRangeIsRefused(t *testing.T) {
	w, _ := newContainer(t, Options{})
	const query = "SELECT * FROM c WHERE c.n < @most"
	w.ask(t, across(), query, "@most", "1e308").want(t, http.StatusOK)
	for _, value := range []string{"1e400", "[1,-1e400]", `{"a":1e309}`} {
		message := w.ask(t, across(), query, "@most", value).refused(t, http.StatusBadRequest, "0", "BadRequest")
		if !strings.Contains(message, "parameter @most: ") || !strings.Contains(message, "out of range") {
			t.Errorf("%s is refused with %q, want a message that names the parameter", value, message)
		}
	}
	lenient, _ := newContainer(t, Options{Lenient: true})
	lenient.ask(t, across(), query, "@most", "1e400").want(t, http.StatusOK)
}

func TestARawTabInAnIDIsTakenAndCannotBeRead(t *testing.T) {
	w, _ := newContainer(t, Options{})
	for text, escape := range map[string]string{"\t": "%09", "\r": "%0D", "\n": "%0A"} {
		w.do(t, "POST", docs, under("p"), `{"id":"a`+text+`b","pk":"p"}`).want(t, http.StatusCreated)
		w.do(t, "GET", docs+"/a"+escape+"b", under("p"), "").refused(t, http.StatusBadRequest, "0", "BadRequest")
	}
}

// The signature of a request with a question mark in its path covers the question mark.
func TestAnIDWithAQuestionMarkMayBeSentAsItIs(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.item(t, "a?b", "")
	escaped, err := http.NewRequest(http.MethodGet, docs+"/a%3Fb", nil)
	if err != nil {
		t.Fatal(err)
	}
	date := time.Now().UTC().Format(http.TimeFormat)
	escaped.Header.Set("x-ms-date", date)
	h := under("p", "x-ms-date", date, "Authorization", sign(t, w.key, escaped))
	w.do(t, "GET", docs+"/a?b", h, "").want(t, http.StatusOK)
}

// .NET writes a slash in an id as it is. The service creates the item, and finds nothing behind the path.
func TestAPathBehindAnItemIsNotFound(t *testing.T) {
	w, _ := newContainer(t, Options{})
	w.do(t, "POST", docs, under("p"), `{"id":"a/b","pk":"p"}`).want(t, http.StatusCreated)
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		for _, path := range []string{"/a/b", "/a/b/c"} {
			m := w.do(t, method, docs+path, under("p"), `{"id":"a/b","pk":"p"}`).refused(t, http.StatusNotFound, "0",
				"NotFound")
			if !strings.Contains(m, "Resource Not Found") {
				t.Errorf("%s %s: %s", method, path, m)
			}
		}
	}
}

func TestDatabasesHaveALSNThatGrows(t *testing.T) {
	w := newWorld(t, Options{})
	made := w.do(t, "POST", "/dbs", nil, `{"id":"a"}`).want(t, http.StatusCreated).header.Get("lsn")
	read := w.do(t, "GET", "/dbs/a", nil, "").want(t, http.StatusOK)
	again := w.do(t, "POST", "/dbs", nil, `{"id":"b"}`).want(t, http.StatusCreated).header.Get("lsn")
	if read.header.Get("lsn") != made || again <= made {
		t.Errorf("LSN %s after the first database, %s at a read, %s after the second", made, read.header.Get("lsn"), again)
	}
	if got, want := read.header.Get("x-ms-session-token"), "0:-1#"+made; got != want {
		t.Errorf("session token %s, want %s", got, want)
	}
	if got, want := read.header.Get("Content-Location"), "http://example.com/dbs/a"; got != want {
		t.Errorf("content-location %s, want %s", got, want)
	}
}
