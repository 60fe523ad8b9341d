package servermetrics_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
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

// Reads of an item of 1 KB, without a network: without a hook, with a hook that does nothing, and with metrics.
func BenchmarkItemRead(b *testing.B) {
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
		b.Run(of.name, func(b *testing.B) { readItems(b, of.hook) })
	}
}

func readItems(b *testing.B, hook func(context.Context, cosmosrest.RequestDone)) {
	check := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	check(err)
	defer db.Close()
	_, err = db.CreateDatabase(b.Context(), "shop", nil)
	check(err)
	c, err := db.CreateContainer(b.Context(),
		docstore.ContainerSpec{Database: "shop", ID: "orders", Paths: []string{"/city"}})
	check(err)
	body := append([]byte(`{"id":"1","city":"oslo","pad":"`), make([]byte, 960)...)
	for i := len(body) - 960; i < len(body); i++ {
		body[i] = 'x'
	}
	_, err = c.Commit(b.Context(), feed.Key("oslo"), []feed.Write{
		{Op: feed.WriteUpsert, ID: "1", Body: append(body, `"}`...)},
	})
	check(err)
	server, err := cosmosrest.New(db, cosmosrest.Options{RequestDone: hook, Hosts: []string{"example.com"}})
	check(err)
	r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, order.Raw, http.NoBody)
	signer, err := rest.Key(cosmosrest.EmulatorKey)
	check(err)
	date := time.Now().UTC().Format(http.TimeFormat)
	authorization, err := signer.Sign(b.Context(), http.MethodGet, order, date)
	check(err)
	r.Header.Set("X-Ms-Date", date)
	r.Header.Set("Authorization", authorization)
	r.Header.Set("X-Ms-Documentdb-Partitionkey", `["oslo"]`)
	answer := &discarded{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(answer.header)
		if server.ServeHTTP(answer, r); answer.status != http.StatusOK {
			b.Fatalf("status is %d", answer.status)
		}
	}
}
