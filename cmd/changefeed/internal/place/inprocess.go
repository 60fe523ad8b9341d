package place

import (
	"bytes"
	"io"
	"net/http"
	"path/filepath"

	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/internal/cosmosdb/rest"
)

// The store in a directory is an account, too: a server within this process answers the requests. So commands about
// documents have one way to a directory, to changefeed serve and to an account, and a directory has the same SQL.

// storeAccount returns the account of an existing store. Its server is lenient, because the user of a directory has no
// other client that could run a query which needs a plan.
func (o *Opener) storeAccount(a Address) (*Account, error) {
	dir := filepath.Clean(a.Dir)
	if found := o.accounts[dir]; found != nil {
		return found, nil
	}
	db, err := o.openExisting(a)
	if err != nil {
		return nil, err
	}
	server, err := cosmosrest.New(db, cosmosrest.Options{Lenient: true, Throughput: cosmosrest.Unlimited})
	if err != nil {
		return nil, err
	}
	signer, err := rest.Key(cosmosrest.EmulatorKey)
	if err != nil {
		return nil, err
	}
	opened := &Account{
		credentials: credentials{Endpoint: "http://localhost", key: cosmosrest.EmulatorKey},
		signer:      signer, http: &http.Client{Transport: inProcess{server}},
	}
	o.accounts[dir] = opened
	return opened, nil
}

// inProcess sends requests to a handler of this process.
type inProcess struct{ handler http.Handler }

// RoundTrip implements [http.RoundTripper].
func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	got := r.Clone(r.Context())
	if got.Body == nil {
		got.Body = http.NoBody
	}
	got.Host, got.RequestURI, got.RemoteAddr = r.URL.Host, r.URL.RequestURI(), "127.0.0.1:0"
	w := &answer{header: http.Header{}, status: http.StatusOK}
	p.handler.ServeHTTP(w, got)
	header := http.Header{}
	for name, values := range w.header { // a connection would make the names canonical
		header[http.CanonicalHeaderKey(name)] = values
	}
	return &http.Response{
		StatusCode: w.status, Status: http.StatusText(w.status), Proto: r.Proto, ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()), Request: r,
	}, nil
}

// answer is the answer of a handler, in memory.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements [http.ResponseWriter].
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements [http.ResponseWriter].
func (a *answer) WriteHeader(status int) { a.status = status }

// Write implements [http.ResponseWriter].
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }
