package metrics_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/metrics"
)

// Prometheus reads the instruments through the exporter of OpenTelemetry. Serve the registry with promhttp.HandlerFor;
// the alarms and the dashboards in the directory deploy read these names.
func Example_prometheus() {
	if err := export(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// changefeed_instance_healthy_ratio: 0
}

func export(ctx context.Context) error {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		return err
	}
	m, err := metrics.New(metrics.Options{
		Unit: "mailer", Container: "shop/orders", MeterProvider: metric.NewMeterProvider(metric.WithReader(reader)),
	})
	if err != nil {
		return err
	}
	p, err := newMailer(ctx, m)
	if err != nil {
		return err
	}
	stop, err := m.Observe(p)
	if err != nil {
		return err
	}
	families, err := registry.Gather() // as Prometheus does; the processor does not run yet
	if err != nil {
		return err
	}
	for _, family := range families {
		if family.GetName() == "changefeed_instance_healthy_ratio" {
			fmt.Printf("%s: %v\n", family.GetName(), family.GetMetric()[0].GetGauge().GetValue())
		}
	}
	return stop()
}

// newMailer makes a processor, here on a store in memory.
func newMailer(ctx context.Context, m *metrics.Metrics) (*changefeed.Processor, error) {
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		return nil, err
	}
	defer db.Close()
	orders, err := db.CreateContainer(ctx, docstore.ContainerSpec{ID: "orders", Paths: []string{"/city"}})
	if err != nil {
		return nil, err
	}
	container, err := db.CreateContainer(ctx, docstore.LeaseSpec("leases"))
	if err != nil {
		return nil, err
	}
	leases, err := docstore.NewLeases(ctx, container, "mailer", orders)
	if err != nil {
		return nil, err
	}
	handler := m.Handler(feed.HandlerFunc(func(context.Context, *feed.Batch) error { return nil }))
	return changefeed.New(orders, leases, handler, changefeed.Options{})
}
