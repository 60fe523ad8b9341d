package cosmosrest

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The SDK for .NET, and many other clients, send a whole request before they read. They must
// get the refusal, and not a reset, which some take for the loss of a region and try again.
func TestARefusalReachesAClientThatIsStillSending(t *testing.T) {
	const readOnly = "cmVhZG9ubHlyZWFkb25seQ=="
	for scheme, start := range map[string]func(http.Handler) *httptest.Server{
		"http":  httptest.NewServer,
		"https": httptest.NewTLSServer,
	} {
		w, _ := newContainer(t, Options{Keys: Keys{Primary: wellKnownKey, PrimaryReadOnly: readOnly}})
		s := wiredServer{start(w)}
		defer s.Close()
		for _, c := range []struct {
			name, key, path string
			size            int
			chunked         bool
			status          int
		}{
			{"4 MB", wellKnownKey, docs, 4 << 20, false, http.StatusRequestEntityTooLarge},
			{"6 MB", wellKnownKey, docs, 6 << 20, false, http.StatusRequestEntityTooLarge},
			{"16 MB", wellKnownKey, docs, 16 << 20, false, http.StatusRequestEntityTooLarge},
			{"64 MB", wellKnownKey, docs, 64 << 20, false, http.StatusRequestEntityTooLarge},
			{"of unknown length", wellKnownKey, docs, 16 << 20, true, http.StatusRequestEntityTooLarge},
			{"wrong key", "c3RyYW5nZXJzdHJhbmdlcg==", docs, 16 << 20, false, http.StatusUnauthorized},
			{"wrong key, small", "c3RyYW5nZXJzdHJhbmdlcg==", docs, 1 << 10, false, http.StatusUnauthorized},
			{"key that may read", readOnly, docs, 16 << 20, false, http.StatusForbidden},
			{"no container", wellKnownKey, "/dbs/db/colls/none/docs", 16 << 20, false, http.StatusNotFound},
			{"no such path", wellKnownKey, "/no/such/path", 16 << 20, false, http.StatusBadRequest},
		} {
			t.Run(scheme+" "+c.name, func(t *testing.T) {
				var body io.Reader = bytes.NewReader(make([]byte, c.size))
				if c.chunked {
					body = io.MultiReader(body)
				}
				r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+c.path, body)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("x-ms-documentdb-partitionkey", `["p"]`)
				r.Header.Set("x-ms-date", time.Now().UTC().Format(http.TimeFormat))
				r.Header.Set("Authorization", sign(t, c.key, r))
				if got, err := s.sendAllThenRead(r); err != nil || got != c.status {
					t.Errorf("status %d, %v: want %d", got, err, c.status)
				}
			})
		}
	}
}

// sendAllThenRead is the status of an answer that is read when the whole request has been
// sent. It has to come soon after that.
func (s wiredServer) sendAllThenRead(r *http.Request) (status int, err error) {
	conn, err := net.Dial("tcp", r.URL.Host)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if r.URL.Scheme == "https" {
		trusted := x509.NewCertPool()
		trusted.AddCert(s.Certificate())
		conn = tls.Client(conn, &tls.Config{RootCAs: trusted, ServerName: "127.0.0.1"})
	}
	if err := r.Write(conn); err != nil {
		return 0, fmt.Errorf("send: %w", err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return 0, err
	}
	a, err := http.ReadResponse(bufio.NewReader(conn), r)
	if err != nil {
		return 0, fmt.Errorf("read: %w", err)
	}
	defer a.Body.Close()
	_, err = io.Copy(io.Discard, a.Body)
	return a.StatusCode, err
}

// A request of a client with a key is refused without its body, because its partition has no
// request units left: the client goes on with its connection.
func TestAShortBodyThatIsNotReadLeavesTheConnection(t *testing.T) {
	for _, chunked := range []bool{false, true} {
		w, _ := newContainer(t, Options{})
		s := httptest.NewServer(w)
		defer s.Close()
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		for range 3 {
			var body io.Reader = strings.NewReader(strings.Repeat("x", 100<<10))
			if chunked {
				body = io.MultiReader(body)
			}
			r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/dbs/db/colls/none/docs", body)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("x-ms-date", time.Now().UTC().Format(http.TimeFormat))
			r.Header.Set("Authorization", sign(t, wellKnownKey, r))
			if err := r.Write(conn); err != nil {
				t.Fatal(err)
			}
			a, err := http.ReadResponse(in, r)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, a.Body)
			a.Body.Close()
			if a.StatusCode != http.StatusNotFound || a.Close {
				t.Errorf("chunked %v: status %d, closed %v: want 404 on a connection that goes on", chunked,
					a.StatusCode, a.Close)
			}
		}
	}
}

// What is dropped is bounded: neither a client that never ends nor one that never goes on
// holds its connection.
func TestTheRestOfARefusedBodyIsBounded(t *testing.T) {
	for _, c := range []struct {
		name string
		send bool
		most time.Duration
	}{{"endless", true, 2 * time.Second}, {"halting", false, 12 * time.Second}} {
		for _, signed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, signed %v", c.name, signed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := newGuardedWorld(t, 100)
					conn := g.dial(t)
					request := g.request(t, "POST", docs, under("p"), "x", signed)
					head := strings.Replace(strings.TrimSuffix(request, "x"), "Content-Length: 1\r\n",
						"Content-Length: 1000000000000\r\n", 1)
					begun := time.Now()
					sent := make(chan int64, 1)
					go func() {
						n, _ := io.WriteString(conn, head)
						total := int64(n)
						for part := make([]byte, 1<<20); c.send; {
							n, err := conn.Write(part)
							if total += int64(n); err != nil {
								break
							}
						}
						sent <- total
					}()
					if a, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || a.StatusCode < 400 ||
						!a.Close {
						t.Fatalf("%v, %v: want a refusal that ends the connection", a, err)
					}
					_, err := io.Copy(io.Discard, conn)
					if err != nil && !errors.Is(err, io.ErrClosedPipe) {
						t.Error(err)
					}
					if took := time.Since(begun); took > c.most {
						t.Errorf("the connection was open for %v, want %v at most", took, c.most)
					}
					if n := <-sent; n > 129<<20 {
						t.Errorf("%d bytes were read, want 128 MB at most", n)
					}
				})
			})
		}
	}
}
