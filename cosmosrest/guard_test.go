package cosmosrest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/internal/proof/memnet"
)

// guardedWorld is a server with a guard on a network in memory.
type guardedWorld struct {
	*world
	at *memnet.Listener
}

func newGuardedWorld(t *testing.T, connections int) *guardedWorld {
	t.Helper()
	w, _ := newContainer(t, Options{})
	return w.guarded(t, connections, w)
}

func (w *world) guarded(t *testing.T, connections int, handler http.Handler) *guardedWorld {
	t.Helper()
	g := &guardedWorld{world: w, at: memnet.Listen()}
	guard := NewGuard(connections)
	web := &http.Server{Handler: handler}
	guard.Protect(web)
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(guard.Listener(g.at)) }()
	t.Cleanup(func() {
		_ = web.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve ended with %v", err)
		}
	})
	return g
}

// dial connects, and leaves the connection until the test ends.
func (g *guardedWorld) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := g.at.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// request is the text of a request, signed or not.
func (g *guardedWorld) request(t *testing.T, method, path string, headers map[string]string, body string,
	sign bool,
) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://memory"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("x-ms-date", time.Now().UTC().Format(http.TimeFormat))
	if sign {
		r.Header.Set("Authorization", authorization(t, r))
	}
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	var text bytes.Buffer
	if err := r.Write(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func authorization(t *testing.T, r *http.Request) string { return sign(t, wellKnownKey, r) }

// ask sends a request on a connection and reads the answer.
func ask(t *testing.T, conn net.Conn, request string) *http.Response {
	t.Helper()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatalf("send: %v", err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("read answer: %v", err)
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatalf("read answer: %v", err)
	}
	answer.Body = io.NopCloser(bytes.NewReader(body))
	return answer
}

// ended reads until a connection is closed, and tells when.
func ended(t *testing.T, conn net.Conn) time.Duration {
	t.Helper()
	begun := time.Now()
	_, _ = io.Copy(io.Discard, conn) // closed or reset, it has ended
	return time.Since(begun)
}

func TestStrangersShutNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuardedWorld(t, 100)
		signed := g.request(t, "GET", "/dbs/db", nil, "", true)
		kept := g.dial(t)
		if a := ask(t, kept, signed); a.StatusCode != http.StatusOK {
			t.Fatalf("status %d", a.StatusCode)
		}
		poll := g.dial(t)
		if _, err := io.WriteString(poll, g.request(t, "GET", "/dbs/db/colls/c/docs", map[string]string{
			"A-IM": "Incremental Feed", "x-ms-documentdb-partitionkeyrangeid": "0",
			"x-ms-cosmos-max-polling-interval": "20000",
		}, "", true)); err != nil {
			t.Fatal(err)
		}
		polled := make(chan string, 1)
		go func() {
			a, err := http.ReadResponse(bufio.NewReader(poll), nil)
			if err != nil {
				polled <- err.Error()
				return
			}
			polled <- a.Status
		}()
		synctest.Wait()
		for i := range 1000 {
			conn := g.dial(t)
			switch i % 3 { // the third says nothing
			case 0:
				// its header is never whole; it may be closed already
				_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n")
			case 1:
				// nor does it read the answer
				go func() { _, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n") }()
			}
			synctest.Wait()
		}
		if a := ask(t, g.dial(t), signed); a.StatusCode != http.StatusOK {
			t.Errorf("a new client with a key got %d", a.StatusCode)
		}
		if a := ask(t, kept, signed); a.StatusCode != http.StatusOK {
			t.Errorf("the client who was there got %d", a.StatusCode)
		}
		if got := <-polled; got != "304 Not Modified" {
			t.Errorf("the poll got %s: want 304 when its time is up", got)
		}
	})
}

func TestAStrangersRequestEndsItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuardedWorld(t, 100)
		for _, request := range []string{
			g.request(t, "GET", "/", nil, "", false),
			g.request(t, "GET", "/dbs/db", map[string]string{"Authorization": "type=master&ver=1.0&sig=AAAA"}, "",
				false),
			g.request(t, "GET", "/no%2Fsuch//path", nil, "", false),
			g.request(t, "POST", "/dbs/db/colls/c/docs", nil, strings.Repeat("x", 1<<20), false),
		} {
			conn := g.dial(t)
			go func() { _, _ = io.WriteString(conn, request) }() // the server need not read it all
			a, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || a.StatusCode < 400 || !a.Close {
				t.Errorf("%.60q: %v, %v: want a refusal that ends the connection", request, a, err)
				continue
			}
			if took := ended(t, conn); took > time.Second {
				t.Errorf("%.60q: the connection was open for %v more", request, took)
			}
		}
		conn := g.dial(t)
		for range 2 { // a client with a key keeps its connection, also when what it asks for is refused
			if a := ask(t, conn, g.request(t, "GET", "/dbs/nosuch", nil, "",
				true)); a.StatusCode != http.StatusNotFound || a.Close {
				t.Errorf("status %d, closed %v: want 404 on a connection that goes on", a.StatusCode, a.Close)
			}
		}
	})
}

func TestSlowClientsAreEnded(t *testing.T) {
	for _, c := range []struct {
		name, request string
		want          time.Duration
		status        int // 0 is none
	}{
		{"silent", "", guardHeader, 0},
		{"half a header", "GET / HTTP/1.1\r\nHost: x\r\n", guardHeader, 0},
		{"half a body", "signed", 10 * time.Second, http.StatusRequestTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGuardedWorld(t, 100)
				conn := g.dial(t)
				request := c.request
				if request == "signed" {
					request = strings.TrimSuffix(g.request(t, "POST", "/dbs/db/colls/c/docs", nil, `{"id":"1"}`, true),
						"}")
				}
				begun := time.Now()
				if _, err := io.WriteString(conn, request); err != nil {
					t.Fatal(err)
				}
				a, err := http.ReadResponse(bufio.NewReader(conn), nil)
				switch {
				case c.status == 0 && err == nil:
					t.Errorf("answer %d, want none", a.StatusCode)
				case c.status != 0 && (err != nil || a.StatusCode != c.status || !a.Close):
					t.Errorf("answer %v, %v: want %d that ends the connection", a, err, c.status)
				}
				if took := time.Since(begun); took < c.want || took > c.want+time.Second {
					t.Errorf("it took %v, want %v", took, c.want)
				}
			})
		})
	}
}

// page is a handler with an answer of 4 MB.
func page(failed chan<- error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write(make([]byte, 4<<20))
		failed <- err
	})
}

func TestALargePageMayBeReadSlowlyButNotKept(t *testing.T) {
	for _, c := range []struct {
		name string
		each int // bytes that are read at once, each second
		ok   bool
	}{{"steady", 64 << 10, true}, {"a trickle", 100, false}, {"nothing", 0, false}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				failed := make(chan error, 1)
				g := newWorld(t, Options{}).guarded(t, 100, page(failed))
				conn := g.dial(t)
				if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				stop := make(chan struct{})
				go func() {
					defer close(stop)
					b := make([]byte, max(c.each, 1))
					for range time.Tick(time.Second) {
						if c.each == 0 && time.Since(begun) < time.Hour {
							continue
						}
						if _, err := io.ReadFull(conn, b); err != nil {
							return
						}
					}
				}()
				err := <-failed
				switch {
				case c.ok && err != nil:
					t.Errorf("the page ended after %v with %v", time.Since(begun), err)
				case !c.ok && (err == nil || time.Since(begun) > writePause+time.Second):
					t.Errorf("the page ended after %v with %v: want an error after %v", time.Since(begun), err,
						writePause)
				}
				conn.Close()
				<-stop
			})
		})
	}
}

func TestAFullServerPartsWithWhoIsMissedLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuardedWorld(t, 16)
		signed := g.request(t, "GET", "/dbs/db", nil, "", true)
		var idle []net.Conn
		for range 20 { // more than there is room for
			conn := g.dial(t)
			if a := ask(t, conn, signed); a.StatusCode != http.StatusOK {
				t.Fatalf("status %d", a.StatusCode)
			}
			idle = append(idle, conn)
			time.Sleep(time.Second)
		}
		for i, conn := range idle {
			gone := make(chan struct{})
			go func() {
				_, _ = conn.Read(make([]byte, 1))
				close(gone)
			}()
			synctest.Wait()
			select {
			case <-gone:
				if i >= 4 {
					t.Errorf("connection %d was closed, which others were idle for longer than", i)
				}
			default:
				if i < 4 {
					t.Errorf("connection %d is open, though it was idle for longest", i)
				}
			}
		}
	})
}

// A stranger who sends requests and takes no answer would hold a place for as long as an answer may take.
func TestStrangersWhoTakeNoRefusalMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuardedWorld(t, 16)
		unsigned := g.request(t, "POST", docs, nil, `{"id":"1"}`, false)
		for range leastStrangers { // and none sends what it has announced
			if _, err := io.WriteString(g.dial(t), strings.TrimSuffix(unsigned, `{"id":"1"}`)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		begun := time.Now()
		if a := ask(t, g.dial(t), g.request(t, "GET", "/dbs/db", nil, "", true)); a.StatusCode != http.StatusOK {
			t.Errorf("a client with a key got %d", a.StatusCode)
		}
		if took := time.Since(begun); took > 2*strangerPatience {
			t.Errorf("a client with a key waited for %v", took)
		}
	})
}

// What a request does with its body may take longer than the body may take to come.
func TestARequestMayTakeLongerThanItsBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		g := newWorld(t, Options{}).guarded(t, 100, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			in := wire.NewRequest(rw, r)
			if _, err := in.Body(wire.MaxItem); err != nil {
				ended <- err
				return
			}
			select {
			case <-r.Context().Done():
				ended <- context.Cause(r.Context())
			case <-time.After(time.Minute):
				ended <- nil
			}
		}))
		for _, body := range []string{"", `{"id":"1"}`} {
			ask(t, g.dial(t), g.request(t, "POST", "/", nil, body, false))
			if err := <-ended; err != nil {
				t.Errorf("the request with the body %q was ended: %v", body, err)
			}
		}
	})
}

// Whoever finds no place must learn it at once, and not wait for an answer that never comes.
func TestAConnectionForWhichThereIsNoPlaceIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuardedWorld(t, 1)
		busy := g.dial(t)
		if a := ask(t, busy, g.request(t, "GET", "/dbs/db", nil, "", true)); a.StatusCode != http.StatusOK {
			t.Fatalf("status %d", a.StatusCode)
		}
		poll := g.request(t, "GET", "/dbs/db/colls/c/docs", map[string]string{
			"A-IM": "Incremental Feed", "x-ms-documentdb-partitionkeyrangeid": "0",
			"x-ms-cosmos-max-polling-interval": "20000",
		}, "", true)
		if _, err := io.WriteString(busy, poll); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if took := ended(t, g.dial(t)); took > 0 {
			t.Errorf("the connection was closed after %v", took)
		}
	})
}

func TestAClientWithAKeyIsKnownBehindTLS(t *testing.T) {
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(version, func(t *testing.T) {
			w, _ := newContainer(t, Options{})
			cert, path, err := Certificate(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			pem, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			trusted := x509.NewCertPool()
			trusted.AppendCertsFromPEM(pem)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			guard := NewGuard(100)
			web := &http.Server{Handler: w, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}}
			guard.Protect(web)
			ended := make(chan error, 1)
			go func() { ended <- web.ServeTLS(guard.Listener(l), "", "") }()
			defer func() {
				_ = web.Close()
				<-ended
			}()
			client := &http.Client{Transport: &http.Transport{
				TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: version == "HTTP/2.0",
			}}
			defer client.CloseIdleConnections()
			for _, c := range []struct {
				signed bool
				status int
			}{{false, http.StatusUnauthorized}, {true, http.StatusOK}} {
				r, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+l.Addr().String()+"/dbs/db", nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("x-ms-date", time.Now().UTC().Format(http.TimeFormat))
				if c.signed {
					r.Header.Set("Authorization", authorization(t, r))
				}
				a, err := client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, a.Body) // or the connection would not be kept
				a.Body.Close()
				if a.StatusCode != c.status || a.Proto != version {
					t.Errorf("signed %v: %s %d, want %s %d", c.signed, a.Proto, a.StatusCode, version, c.status)
				}
			}
			guard.mu.Lock()
			defer guard.mu.Unlock()
			for c := range guard.open {
				if c.known.Load() && c.place == nil {
					return
				}
			}
			t.Errorf("of %d connections none is known", len(guard.open))
		})
	}
}
