// Package cosmostest is an account of Azure Cosmos DB for a test: package cosmosrest over a
// store in memory, which any SDK can use and which ends with the test.
//
//	server := cosmostest.NewTestServer(t)
//	client, err := azcosmos.NewClientFromConnectionString(server.ConnectionString(), nil)
//
// It is as strict as the service, so that a program that passes here works there; see
// docs/server.md for the differences.
package cosmostest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
)

// Server is a server over a store in memory, at a free port of this machine.
type Server struct {
	// URL is the address of the account, http://127.0.0.1:PORT.
	URL string

	// Key may do everything.
	Key string

	// DB is what the server serves, to fill it and to look into it directly.
	DB *docstore.DB

	// Client trusts the certificate of a server with TLS.
	Client *http.Client

	ctx     context.Context // of the start
	web     http.Server
	serving sync.WaitGroup
}

// Options are the optional settings of a [Server].
type Options struct {
	// Options are those of the protocol. Its primary key must be able to do everything.
	cosmosrest.Options

	// TLS serves https, with a certificate of its own.
	TLS bool
}

// NewTestServer starts a server that ends with the test.
func NewTestServer(t testing.TB) *Server {
	t.Helper()
	return StartTestServer(t, Options{})
}

// StartTestServer is [NewTestServer] for tests that need a server of another kind.
func StartTestServer(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Start starts a server for programs that are no tests, such as examples. Requests that
// wait for a change end with ctx; the server ends with [Server.Close].
func Start(ctx context.Context, o Options) (*Server, error) {
	s, err := start(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("start test server: %w", err)
	}
	return s, nil
}

func start(ctx context.Context, o Options) (*Server, error) {
	o.Ending = ctx
	if o.Keys == (cosmosrest.Keys{}) {
		o.Keys.Primary = cosmosrest.EmulatorKey
	}
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		return nil, err
	}
	s := &Server{ctx: ctx, Key: o.Keys.Primary, DB: db, Client: &http.Client{}}
	if err := s.listen(ctx, o); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// listen serves the store.
func (s *Server) listen(ctx context.Context, o Options) (err error) {
	if err := s.DB.SetRetention(ctx, cosmosrest.DefaultRetention); err != nil {
		return err
	}
	if s.web.Handler, err = cosmosrest.New(s.DB, o.Options); err != nil {
		return err
	}
	if o.TLS {
		if err := s.secure(); err != nil {
			return err
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.URL = "http://" + listener.Addr().String()
	serve := s.web.Serve
	if o.TLS {
		s.URL = "https" + s.URL[len("http"):]
		serve = func(l net.Listener) error { return s.web.ServeTLS(l, "", "") }
	}
	s.serving.Go(func() { _ = serve(listener) }) // ends with Shutdown
	return nil
}

// secure gives the server a certificate, which its client trusts.
func (s *Server) secure() error {
	dir, err := os.MkdirTemp("", "cosmostest-")
	if err != nil {
		return err
	}
	cert, _, err := cosmosrest.Certificate(dir)
	if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
		return err
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(cert.Leaf)
	s.Client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: true}
	s.web.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
	return nil
}

const drain = 10 * time.Second // for requests that are being served when the server ends

// Close ends the server and its store. Requests that are being served have ten seconds to end.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), drain)
	defer cancel()
	s.Client.CloseIdleConnections()
	err := s.web.Shutdown(ctx)
	s.serving.Wait()
	if err := errors.Join(err, s.DB.Close()); err != nil {
		return fmt.Errorf("end test server: %w", err)
	}
	return nil
}

// ConnectionString is what SDKs take instead of address and key.
func (s *Server) ConnectionString() string { return cosmosrest.ConnectionString(s.URL, s.Key) }
