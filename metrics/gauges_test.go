package metrics

import (
	"maps"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// Each gauge of a processor has its value of the status, over all leases and over two runs. What is unknown in one run
// is that of the other, and unknown if no run knows it.
func TestEachGaugeHasItsValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		ago := func(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }
		skips := int64(2517)
		full := changefeed.Status{
			At: now, Round: feed.Round{Instances: 4, Leases: 5, Unowned: 8}, Since: ago(90),
			Began: &feed.NewUnit{Passed: &skips}, Broken: make([]*feed.Error, 3), View: ago(3), Outage: true,
			Variants: make(feed.Variants, 2),
			Slow:     []feed.SlowBatch{{Since: ago(50)}, {Since: ago(70)}, {Since: ago(60)}},
			Leases: []feed.LeaseStatus{
				{Pending: 1, InHand: 2, Buffered: 3, Failures: 7, Failing: ago(11), Held: 5, SetAside: 6},
				{Pending: 10, InHand: 20, Buffered: 30, Failures: 4, Failing: ago(9), Held: 50, SetAside: 60},
			},
		}
		fresh := changefeed.Status{ // before its first round
			Since: now, Leases: []feed.LeaseStatus{{Pending: 100, Failures: 5}},
		}
		uncounted := changefeed.Status{Since: ago(30), Began: &feed.NewUnit{}}
		for _, of := range []struct {
			runs []changefeed.Status
			want map[string]float64
		}{
			{nil, nil},
			{[]changefeed.Status{fresh}, map[string]float64{
				"instance.leases": 1, "instance.pending": 100, "instance.in_hand": 0, "instance.in_hand.oldest": 0,
				"instance.buffered": 0, "instance.attempts": 5, "instance.failing": 0, "instance.keys.held": 0,
				"instance.keys.set_aside": 0, "instance.outage": 0, "unit.variants": 0, "unit.leases.broken": 0,
			}},
			{[]changefeed.Status{fresh, full, full, uncounted}, map[string]float64{
				"instance.leases": 5, "instance.pending": 122, "instance.in_hand": 44, "instance.in_hand.oldest": 70,
				"instance.buffered": 66, "instance.attempts": 7, "instance.failing": 11, "instance.keys.held": 110,
				"instance.keys.set_aside": 132, "instance.outage": 1, "instance.view.age": 3, "unit.instances": 4,
				"unit.leases": 5, "unit.variants": 2, "unit.leases.broken": 3, "unit.leases.unowned": 8,
				"unit.began": unixOf(ago(30)), "unit.passed": 5034,
			}},
		} {
			m := &maker{meter: noop.NewMeterProvider().Meter("")}
			for i, g := range stateGauges(m) {
				name, _, _ := strings.Cut(strings.TrimPrefix(m.names[i], "changefeed."), " ")
				got := g.valueOf(of.runs)
				if want, isKnown := of.want[name]; isKnown == math.IsNaN(got) || isKnown && got != want {
					t.Errorf("%d runs: %s is %v, want %v (known: %t)", len(of.runs), name, got, want, isKnown)
				}
			}
		}
	})
}

// A processor that does not run has a clock and is not healthy, and nothing else. The counters of failures begin at 0
// before there is a failure.
func TestAProcessorThatDoesNotRunIsNotHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := sdkmetric.NewManualReader()
		m, err := New(Options{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
		if err != nil {
			t.Fatal(err)
		}
		stop, err := m.Observe(new(changefeed.Processor))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		var all metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		gauges, counters := map[string]float64{}, map[string]int{}
		for _, metric := range all.ScopeMetrics[0].Metrics {
			switch data := metric.Data.(type) {
			case metricdata.Gauge[float64]:
				gauges[metric.Name] = data.DataPoints[0].Value
			case metricdata.Sum[int64]:
				for _, point := range data.DataPoints {
					if point.Value != 0 {
						t.Errorf("%s begins with %d", metric.Name, point.Value)
					}
					counters[metric.Name]++
				}
			}
		}
		wantGauges := map[string]float64{
			"changefeed.instance.healthy": 0, "changefeed.instance.clock": unixOf(time.Now()),
		}
		wantCounters := map[string]int{
			"changefeed.parked": 5, "changefeed.errors": 5, "changefeed.lease.released": 1,
			"changefeed.lease.taken_over": 1,
		}
		if !maps.Equal(gauges, wantGauges) || !maps.Equal(counters, wantCounters) {
			t.Errorf("%v and %v, want %v and %v", gauges, counters, wantGauges, wantCounters)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// The age of leases is that of the owned lease that was written longest ago, by the clock of the store. A free lease is
// written by nobody, and a lease that is being split no longer.
func TestTheOldestWriteIsThatOfAnOwner(t *testing.T) {
	now := time.Unix(1000, 0)
	of := func(owner string, state feed.State, age int) changefeed.Lag {
		updated := now.Add(-time.Duration(age) * time.Second)
		return changefeed.Lag{Lease: feed.Lease{Owner: owner, State: state, Updated: updated}}
	}
	free, split := of("", feed.StateLive, 900), of("a", feed.StateSplitting, 800)
	for want, leases := range map[float64][]changefeed.Lag{
		-1: {free, split, {Lease: feed.Lease{Owner: "a"}}}, // the time of the last write is unknown
		17: {free, of("a", feed.StateLive, 3), split, of("b", feed.StateLive, 17), of("a", feed.StateLive, 5)},
	} {
		got := oldestWrite(&changefeed.Estimation{At: now, Leases: leases})
		if math.IsNaN(got) != (want < 0) || want >= 0 && got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
