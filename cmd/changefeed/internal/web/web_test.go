package web

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/proof/memnet"
)

// inMemory is serve on a network in memory, in virtual time.
type inMemory struct {
	at     *memnet.Listener
	client *http.Client
	stop   context.CancelFunc // what SIGTERM does
	ended  chan error
}

func serveInMemory(t *testing.T, handler func(ctx context.Context) http.Handler) *inMemory {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	s := &inMemory{at: memnet.Listen(), stop: stop, ended: make(chan error, 1)}
	s.client = &http.Client{Transport: &http.Transport{DialContext: s.at.DialContext}}
	guard := cosmosrest.NewGuard(16)
	all := Sites{{listener: guard.Listener(s.at)}}
	guard.Protect(&all[0].Server)
	all[0].Server.Handler = handler(ctx)
	go func() { s.ended <- all.Serve(ctx, func() error { return nil }) }()
	t.Cleanup(func() {
		stop()
		s.client.CloseIdleConnections()
	})
	return s
}

// ask sends a request, and gives its status when there is one.
func (s *inMemory) ask(t *testing.T, method, path, body string, header map[string]string) <-chan int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://memory"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	signRequest(t, r)
	for name, value := range header {
		r.Header.Set(name, value)
	}
	status := make(chan int, 1)
	go func() {
		answer, err := s.client.Do(r)
		if err != nil {
			status <- 0
			return
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		status <- answer.StatusCode
	}()
	return status
}

// signRequest signs as clients do, with the well-known key.
func signRequest(t *testing.T, r *http.Request) {
	t.Helper()
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	kind, link := parts[len(parts)-1], strings.Join(parts[:len(parts)-1], "/")
	if len(parts)%2 == 0 {
		kind, link = parts[len(parts)-2], strings.Join(parts, "/")
	}
	date := time.Now().UTC().Format(http.TimeFormat)
	key, err := base64.StdEncoding.DecodeString(cosmosrest.EmulatorKey)
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s\n%s\n%s\n%s\n\n", strings.ToLower(r.Method), kind, link, strings.ToLower(date))
	r.Header.Set("x-ms-date", date)
	r.Header.Set("Authorization",
		url.QueryEscape("type=master&ver=1.0&sig="+base64.StdEncoding.EncodeToString(mac.Sum(nil))))
}

// shopHandler is a server over a store with a container shop/orders.
func shopHandler(t *testing.T) func(ctx context.Context) http.Handler {
	return func(ctx context.Context) http.Handler {
		db, err := docstore.Open("", docstore.Options{InMemory: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		if _, err := db.CreateDatabase(ctx, "shop", nil); err != nil {
			t.Fatal(err)
		}
		if _, err := db.CreateContainer(ctx, docstore.ContainerSpec{
			Database: "shop", ID: "orders",
			Paths: []string{"/pk"},
		}); err != nil {
			t.Fatal(err)
		}
		server, err := cosmosrest.New(db, cosmosrest.Options{Ending: ctx, Hosts: []string{"memory"}})
		if err != nil {
			t.Fatal(err)
		}
		return server
	}
}

func TestPollsEndWithTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serveInMemory(t, shopHandler(t))
		begun := time.Now()
		poll := s.ask(t, "GET", "/dbs/shop/colls/orders/docs", "", map[string]string{
			"A-IM": "Incremental Feed", "x-ms-documentdb-partitionkeyrangeid": "0",
			"x-ms-cosmos-max-polling-interval": "20000",
		})
		synctest.Wait() // it waits for a change
		s.stop()
		if status := <-poll; status != http.StatusNotModified {
			t.Errorf("the poll got %d, want 304", status)
		}
		if err := <-s.ended; err != nil || time.Since(begun) > time.Second {
			t.Errorf("serve ended after %v with %v: want it to end at once, well", time.Since(begun), err)
		}
	})
}

func TestRequestsAreFinishedBeforeTheServerEnds(t *testing.T) {
	for _, c := range []struct {
		name        string
		takes, want time.Duration
		status      int // 0 is none
	}{
		{"short", 3 * time.Second, 3 * time.Second, http.StatusOK},
		{"long", time.Hour, drainTime, http.StatusTeapot},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serveInMemory(t, func(context.Context) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						select {
						case <-time.After(c.takes):
						case <-r.Context().Done():
							w.WriteHeader(http.StatusTeapot)
						}
					})
				})
				request := s.ask(t, "PUT", "/dbs/shop", "", nil)
				synctest.Wait()
				begun := time.Now()
				s.stop()
				synctest.Wait()
				if status := <-s.ask(t, "GET", "/dbs/shop", "", nil); status != 0 {
					t.Errorf("a request behind the signal got %d: want no connection", status)
				}
				if status := <-request; status != c.status {
					t.Errorf("the request got %d, want %d", status, c.status)
				}
				if err := <-s.ended; err != nil || time.Since(begun).Round(time.Second) != c.want {
					t.Errorf("serve ended after %v with %v: want %v, well", time.Since(begun), err, c.want)
				}
			})
		})
	}
}

func TestConnectionsLeaveTheStoreItsDescriptors(t *testing.T) {
	for _, c := range []struct {
		limit, store int64
		want         int
	}{
		{0, 1014, mostConnections},
		{1 << 20, 1014, mostConnections},
		{4096, 1014, 4096 - 1014 - spareDescriptors},
		{256, 128, 64},
		{100, 50, leastConnections},
	} {
		if got := connectionsWithin(c.limit, c.store); got != c.want {
			t.Errorf("%d connections with %d descriptors, of which the store needs %d: want %d", got, c.limit, c.store,
				c.want)
		}
	}
}

// Who connects and ends the connection at once is no faulty client: doctor does that.
func TestAConnectionWithoutAWordIsNotLogged(t *testing.T) {
	for level, want := range map[slog.Level]int{slog.LevelInfo: 1, slog.LevelDebug: 2} {
		synctest.Test(t, func(t *testing.T) {
			var out strings.Builder
			text := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})
			log := slog.NewLogLogger(&SparseLog{Handler: text}, slog.LevelInfo)
			log.Print("http: TLS handshake error from 127.0.0.1:1: EOF")
			time.Sleep(logPause)
			log.Print("http: TLS handshake error from 127.0.0.1:1: remote error: tls: bad certificate")
			if got := strings.Count(out.String(), "\n"); got != want {
				t.Errorf("at %v: %d lines, want %d:\n%s", level, got, want, &out)
			}
		})
	}
}

func TestManyBadClientsAreFewLinesOfTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		log := slog.NewLogLogger(&SparseLog{Handler: slog.NewTextHandler(&out, nil)}, slog.LevelInfo)
		for range 3 {
			for range 1000 {
				log.Print("TLS handshake error")
			}
			time.Sleep(logPause)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 3 || strings.Contains(lines[0], "left_out") || !strings.Contains(lines[2], "left_out=999") {
			t.Errorf("got %q: want three lines, the last two with how many were left out", lines)
		}
	})
}
