package servermetrics

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
)

// Options of [New]. The zero value works.
type Options struct {
	// MeterProvider makes the instruments; the global provider by default.
	MeterProvider metric.MeterProvider
}

// Metrics are the instruments of a server and its store. Its methods may be called by several goroutines. If a process
// has several stores, each needs its own Metrics and its own provider, because their series have the same attributes.
type Metrics struct {
	meter           metric.Meter
	duration, fsync metric.Float64Histogram
	charge          metric.Float64Histogram
	refused         metric.Int64Counter
	known           seriesMap
	skew            skew
}

const scope = "github.com/millrace/changefeed/metrics/servermetrics"

// seconds are the bounds of durations: from a tenth of a millisecond, for a read of an item in memory, to the minutes
// of a disk that hangs. Those of the conventions begin at 5 milliseconds, and nearly all requests take less.
var seconds = []float64{0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}

// New makes the instruments. An error is that of the provider, if it refuses an instrument.
func New(o Options) (*Metrics, error) {
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider() // passes calls on to a provider that is set later
	}
	m := &Metrics{meter: o.MeterProvider.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))}
	var errs [5]error
	m.duration, errs[0] = m.meter.Float64Histogram("http.server.request.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of HTTP server requests."), metric.WithExplicitBucketBoundaries(seconds...))
	m.charge, errs[1] = m.meter.Float64Histogram("changefeed.server.request_charge", metric.WithUnit("{request_unit}"),
		metric.WithDescription("Request units of a request."),
		metric.WithExplicitBucketBoundaries(1, 2, 5, 10, 25, 50, 100, 250, 500, 1000))
	m.refused, errs[2] = m.meter.Int64Counter("changefeed.server.refused", metric.WithUnit("{request}"),
		metric.WithDescription("Requests refused because of their sender, the load or the store."))
	m.fsync, errs[3] = m.meter.Float64Histogram("changefeed.store.fsync.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of a sync of the store's log to the disk."),
		metric.WithExplicitBucketBoundaries(seconds...))
	_, errs[4] = m.meter.Float64ObservableGauge("changefeed.server.clock_skew", metric.WithUnit("s"),
		metric.WithDescription("How far the clock of the client that is furthest off is ahead of the server's."),
		metric.WithFloat64Callback(func(_ context.Context, o metric.Float64Observer) error {
			if most := m.skew.most(time.Now()); !math.IsNaN(most) {
				o.Observe(most)
			}
			return nil
		}))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("servermetrics: %w", err)
	}
	return m, nil
}

// RequestDone records a request. It is a function for [cosmosrest.Options.RequestDone].
func (m *Metrics) RequestDone(ctx context.Context, r cosmosrest.RequestDone) {
	s := m.known.of(&r)
	m.duration.Record(ctx, r.Duration.Seconds(), s.answered...)
	m.charge.Record(ctx, r.Charge, s.charged...)
	if s.refused != nil {
		m.refused.Add(ctx, 1, s.refused...)
	}
	if !r.Signed.IsZero() {
		m.skew.note(r.Began.Add(r.Duration), r.Began, r.Signed)
	}
}

// Observe has the state of a store read whenever metrics are collected, and records each sync to its disk. Call stop
// when you need the metrics of the store no more. An error is that of the provider.
func (m *Metrics) Observe(db *docstore.DB) (stop func() error, err error) {
	var gauges []metric.Int64ObservableGauge
	var all []metric.Observable
	var errs []error
	for _, g := range storeGauges {
		made, err := m.meter.Int64ObservableGauge(g.name, metric.WithUnit(g.unit), metric.WithDescription(g.text))
		gauges, all, errs = append(gauges, made), append(all, made), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("servermetrics: %w", err)
	}
	registration, err := m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		state := storeState{db.Health(), db.Count()}
		if errors.Is(state.Err, docstore.ErrClosed) {
			return nil
		}
		for i, g := range storeGauges {
			if value := g.value(&state); value != unknown {
				o.ObserveInt64(gauges[i], value)
			}
		}
		return nil
	}, all...)
	if err != nil {
		return nil, fmt.Errorf("servermetrics: %w", err)
	}
	for _, status := range refusals { // so that the first refusal is an increase
		m.refused.Add(context.Background(), 0, refusalOf(status)...)
	}
	stopSyncs := db.OnSync(func(took time.Duration) { m.fsync.Record(context.Background(), took.Seconds()) })
	return func() error {
		stopSyncs()
		return registration.Unregister()
	}, nil
}
