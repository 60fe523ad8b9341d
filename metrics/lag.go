package metrics

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// lagGauges are the gauges of the lag of a unit, and the values that they have.
type lagGauges struct {
	pending, exact, age, watermark, catchUp, stuck, unknown, written metric.Float64ObservableGauge

	mu   sync.Mutex
	last *changefeed.Estimation // nil if the last estimate has failed, and before the first
}

func newLagGauges(m *maker) *lagGauges {
	return &lagGauges{
		pending: m.gauge("changefeed.lag", "{change}", "Changes of the unit that are not handled."),
		exact:   m.gauge("changefeed.lag.exact", "1", "1 if changefeed.lag is a count, 0 if it is a bound."),
		age:     m.gauge("changefeed.lag.age", "s", "Age of the oldest change that is not handled, or 0."),
		watermark: m.gauge("changefeed.watermark.age", "s",
			"Age of the time before which the unit has handled everything."),
		catchUp: m.gauge("changefeed.lag.catch_up", "s",
			"How long the slowest lease takes to catch up at its present rate; absent if its lag does not fall."),
		stuck:   m.gauge("changefeed.lag.stuck", "{lease}", "Leases whose pending changes nobody handles."),
		unknown: m.gauge("changefeed.lag.unknown", "{lease}", "Leases whose lag is unknown."),
		written: m.gauge("changefeed.lease.age", "s",
			"Since the last write of the lease that was written longest ago, of those with an owner."),
	}
}

func (g *lagGauges) allGauges() []metric.Observable {
	return []metric.Observable{g.pending, g.exact, g.age, g.watermark, g.catchUp, g.stuck, g.unknown, g.written}
}

// RecordLag records the lag of the unit, as [changefeed.Processor.WatchLag] and [changefeed.WatchLag] yield it. After
// an error the gauges of the lag are absent until the next estimate: an old value would look like a unit at rest.
func (m *Metrics) RecordLag(lag changefeed.Estimation, err error) {
	m.lag.mu.Lock()
	defer m.lag.mu.Unlock()
	if m.lag.last = &lag; err != nil {
		m.lag.last = nil
	}
}

// observeLag reports the last estimate.
func (m *Metrics) observeLag(_ context.Context, o metric.Observer) error {
	m.lag.mu.Lock()
	last := m.lag.last
	m.lag.mu.Unlock()
	if last == nil {
		return nil
	}
	g, total, exact := m.lag, last.Total, 0.0
	if total.Known() {
		if total.Exact {
			exact = 1
		}
		m.observeKnown(o, g.pending, float64(total.Pending))
		m.observeKnown(o, g.exact, exact)
		if total.Pending == 0 {
			m.observeKnown(o, g.age, 0)
		} else {
			m.observeKnown(o, g.age, ageAt(last.At, total.Oldest))
		}
	}
	m.observeKnown(o, g.watermark, ageAt(last.At, total.Watermark))
	if total.Pace != nil && total.Pace.CatchUp != changefeed.Never {
		m.observeKnown(o, g.catchUp, total.Pace.CatchUp.Seconds())
	}
	stuck, unknown := 0, 0
	for i := range last.Leases {
		if l := &last.Leases[i]; !l.Known() {
			unknown++
		} else if len(l.Stuck) > 0 {
			stuck++
		}
	}
	m.observeKnown(o, g.written, oldestWrite(last))
	m.observeKnown(o, g.stuck, float64(stuck))
	m.observeKnown(o, g.unknown, float64(unknown))
	return nil
}

// oldestWrite returns the seconds since the last write of the lease that was written longest ago; unknown if no lease
// has an owner, who would have to renew it.
func oldestWrite(e *changefeed.Estimation) float64 {
	oldest := unknown
	for i := range e.Leases {
		l := &e.Leases[i].Lease
		if age := ageAt(e.At, l.Updated); l.Owner != "" && l.State == feed.StateLive && !(age <= oldest) {
			oldest = age
		}
	}
	return oldest
}

// ageAt returns the seconds from a time until another, by the clock of the store; unknown if one is.
func ageAt(now, t time.Time) float64 {
	if now.IsZero() || t.IsZero() {
		return unknown
	}
	return max(0, now.Sub(t).Seconds())
}
