package cosmosrest

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/docstore"
)

// wellKnownKey is the emulator's, which everybody knows.
const wellKnownKey = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="

// world is a server over a store in memory, and who asks it.
type world struct {
	*Server
	db  *docstore.DB
	key string // signs the requests; empty leaves them unsigned
}

// newWorld is a server without databases.
func newWorld(t testing.TB, o Options) *world {
	t.Helper()
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close store: %v", err)
		}
	})
	return serveStore(t, db, o)
}

// serveStore is a server over a store that there is already.
func serveStore(t testing.TB, db *docstore.DB, o Options) *world {
	t.Helper()
	o.Hosts = append(o.Hosts, "example.com", "memory", "account.example") // those of httptest and of networks in memory
	s, err := New(db, o)
	if err != nil {
		t.Fatal(err)
	}
	return &world{Server: s, db: db, key: wellKnownKey}
}

// newContainer is a server with container c of database db, whose partition key is /pk.
func newContainer(t testing.TB, o Options) (*world, *docstore.Container) {
	t.Helper()
	w := newWorld(t, o)
	return w, w.create(t, "db", `{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}`, nil)
}

// create makes a container as a client does, and its database when there is none.
func (w *world) create(t testing.TB, database, body string, headers map[string]string) *docstore.Container {
	t.Helper()
	if _, err := w.db.Database(database); err != nil {
		w.do(t, "POST", "/dbs", nil, `{"id":"`+database+`"}`).want(t, http.StatusCreated)
	}
	w.do(t, "POST", "/dbs/"+database+"/colls", headers, body).want(t, http.StatusCreated)
	var named struct{ ID string }
	if err := json.Unmarshal([]byte(body), &named); err != nil {
		t.Fatal(err)
	}
	c, err := w.db.Container(database + "/" + named.ID)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// do sends one request and waits for its answer. A header with an empty value is not
// sent, also where it is one that do sets by itself.
func (w *world) do(t testing.TB, method, path string, headers map[string]string, body string) answer {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.Header.Set("x-ms-version", "2020-07-15")
	r.Header.Set("x-ms-date", time.Now().UTC().Format(http.TimeFormat))
	if w.key != "" {
		r.Header.Set("Authorization", sign(t, w.key, r))
	}
	for name, value := range headers {
		r.Header.Set(name, value)
		if value == "" {
			r.Header.Del(name)
		}
	}
	rec := httptest.NewRecorder()
	w.ServeHTTP(rec, r)
	got := received(t, rec)
	checkReplyHeaders(t, r, rec.Code, got)
	return answer{method + " " + path, rec.Code, got, rec.Body.Bytes()}
}

// received are the headers of an answer as clients keep them, which spell the names anew.
func received(t testing.TB, rec *httptest.ResponseRecorder) http.Header {
	t.Helper()
	got := http.Header{}
	for name, values := range rec.Header() {
		if name != strings.ToLower(name) && !spelledByHTTP[name] {
			t.Errorf("the answer has the header %q, want %q", name, strings.ToLower(name))
		}
		got[http.CanonicalHeaderKey(name)] = values
	}
	return got
}

// sign is the authorization header of a request, made as the clients make it.
func sign(t testing.TB, key string, r *http.Request) string {
	t.Helper()
	secret, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		t.Fatal(err)
	}
	path := r.URL.EscapedPath()
	if r.URL.RawQuery != "" { // the path of an item whose id was not escaped
		path += "%3F" + r.URL.RawQuery
	}
	kind, link := signed(t, path)
	mac := hmac.New(sha256.New, secret)
	text := strings.ToLower(r.Method) + "\n" + kind + "\n" + link + "\n" + strings.ToLower(r.Header.Get("x-ms-date")) +
		"\n\n"
	_, _ = mac.Write([]byte(text)) // never fails
	return url.QueryEscape("type=master&ver=1.0&sig=" + base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

// signed is what of a path is signed.
func signed(t testing.TB, escaped string) (kind, link string) {
	t.Helper()
	parts := strings.Split(strings.Trim(escaped, "/"), "/")
	for i, p := range parts {
		var err error
		if parts[i], err = url.PathUnescape(p); err != nil {
			t.Fatal(err)
		}
	}
	n := len(parts)
	if n%2 == 1 {
		return parts[n-1], strings.Join(parts[:n-1], "/")
	}
	link = strings.Join(parts, "/")
	if parts[n-2] == "operations" {
		return "partitionkey", strings.Join(parts[:n-2], "/")
	}
	if parts[n-2] == "offers" {
		link = strings.ToLower(parts[n-1])
	}
	return parts[n-2], link
}

// answer is what the server said.
type answer struct {
	request string
	status  int
	header  http.Header
	body    []byte
}

// want checks the status, and the headers that every answer has, and gives the answer.
func (a answer) want(t testing.TB, status int) answer {
	t.Helper()
	if a.status != status {
		t.Fatalf("%s: status %d, want %d: %s", a.request, a.status, status, a.body)
	}
	for _, name := range []string{"x-ms-request-charge", "x-ms-activity-id"} {
		if a.header.Get(name) == "" {
			t.Fatalf("%s: no header %s", a.request, name)
		}
	}
	return a
}

// refused checks that it is an error with this status, sub-status and code, as clients
// read it, and gives its message.
func (a answer) refused(t testing.TB, status int, sub, code string) string {
	t.Helper()
	a.want(t, status)
	if got := cmp.Or(a.header.Get("x-ms-substatus"), "0"); got != sub { // the service does not send a 0
		t.Fatalf("%s: sub-status %q, want %q: %s", a.request, got, sub, a.body)
	}
	var e struct{ Code, Message string }
	a.into(t, &e)
	if e.Code != code || e.Message == "" || len(e.Message) > 2*4<<10 {
		t.Fatalf("%s: answered %s, want code %q and a message", a.request, a.body, code)
	}
	return e.Message
}

// into decodes the body.
func (a answer) into(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal(a.body, v); err != nil {
		t.Fatalf("%s: body %q: %v", a.request, a.body, err)
	}
}

// object is the body as an object.
func (a answer) object(t testing.TB) map[string]any {
	t.Helper()
	var v map[string]any
	a.into(t, &v)
	return v
}

// list are the resources of a feed: its member with this name, which must have as many
// as _count and the header say.
func (a answer) list(t testing.TB, member string) []map[string]any {
	t.Helper()
	a.want(t, http.StatusOK)
	var feed map[string]json.RawMessage
	a.into(t, &feed)
	var rows []map[string]any
	if err := json.Unmarshal(feed[member], &rows); err != nil {
		t.Fatalf("%s: %s of %s: %v", a.request, member, a.body, err)
	}
	var n int
	if err := json.Unmarshal(feed["_count"], &n); err != nil || n != len(rows) {
		t.Fatalf("%s: _count is %s, want %d", a.request, feed["_count"], len(rows))
	}
	return rows
}

// column is one member of all rows, as text.
func column(t testing.TB, rows []map[string]any, member string) string {
	t.Helper()
	var all []string
	for _, row := range rows {
		text, ok := row[member].(string)
		if !ok {
			t.Fatalf("%s of %v is no string", member, row)
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

func TestTheLogHasEachRequestThatFailed(t *testing.T) {
	var log bytes.Buffer
	w := newWorld(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	w.do(t, "GET", "/dbs/none", nil, "").want(t, http.StatusNotFound)
	if log.Len() > 0 {
		t.Errorf("a client's mistake is in the log: %s", &log)
	}
	for _, err := range []error{errors.New("a cable is loose"), docstore.ErrFailed} {
		log.Reset()
		rec := httptest.NewRecorder()
		newCall(w.Server, rec, httptest.NewRequestWithContext(t.Context(), "GET", "/dbs/db", nil)).sendError(err)
		activity := received(t, rec).Get("x-ms-activity-id")
		for _, part := range []string{"/dbs/db", err.Error(), activity, fmt.Sprint(rec.Code)} {
			if !strings.Contains(log.String(), part) {
				t.Errorf("%v was answered %d, and the log lacks %s: %s", err, rec.Code, part, &log)
			}
		}
	}
}
