package metrics

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// Each gauge of a processor has its value of the status, over all leases and over two runs. What is unknown in one run
// is that of the other, and unknown if no run knows it.
func TestEachGaugeHasItsValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		ago := func(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }
		full := changefeed.Status{
			At: now, Round: feed.Round{Instances: 4, Leases: 5}, View: ago(3), Outage: true,
			Variants: make(feed.Variants, 2),
			Slow:     []feed.SlowBatch{{Since: ago(50)}, {Since: ago(70)}, {Since: ago(60)}},
			Leases: []feed.LeaseStatus{
				{Pending: 1, InHand: 2, Buffered: 3, Failures: 7, Failing: ago(11), Held: 5, SetAside: 6},
				{Pending: 10, InHand: 20, Buffered: 30, Failures: 4, Failing: ago(9), Held: 50, SetAside: 60},
			},
		}
		fresh := changefeed.Status{Leases: []feed.LeaseStatus{{Pending: 100, Failures: 5}}} // before its first round
		for _, of := range []struct {
			runs []changefeed.Status
			want map[string]float64
		}{
			{nil, nil},
			{[]changefeed.Status{fresh}, map[string]float64{
				"instance.leases": 1, "instance.pending": 100, "instance.in_hand": 0, "instance.in_hand.oldest": 0,
				"instance.buffered": 0, "instance.attempts": 5, "instance.failing": 0, "instance.keys.held": 0,
				"instance.keys.set_aside": 0, "instance.outage": 0, "unit.variants": 0,
			}},
			{[]changefeed.Status{fresh, full, full}, map[string]float64{
				"instance.leases": 5, "instance.pending": 122, "instance.in_hand": 44, "instance.in_hand.oldest": 70,
				"instance.buffered": 66, "instance.attempts": 7, "instance.failing": 11, "instance.keys.held": 110,
				"instance.keys.set_aside": 132, "instance.outage": 1, "instance.view.age": 3, "unit.instances": 4,
				"unit.leases": 5, "unit.variants": 2,
			}},
		} {
			m := &maker{meter: noop.NewMeterProvider().Meter("")}
			for i, g := range stateGauges(m) {
				name, _, _ := strings.Cut(strings.TrimPrefix(m.names[i], "changefeed."), " ")
				got := g.of(of.runs)
				if want, isKnown := of.want[name]; isKnown == math.IsNaN(got) || isKnown && got != want {
					t.Errorf("%d runs: %s is %v, want %v (known: %t)", len(of.runs), name, got, want, isKnown)
				}
			}
		}
	})
}
