package cosmosrest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed/docstore"
)

// TestServer is a server for one test, over a store in memory.
type TestServer struct {
	// URL is the address of the account, http://127.0.0.1:PORT.
	URL string

	// Key may do everything.
	Key string

	// DB is what the server serves, to fill it and to look into it directly.
	DB *docstore.DB

	// Client trusts the server's certificate, if it has one.
	Client *http.Client
}

// TestOptions are the optional settings of [StartTestServer].
type TestOptions struct {
	// Options are those of the server. Its primary key must be able to do everything.
	Options

	// TLS serves https, with a certificate of its own.
	TLS bool
}

// Test is the part of [testing.TB] that a test server needs.
type Test interface {
	Helper()
	Context() context.Context
	Cleanup(f func())
	Fatalf(format string, args ...any)
}

const testServerDrain = 10 * time.Second

// NewTestServer starts a server that ends with the test:
//
//	server := cosmosrest.NewTestServer(t)
//	client, err := azcosmos.NewClientFromConnectionString(server.ConnectionString(), nil)
func NewTestServer(t Test) *TestServer {
	t.Helper()
	return StartTestServer(t, TestOptions{})
}

// StartTestServer is [NewTestServer] for tests that need a server of another kind.
func StartTestServer(t Test, o TestOptions) *TestServer {
	t.Helper()
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatalf("start test server: %v", err)
	}
	if err := db.SetRetention(t.Context(), DefaultRetention); err != nil {
		t.Fatalf("start test server: %v", err)
	}
	o.Ending = t.Context()
	handler, err := New(db, o.Options)
	if err != nil {
		t.Fatalf("start test server: %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("start test server: %v", err)
	}
	s := &TestServer{URL: "http://" + listener.Addr().String(), Key: o.Keys.orEmulator().Primary, DB: db, Client: &http.Client{}}
	web := &http.Server{Handler: handler}
	serve := web.Serve
	if o.TLS {
		if web.TLSConfig, err = s.secure(); err != nil {
			t.Fatalf("start test server: %v", err)
		}
		serve = func(l net.Listener) error { return web.ServeTLS(l, "", "") }
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = serve(listener) }) // ends with Shutdown
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), testServerDrain)
		defer cancel()
		s.Client.CloseIdleConnections()
		err := web.Shutdown(ctx)
		serving.Wait()
		if cerr := db.Close(); err != nil || cerr != nil {
			t.Fatalf("end test server: %v, %v", err, cerr)
		}
	})
	return s
}

// secure gives the server a certificate, which its client trusts.
func (s *TestServer) secure() (*tls.Config, error) {
	cert, err := newCertificate(time.Now())
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(cert.Leaf)
	s.URL = "https" + s.URL[len("http"):]
	s.Client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: true}
	return &tls.Config{Certificates: []tls.Certificate{cert}}, nil
}

// ConnectionString is what SDKs take instead of address and key.
func (s *TestServer) ConnectionString() string {
	return ConnectionString(s.URL, s.Key)
}

// ConnectionString is the form of an address and a key that SDKs take.
func ConnectionString(url, key string) string {
	return "AccountEndpoint=" + strings.TrimSuffix(url, "/") + "/;AccountKey=" + key + ";"
}
