package cosmosrest

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// spelledByHTTP are the names that HTTP itself defines and net/http writes, as it spells
// them; the service's front end spells them so, too.
var spelledByHTTP = map[string]bool{
	"Content-Location": true,
	"Allow":            true, "Cache-Control": true, "Connection": true, "Content-Length": true, "Content-Type": true,
	"Date": true, "Pragma": true, "Transfer-Encoding": true,
}

// The .NET SDK finds x-ms-continuation and three more by their exact spelling. A test that
// asks for them with an http.Client sees nothing of that: it spells all names anew.
func TestHeaderNamesLeaveInLowerCase(t *testing.T) {
	for scheme, start := range map[string]func(http.Handler) *httptest.Server{
		"http":  httptest.NewServer,
		"https": httptest.NewTLSServer,
	} {
		t.Run(scheme, func(t *testing.T) {
			s := wiredServer{start(newWorld(t, Options{}).Server)}
			defer s.Close()
			for _, q := range spellingRequests {
				names := s.rawNames(t, q.method, q.path, q.headers, q.body, q.status)
				for _, name := range names {
					if name != strings.ToLower(name) && !spelledByHTTP[name] {
						t.Errorf("%s %s: header %q, want %q", q.method, q.path, name, strings.ToLower(name))
					}
				}
				for _, want := range append(strings.Fields(q.has), "x-ms-activity-id", "x-ms-request-charge",
					"x-ms-serviceversion") {
					if n := count(names, want); n != 1 {
						t.Errorf("%s %s: header %q comes %d times among %q, want it once", q.method, q.path, want, n,
							names)
					}
				}
			}
		})
	}
}

// spellingRequests are one of every kind, in order; has is what the answer's headers must be among others.
var spellingRequests = []struct {
	method, path string
	headers      map[string]string
	body         string
	status       int
	has          string
}{
	{"GET", "/", nil, "", 200, "Content-Type Content-Length Date Cache-Control"},
	{"POST", "/dbs", nil, `{"id":"db"}`, 201, "etag x-ms-resource-quota x-ms-resource-usage"},
	{"POST", "/dbs", nil, `{"id":"db"}`, 409, "Content-Type"},
	{"GET", "/dbs", nil, "", 200, "x-ms-item-count"},
	{
		"POST", "/dbs/db/colls",
		map[string]string{"x-ms-offer-throughput": "400"},
		`{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}`, 201, "etag",
	},
	{"GET", "/dbs/db/colls/c", map[string]string{"x-ms-documentdb-populatequotainfo": "true"}, "", 200, "etag"},
	{"GET", "/dbs/db/colls/c/pkranges", nil, "", 200, "etag"},
	{"POST", docs, under("p"), `{"id":"a","pk":"p"}`, 201, "etag lsn x-ms-session-token x-ms-content-path"},
	{"POST", docs, under("p"), `{"id":"b","pk":"p"}`, 201, "etag"},
	{"GET", docs + "/a", under("p"), "", 200, "etag lsn x-ms-session-token"},
	{"GET", docs + "/none", under("p"), "", 404, "Content-Type"},
	{"POST", docs, nil, `{"id":"c","pk":"p"}`, 400, "x-ms-substatus"},
	{"PUT", docs + "/a", under("p", "If-Match", `"x"`), `{"id":"a","pk":"p"}`, 412, "lsn"},
	{"PATCH", docs + "/a", under("p"), `[{"op":"set","path":"/n","value":1}]`, 200, "etag"},
	{"GET", docs, map[string]string{"x-ms-max-item-count": "1"}, "", 200, "x-ms-continuation x-ms-item-count"},
	{
		"GET", docs,
		map[string]string{"A-IM": "Incremental feed", "x-ms-max-item-count": "1"},
		"", 200,
		"etag lsn x-ms-item-count x-ms-session-token",
	},
	{"GET", docs, map[string]string{"A-IM": "Incremental feed", "If-None-Match": `"9"`}, "", 304, "etag lsn"},
	{
		"POST", docs, across("x-ms-max-item-count", "1", "x-ms-cosmos-populateindexmetrics", "true"),
		`{"query":"SELECT * FROM c"}`, 200,
		"x-ms-continuation x-ms-documentdb-query-metrics x-ms-cosmos-index-utilization",
	},
	{
		"POST", docs,
		map[string]string{"content-type": wire.QueryType, "x-ms-cosmos-is-query-plan-request": "True"},
		`{"query":"SELECT * FROM c"}`, 200, "Content-Type",
	},
	{
		"POST", docs, under("p", "x-ms-cosmos-is-batch-request", "true", "x-ms-cosmos-batch-atomic", "true"),
		`[{"operationType":"Read","id":"a"}]`, 200, "x-ms-session-token x-ms-item-count",
	},
	{
		"POST", docs, under("p", "x-ms-cosmos-is-batch-request", "true", "x-ms-cosmos-batch-atomic", "false"),
		`[{"operationType":"Read","id":"a"},{"operationType":"Read","id":"b"}]`, 200, "x-ms-session-token",
	},
	{"POST", "/offers", across(), `{"query":"SELECT * FROM root"}`, 200, "x-ms-item-count"},
	{"PATCH", "/dbs", nil, "", 405, "Allow"},
	{"GET", "/nothing/like/it", nil, "", 400, "Content-Type"},
	{"GET", "/dbs/db", map[string]string{"Authorization": "nonsense"}, "", 401, "Content-Type"},
	{"DELETE", docs + "/a", under("p"), "", 204, "lsn"},
	{"DELETE", "/dbs/db", nil, "", 204, ""},
}

// What a client gives is repeated in each answer and in the log.
func TestAnActivityIDIsRepeatedUnlessItIsLong(t *testing.T) {
	w := newWorld(t, Options{})
	const name = "x-ms-activity-id"
	own := strings.Repeat("a", 64)
	if got := w.do(t, "GET", "/dbs", map[string]string{name: own}, "").header.Get(name); got != own {
		t.Errorf("the activity id is %q, want that of the client", got)
	}
	if got := w.do(t, "GET", "/dbs", map[string]string{name: own + "a"}, "").header.Get(name); len(got) != 36 {
		t.Errorf("the activity id is %q, want one of the server", got)
	}
}

func count(names []string, want string) (n int) {
	for _, name := range names {
		if name == want {
			n++
		}
	}
	return n
}

// wiredServer is a server at a port, to see what leaves it byte for byte.
type wiredServer struct{ *httptest.Server }

// rawNames sends a request over HTTP/1.1 and returns the names of the answer's headers as they came.
func (s wiredServer) rawNames(t *testing.T, method, path string, headers map[string]string, body string,
	status int,
) []string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true
	r.Header.Set("x-ms-version", "2020-07-15")
	r.Header.Set("x-ms-date", time.Now().UTC().Format(http.TimeFormat))
	r.Header.Set("Authorization", sign(t, wellKnownKey, r))
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	raw := s.roundTrip(t, r)
	head, _, _ := bytes.Cut(raw, []byte("\r\n\r\n"))
	lines := strings.Split(string(head), "\r\n")
	answer, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(raw)), r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != status {
		t.Errorf("%s %s: %s, want %d", method, path, raw, status)
	}
	var names []string
	for _, line := range lines[1:] {
		name, _, _ := strings.Cut(line, ":")
		names = append(names, name)
	}
	return names
}

// roundTrip is the answer to a request, byte for byte.
func (s wiredServer) roundTrip(t *testing.T, r *http.Request) []byte {
	t.Helper()
	conn, err := net.Dial("tcp", r.URL.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if r.URL.Scheme == "https" {
		trusted := x509.NewCertPool()
		trusted.AddCert(s.Certificate())
		conn = tls.Client(conn, &tls.Config{RootCAs: trusted, ServerName: "127.0.0.1"})
	}
	if err := r.Write(conn); err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
