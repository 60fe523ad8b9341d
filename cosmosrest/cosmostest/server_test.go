package cosmostest_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"log"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
	"github.com/millrace/changefeed/cosmosrest/faulty"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// In a test, [cosmostest.NewTestServer] does the first lines and the last.
func Example() {
	ctx := context.Background()
	server, err := cosmostest.Start(ctx, cosmostest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	if _, err := server.DB.CreateContainer(ctx, docstore.ContainerSpec{
		ID:    "orders",
		Paths: []string{"/city"},
	}); err != nil {
		log.Fatal(err)
	}

	client, err := cosmos.OpenString(ctx, server.ConnectionString(), cosmos.Options{}) // or any SDK
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	orders, err := client.Container(ctx, "default", "orders")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := orders.Commit(ctx, feed.Key("Oslo"),
		[]feed.Write{{Body: []byte(`{"id":"1","city":"Oslo"}`)}}); err != nil {
		log.Fatal(err)
	}
	stored, err := server.DB.Container("orders")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("documents:", stored.Count())
	// Output: documents: 1
}

func TestATestServerAnswers(t *testing.T) {
	own := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("a", 64)))
	for name, o := range map[string]cosmostest.Options{
		"http":  {},
		"https": {TLS: true},
		"key":   {Options: cosmosrest.Options{Keys: cosmosrest.Keys{Primary: own}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := cosmostest.StartTestServer(t, o)
			if _, err := s.DB.CreateContainer(t.Context(),
				docstore.ContainerSpec{ID: "c", Paths: []string{"/pk"}}); err != nil {
				t.Fatal(err)
			}
			client, err := cosmos.OpenString(t.Context(), s.ConnectionString(), cosmos.Options{Transport: s.Client})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			if _, err := client.Container(t.Context(), "default", "c"); err != nil {
				t.Errorf("open container: %v", err)
			}
			if want := "AccountEndpoint=" + s.URL + "/;AccountKey=" + s.Key + ";"; s.ConnectionString() != want {
				t.Errorf("connection string %q, want %q", s.ConnectionString(), want)
			}
		})
	}
}

func TestATestServerEndsWithItsTest(t *testing.T) {
	var s *cosmostest.Server
	t.Run("test", func(t *testing.T) { s = cosmostest.NewTestServer(t) })
	answer, err := http.Get(s.URL)
	if err == nil {
		answer.Body.Close()
		t.Errorf("%s still answers: %s", s.URL, answer.Status)
	}
	if _, err := s.DB.CreateContainer(t.Context(),
		docstore.ContainerSpec{ID: "c", Paths: []string{"/pk"}}); err == nil ||
		!strings.Contains(err.Error(), docstore.ErrClosed.Error()) {
		t.Errorf("create container: %v, want %v", err, docstore.ErrClosed)
	}
}

// A server that restarts has its address and its data again, and a request in hand has no answer.
func TestAServerRestartsWithItsData(t *testing.T) {
	for _, o := range []cosmostest.Options{{}, {TLS: true}} {
		server := cosmostest.StartTestServer(t, o)
		first, err := server.FreshContainer(t.Context(), "/city")
		if err != nil {
			t.Fatal(err)
		}
		second, err := server.FreshContainer(t.Context())
		if err != nil || first.ID() == second.ID() {
			t.Fatal(first.ID(), second.ID(), err)
		}
		write := feed.Write{Body: []byte(`{"id":"1","city":"Oslo"}`)}
		if _, err := first.Commit(t.Context(), feed.Key("Oslo"), []feed.Write{write}); err != nil {
			t.Fatal(err)
		}
		if err := server.Faults.Add(faulty.Fault{Delay: time.Minute}); err != nil {
			t.Fatal(err)
		}
		answered := make(chan error, 1)
		go func() {
			resp, err := server.Client.Get(server.URL + "/dbs")
			if err == nil {
				resp.Body.Close()
			}
			answered <- err
		}()
		for len(server.Faults.Pending()) > 0 { // until the request waits
			runtime.Gosched()
		}
		if err := server.Restart(time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if err := <-answered; err == nil {
			t.Error("a request in hand was answered")
		}
		client, err := cosmos.OpenString(t.Context(), server.ConnectionString(), cosmos.Options{
			Transport: server.Client,
		})
		if err != nil {
			t.Fatal(err)
		}
		found, err := client.Container(t.Context(), "tests", first.ID())
		if err != nil {
			t.Fatal(err)
		}
		read, err := found.Commit(t.Context(), feed.Key("Oslo"), []feed.Write{{Op: feed.WriteRead, ID: "1"}})
		if err != nil || len(read) != 1 {
			t.Error(read, err)
		}
		client.Close()
	}
}
