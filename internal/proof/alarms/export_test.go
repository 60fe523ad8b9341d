package alarms_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmosrest"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/metrics/servermetrics"
	"github.com/millrace/changefeed/outbox"
)

// exported are the values of the labels of each series that programs export, by the names of series and labels.
type exported map[string]map[string][]string

// add adds what a registry has.
func (e exported) add(t *testing.T, from prometheus.Gatherer) {
	t.Helper()
	eachSample(t, from, func(name string, labels map[string]string, _ float64) {
		if e[name] == nil {
			e[name] = map[string][]string{}
		}
		for label, value := range labels {
			e[name][label] = append(e[name][label], value)
		}
	})
}

// eachSample calls do for each series of a registry, as Prometheus stores them.
func eachSample(t *testing.T, from prometheus.Gatherer, do func(string, map[string]string, float64)) {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, pair := range m.GetLabel() {
				labels[pair.GetName()] = pair.GetValue()
			}
			name := family.GetName()
			switch family.GetType() {
			case dto.MetricType_COUNTER:
				do(name, labels, m.GetCounter().GetValue())
			case dto.MetricType_GAUGE:
				do(name, labels, m.GetGauge().GetValue())
			case dto.MetricType_HISTOGRAM:
				do(name+"_count", labels, float64(m.GetHistogram().GetSampleCount()))
				do(name+"_sum", labels, m.GetHistogram().GetSampleSum())
				withLimit := maps.Clone(labels)
				withLimit["le"] = "+Inf" // one of the buckets, for the name and the label
				do(name+"_bucket", withLimit, float64(m.GetHistogram().GetSampleCount()))
			default:
				t.Fatalf("%s is a %v", name, family.GetType())
			}
		}
	}
}

// newRegistry returns a registry, and a provider of meters that are exported there with the names that the exporter
// makes by default.
func newRegistry(t *testing.T) (*prometheus.Registry, *sdkmetric.MeterProvider) {
	t.Helper()
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		t.Fatal(err)
	}
	return registry, sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
}

// everything returns all series: of a unit, of a relay, of rare events, and of the server.
func everything(t *testing.T) exported {
	t.Helper()
	all := exported{}
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 2)
		in := s.start("a", "mailer", changefeed.Options{
			OnFailure: changefeed.FailurePolicy{MaxAttempts: 2, HoldKeys: true},
		})
		relay := s.startRelay("relay", refusingPublisher{only: "order-1"})
		for i := range 4 {
			s.put("key", string(rune('a'+i)), `,"bad":true`)
		}
		s.putEvent("order-1", 600)
		s.putEvent("order-2", 600)
		synctest.Wait()
		time.Sleep(time.Minute)
		s.measure(in)
		s.put("key", "e", "")
		time.Sleep(time.Minute)
		s.measure(in)
		makeRareEvents(t.Context(), in, relay)
		all.add(t, in.registry)
		all.add(t, relay.registry)
		s.end()
	})
	registry, provider := newRegistry(t)
	makeServerSeries(t, provider)
	all.add(t, registry)
	return all
}

// makeRareEvents reports, as a processor and a relay do, what a short run has not: each value of each attribute.
func makeRareEvents(ctx context.Context, in, relay *staged) {
	h := in.m.Hooks()
	for _, err := range []error{nil, errors.New("other")} {
		h.BatchDone(ctx, feed.BatchDone{Batch: &feed.Batch{Changes: make([]feed.Change, 1)}, Err: err})
		h.ReadDone(ctx, feed.ReadDone{Charge: 1, Err: err})
		h.StoreDone(ctx, feed.StoreDone{Charge: 1, Err: err})
		h.StoreDone(ctx, feed.StoreDone{Renewal: true, Err: err})
		h.Redriven(ctx, feed.Redriven{Err: err})
		_, ended := relay.m.RelayHooks(outbox.RelayHooks{}).Publishing(ctx, make([]outbox.Message, 2))
		ended(1, err)
	}
	h.Skipped(ctx, feed.Skip{Changes: make([]feed.SkippedChange, 1)})
	for _, why := range []feed.Reason{feed.ReasonGiven, feed.ReasonLost, feed.ReasonStopped, feed.ReasonReset} {
		h.Released(ctx, feed.Lease{}, why)
	}
	lag := changefeed.Estimation{At: time.Now(), Total: changefeed.Lag{
		Exact: true, Watermark: time.Now(), Pace: &changefeed.Pace{CatchUp: time.Second},
	}, Leases: []changefeed.Lag{{Lease: feed.Lease{Owner: "a", Updated: time.Now()}}}}
	in.m.RecordLag(lag, nil)
}

// makeServerSeries makes the series of a server and its store.
func makeServerSeries(t *testing.T, provider *sdkmetric.MeterProvider) {
	t.Helper()
	m, err := servermetrics.New(servermetrics.Options{MeterProvider: provider})
	if err != nil {
		t.Fatal(err)
	}
	db, err := docstore.Open(t.TempDir(), docstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	stop, err := m.Observe(db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stop() })
	spec := docstore.ContainerSpec{ID: "orders", Paths: []string{"/city"}} // a commit, which syncs the log
	if _, err := db.CreateContainer(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	m.RequestDone(t.Context(), cosmosrest.RequestDone{Operation: "read_item", Status: 503, Began: now, Signed: now})
}

// Each instrument of the table of package metrics has a series in the export, which the tests of rules and panels read.
func TestEverythingIsExported(t *testing.T) {
	all := everything(t)
	table, err := os.ReadFile("../../../metrics/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^//\t([a-z]+\.[a-z_.]+) +\S`).FindAllSubmatch(table, -1)
	if len(rows) < 40 {
		t.Fatalf("%d instruments", len(rows))
	}
	for _, row := range rows {
		name := strings.ReplaceAll(string(row[1]), ".", "_")
		suffixes := []string{"", "_total", "_seconds", "_ratio", "_count", "_seconds_count"}
		if !slices.ContainsFunc(suffixes, func(suffix string) bool { return all[name+suffix] != nil }) {
			t.Errorf("%s has no series", row[1])
		}
	}
}
