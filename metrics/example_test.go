package metrics_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/metrics"
)

// A handler with instruments is a handler: give it to the processor, and read the instruments with any reader of
// OpenTelemetry's SDK, that of Prometheus for instance.
func Example() {
	if err := run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// messaging.client.consumed.messages, unit {message}: 1
}

func run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		return err
	}
	defer db.Close()
	orders, err := db.CreateContainer(ctx, docstore.ContainerSpec{ID: "orders", Paths: []string{"/city"}})
	if err != nil {
		return err
	}
	_, err = orders.Commit(ctx, feed.Key("oslo"), []feed.Write{
		{Op: feed.WriteUpsert, ID: "4711", Body: []byte(`{"id":"4711","city":"oslo"}`)},
	})
	if err != nil {
		return err
	}
	container, err := db.CreateContainer(ctx, docstore.LeaseSpec("leases"))
	if err != nil {
		return err
	}
	leases, err := docstore.NewLeases(ctx, container, "mailer", orders)
	if err != nil {
		return err
	}

	reader := metric.NewManualReader() // in your program the reader of Prometheus, or of a collector
	m, err := metrics.New(metrics.Options{
		Unit: "mailer", Container: "shop/orders", MeterProvider: metric.NewMeterProvider(metric.WithReader(reader)),
	})
	if err != nil {
		return err
	}
	handler := m.Handler(feed.HandlerFunc(func(context.Context, *feed.Batch) error { return nil }))
	p, err := changefeed.New(orders, leases, handler, changefeed.Options{
		Start: feed.FromBeginning(),
		Hooks: changefeed.Hooks{BatchDone: func(context.Context, feed.BatchDone) { stop() }},
	})
	if err != nil {
		return err
	}
	if err := p.Run(ctx); err != nil {
		return err
	}
	return show(reader, "messaging.client.consumed.messages")
}

// show prints a counter.
func show(reader metric.Reader, name string) error {
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		return err
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if counter, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == name {
			fmt.Printf("%s, unit %s: %d\n", m.Name, m.Unit, counter.DataPoints[0].Value)
		}
	}
	return nil
}
