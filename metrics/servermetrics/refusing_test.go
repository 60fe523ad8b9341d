package servermetrics_test

import (
	"errors"
	"testing"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/metrics/servermetrics"
)

var errRefused = errors.New("the provider refuses the instrument")

// refusing is a provider that refuses the instruments of one kind.
type refusing struct {
	noop.MeterProvider
	gauges bool // refuses gauges, otherwise histograms
}

func (r refusing) Meter(string, ...metric.MeterOption) metric.Meter {
	return refusingMeter{gauges: r.gauges}
}

type refusingMeter struct {
	noop.Meter
	gauges bool
}

func (r refusingMeter) Float64Histogram(string, ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	if r.gauges {
		return noop.Float64Histogram{}, nil
	}
	return noop.Float64Histogram{}, errRefused
}

func (r refusingMeter) Int64ObservableGauge(string, ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge,
	error,
) {
	return noop.Int64ObservableGauge{}, errRefused
}

// If the provider refuses an instrument, its error is returned.
func TestTheErrorOfTheProviderIsReturned(t *testing.T) {
	if _, err := servermetrics.New(servermetrics.Options{MeterProvider: refusing{}}); !errors.Is(err, errRefused) {
		t.Errorf("New: %v, want %v", err, errRefused)
	}
	m, err := servermetrics.New(servermetrics.Options{MeterProvider: refusing{gauges: true}})
	if err != nil {
		t.Fatal(err)
	}
	db, err := docstore.Open("", docstore.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Observe(db); !errors.Is(err, errRefused) {
		t.Errorf("Observe: %v, want %v", err, errRefused)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
