// Package cosmostest provides an account of Azure Cosmos DB for your tests: package cosmosrest over a store in
// memory. You can use any SDK with this account, and the account ends with the test.
//
//	server := cosmostest.NewTestServer(t)
//	client, err := azcosmos.NewClientFromConnectionString(server.ConnectionString(), nil)
//
// The server is as strict as the service, so a program that works here works there; see docs/server.md for the
// differences.
package cosmostest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/cosmosrest/faulty"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// Server is a server over a store in memory. The server listens on a free port of this machine.
type Server struct {
	// URL is the address of the account, http://127.0.0.1:PORT.
	URL string

	// Key is the account's key. The key permits all requests.
	Key string

	// DB is the store that the server serves. You can fill and read the store directly.
	DB *docstore.DB

	// Faults makes the next requests fail: see package faulty. Programs in other languages order faults at
	// [faulty.ControlPath] of the URL.
	Faults *faulty.Injector

	// Client is an HTTP client. If you set Options.TLS, Client trusts the server's certificate.
	Client *http.Client

	ctx     context.Context // of the start
	web     *http.Server
	handler http.Handler
	secured *tls.Config // nil without TLS
	serving sync.WaitGroup
	fresh   atomic.Int64 // number of containers of FreshContainer
}

// Options are the optional settings of a [Server].
type Options struct {
	// Options are the options of the protocol. If you set keys, the primary key must be a read-write key.
	cosmosrest.Options

	// TLS makes the server serve https, with a certificate of its own.
	TLS bool
}

// NewTestServer starts a server that ends with the test.
func NewTestServer(t testing.TB) *Server {
	t.Helper()
	return StartTestServer(t, Options{})
}

// StartTestServer is [NewTestServer] with options.
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

// Start starts a server for programs that are not tests, such as examples. If ctx ends, requests that wait for a
// change end. To stop the server, call [Server.Close].
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

// listen starts to serve the store.
func (s *Server) listen(ctx context.Context, o Options) (err error) {
	if err := s.DB.SetRetention(ctx, cosmosrest.DefaultRetention); err != nil {
		return err
	}
	server, err := cosmosrest.New(s.DB, o.Options)
	if err != nil {
		return err
	}
	s.Faults = faulty.New(server)
	s.handler = s.Faults.Control(s.Key)
	if o.TLS {
		if err := s.secure(); err != nil {
			return err
		}
	}
	address, err := s.serveAt("127.0.0.1:0")
	if err != nil {
		return err
	}
	s.URL = "http://" + address
	if o.TLS {
		s.URL = "https://" + address
	}
	return nil
}

// serveAt serves at an address, and returns it with its port.
func (s *Server) serveAt(address string) (string, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return "", err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true) // which the Rust SDK uses
	web := &http.Server{Handler: s.handler, TLSConfig: s.secured, Protocols: protocols}
	s.web = web
	s.serving.Go(func() { // ends with Shutdown or Close
		if s.secured != nil {
			_ = web.ServeTLS(listener, "", "")
		} else {
			_ = web.Serve(listener)
		}
	})
	return listener.Addr().String(), nil
}

// Restart ends the server at once, as a crash does, and starts it again after a time, at the same address and with the
// same data. All connections are closed, and requests in hand have no answer.
func (s *Server) Restart(after time.Duration) error {
	parsed, err := url.Parse(s.URL)
	if err != nil {
		return fmt.Errorf("restart test server: %w", err)
	}
	_ = s.web.Close() // an error is that of a connection that has gone
	s.serving.Wait()
	timer := time.NewTimer(after)
	defer timer.Stop()
	<-timer.C
	if _, err := s.serveAt(parsed.Host); err != nil {
		return fmt.Errorf("restart test server: %w", err)
	}
	return nil
}

// FreshContainer creates a container with a name that no other has, in the database tests, with one path or several of
// the partition key; without a path the path is /pk. To split or merge its partitions, use the container's methods.
func (s *Server) FreshContainer(ctx context.Context, paths ...string) (*docstore.Container, error) {
	if len(paths) == 0 {
		paths = []string{"/pk"}
	}
	const database = "tests"
	_, err := s.DB.CreateDatabase(ctx, database, nil)
	if err != nil && !errors.Is(err, feed.ErrConflict) {
		return nil, err
	}
	name := fmt.Sprintf("container-%d", s.fresh.Add(1))
	return s.DB.CreateContainer(ctx, docstore.ContainerSpec{Database: database, ID: name, Paths: paths})
}

// secure creates the server's certificate, and makes its client trust the certificate.
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
	s.secured = &tls.Config{Certificates: []tls.Certificate{cert}}
	return nil
}

const drain = 10 * time.Second // time for running requests to finish when the server ends

// Close ends the server and its store. Running requests have ten seconds to finish.
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

// ConnectionString returns the connection string, which SDKs accept instead of address and key.
func (s *Server) ConnectionString() string { return cosmosrest.ConnectionString(s.URL, s.Key) }
