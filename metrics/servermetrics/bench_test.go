package servermetrics_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/cosmosdb/rest"
	"github.com/millrace/changefeed/metrics/servermetrics"
)

// discarded is an answer of which only the status is kept.
type discarded struct {
	header http.Header
	status int
}

func (d *discarded) Header() http.Header         { return d.header }
func (d *discarded) WriteHeader(status int)      { d.status = status }
func (d *discarded) Write(b []byte) (int, error) { return len(b), nil }

// Reads of an item of 1 KB, without a network.
func BenchmarkItemRead(b *testing.B) {
	eachHook(b, func(b *testing.B, server http.Handler, r *http.Request) {
		answer := &discarded{header: http.Header{}}
		for b.Loop() {
			clear(answer.header)
			if server.ServeHTTP(answer, r); answer.status != http.StatusOK {
				b.Fatalf("status is %d", answer.status)
			}
		}
	})
}

// The same, over a connection of this machine.
func BenchmarkItemReadOverHTTP(b *testing.B) {
	eachHook(b, func(b *testing.B, handler http.Handler, r *http.Request) {
		server := httptest.NewServer(handler)
		defer server.Close()
		r.RequestURI, r.URL.Scheme, r.URL.Host = "", "http", server.Listener.Addr().String()
		for b.Loop() {
			a, err := server.Client().Do(r)
			if err != nil {
				b.Fatal(err)
			}
			if _, err = io.Copy(io.Discard, a.Body); err != nil || a.StatusCode != http.StatusOK {
				b.Fatalf("status is %d, %v", a.StatusCode, err)
			}
			if err := a.Body.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// eachHook runs a benchmark without a hook, with a hook that does nothing, and with metrics.
func eachHook(b *testing.B, run func(b *testing.B, server http.Handler, r *http.Request)) {
	m, err := servermetrics.New(servermetrics.Options{
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
	})
	if err != nil {
		b.Fatal(err)
	}
	for _, of := range []struct {
		name string
		hook func(context.Context, cosmosrest.RequestDone)
	}{
		{"without", nil}, {"hook", func(context.Context, cosmosrest.RequestDone) {}}, {"metrics", m.RequestDone},
	} {
		b.Run(of.name, func(b *testing.B) {
			db, err := docstore.Open("", docstore.Options{InMemory: true})
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			server, err := cosmosrest.New(db, cosmosrest.Options{RequestDone: of.hook, Hosts: []string{"example.com"}})
			if err != nil {
				b.Fatal(err)
			}
			r, err := readOf(b.Context(), db)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			run(b, server, r)
		})
	}
}

// readOf writes an item of 1 KB to a store, and returns a request that reads the item.
func readOf(ctx context.Context, db *docstore.DB) (*http.Request, error) {
	if _, err := db.CreateDatabase(ctx, "shop", nil); err != nil {
		return nil, err
	}
	c, err := db.CreateContainer(ctx, docstore.ContainerSpec{Database: "shop", ID: "orders", Paths: []string{"/city"}})
	if err != nil {
		return nil, err
	}
	body := fmt.Appendf(nil, `{"id":"1","city":"oslo","pad":%q}`, strings.Repeat("x", 960))
	if _, err := c.Upsert(ctx, body); err != nil {
		return nil, err
	}
	signer, err := rest.Key(cosmosrest.EmulatorKey)
	if err != nil {
		return nil, err
	}
	date := time.Now().UTC().Format(http.TimeFormat)
	authorization, err := signer.Sign(ctx, http.MethodGet, order, date)
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, order.Raw, http.NoBody)
	r.Header.Set("X-Ms-Date", date)
	r.Header.Set("Authorization", authorization)
	r.Header.Set("X-Ms-Documentdb-Partitionkey", `["oslo"]`)
	return r, err
}
