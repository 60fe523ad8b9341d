package cosmostest_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"log"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cosmos"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/cosmosrest/cosmostest"
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
