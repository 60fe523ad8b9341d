package servermetrics_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/metrics/servermetrics"
)

// The server gets a hook, and the store is observed. Read the instruments with any reader of OpenTelemetry's SDK, that
// of Prometheus for instance.
func Example() {
	if err := run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// changefeed.server.refused, unit {request}: 1
}

func run(ctx context.Context) error {
	reader := metric.NewManualReader() // in your program the reader of Prometheus, or of a collector
	m, err := servermetrics.New(servermetrics.Options{
		MeterProvider: metric.NewMeterProvider(metric.WithReader(reader)),
	})
	if err != nil {
		return err
	}
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		return err
	}
	defer db.Close()
	stop, err := m.Observe(db)
	if err != nil {
		return err
	}
	defer stop()
	server, err := cosmosrest.New(db, cosmosrest.Options{RequestDone: m.RequestDone})
	if err != nil {
		return err
	}

	// A client without a key.
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/dbs", http.NoBody)
	server.ServeHTTP(httptest.NewRecorder(), r)
	return show(ctx, reader, "changefeed.server.refused")
}

// show prints a counter.
func show(ctx context.Context, reader metric.Reader, name string) error {
	var all metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &all); err != nil {
		return err
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if counter, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == name {
			sum := int64(0)
			for _, point := range counter.DataPoints { // one for each status code
				sum += point.Value
			}
			fmt.Printf("%s, unit %s: %d\n", m.Name, m.Unit, sum)
		}
	}
	return nil
}
