package metrics

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// unknown is a value that is not observed.
var unknown = math.NaN()

// stateGauge is a gauge that is read from a status.
type stateGauge struct {
	gauge metric.Float64ObservableGauge
	value func(*changefeed.Status) float64
	join  func(a, b float64) float64 // of the values of several runs
}

// sum joins values of which each run has its share.
func sum(a, b float64) float64 { return a + b }

// stateGauges returns the gauges of Observe.
func stateGauges(m *maker) []stateGauge { return append(instanceGauges(m), unitGauges(m)...) }

// instanceGauges returns the gauges of Observe that are about this instance.
func instanceGauges(m *maker) []stateGauge {
	return []stateGauge{
		{m.gauge("changefeed.instance.leases", "{lease}", "Leases that this instance has."), leases, sum},
		{
			m.gauge("changefeed.instance.pending", "{change}", "Changes of these leases that are not handled."),
			ofLeases(sum, func(l *feed.LeaseStatus) float64 { return float64(l.Pending) }), sum,
		},
		{
			m.gauge("changefeed.instance.in_hand", "{batch}", "Batches in the handler."),
			ofLeases(sum, func(l *feed.LeaseStatus) float64 { return float64(l.InHand) }), sum,
		},
		{
			m.gauge("changefeed.instance.in_hand.oldest", "s",
				"How long the oldest batch is in the handler, if that is much longer than usual; otherwise 0."),
			oldestSlow, math.Max,
		},
		{
			m.gauge("changefeed.instance.buffered", "{change}", "Changes that were read and are not handled."),
			ofLeases(sum, func(l *feed.LeaseStatus) float64 { return float64(l.Buffered) }), sum,
		},
		{
			m.gauge("changefeed.instance.attempts", "{attempt}", "The most calls that an unfinished change has had."),
			ofLeases(math.Max, func(l *feed.LeaseStatus) float64 { return float64(l.Failures) }), math.Max,
		},
		{
			m.gauge("changefeed.instance.failing", "s", "How long the oldest unfinished change has waited."),
			ofLeases(math.Max, func(l *feed.LeaseStatus) float64 { return ageOf(l.Failing, 0) }), math.Max,
		},
		{
			m.gauge("changefeed.instance.keys.held", "{key}", "Partition keys whose changes are parked."),
			ofLeases(sum, func(l *feed.LeaseStatus) float64 { return float64(l.Held) }), sum,
		},
		{
			m.gauge("changefeed.instance.keys.set_aside", "{key}", "Partition keys that are read again by key."),
			ofLeases(sum, func(l *feed.LeaseStatus) float64 { return float64(l.SetAside) }), sum,
		},
		{m.gauge("changefeed.instance.outage", "1", "1 during an outage, otherwise 0."), outage, math.Max},
		{
			m.gauge("changefeed.instance.view.age", "s", "How long ago the lease store last answered."),
			func(s *changefeed.Status) float64 { return ageOf(s.View, unknown) }, math.Max,
		},
	}
}

// unitGauges returns the gauges of Observe that are about the unit, as this instance knows it.
func unitGauges(m *maker) []stateGauge {
	return []stateGauge{
		{
			m.gauge("changefeed.unit.instances", "{instance}", "Live instances of the unit, in the last round."),
			inRound(func(r feed.Round) int { return r.Instances }), math.Max,
		},
		{
			m.gauge("changefeed.unit.leases", "{lease}", "Leases of the unit, in the last round."),
			inRound(func(r feed.Round) int { return r.Leases }), math.Max,
		},
		{
			m.gauge("changefeed.unit.variants", "{variant}",
				"Different handlers, programs or options that live instances run."),
			func(s *changefeed.Status) float64 { return float64(len(s.Variants)) }, math.Max,
		},
		{
			m.gauge("changefeed.unit.leases.broken", "{lease}", "Invalid lease documents, on which nobody works."),
			func(s *changefeed.Status) float64 { return float64(len(s.Broken)) }, math.Max,
		},
		{
			m.gauge("changefeed.unit.leases.unowned", "{lease}", "Leases that no instance may own, in the last round."),
			inRound(func(r feed.Round) int { return r.Unowned }), math.Max,
		},
		{
			m.gauge("changefeed.unit.began", "s", "Unix time at which this instance began a new unit."),
			began, math.Max,
		},
		{
			m.gauge("changefeed.unit.passed", "{change}", "Changes before its start that this new unit passes over."),
			passed, sum,
		},
	}
}

func leases(s *changefeed.Status) float64 { return float64(len(s.Leases)) }

// began returns when the run was started that has made the leases of the unit.
func began(s *changefeed.Status) float64 {
	if s.Began == nil {
		return unknown
	}
	return unixOf(s.Since)
}

func passed(s *changefeed.Status) float64 {
	if s.Began == nil || s.Began.Passed == nil {
		return unknown
	}
	return float64(*s.Began.Passed)
}

// unixOf returns a time as the seconds since 1970, as Prometheus does.
func unixOf(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

// ofLeases joins the values of the leases of a status.
func ofLeases(join func(a, b float64) float64, value func(*feed.LeaseStatus) float64) func(*changefeed.Status) float64 {
	return func(s *changefeed.Status) (all float64) {
		for i := range s.Leases {
			all = join(all, value(&s.Leases[i]))
		}
		return all
	}
}

func oldestSlow(s *changefeed.Status) (oldest float64) {
	for _, slow := range s.Slow {
		oldest = max(oldest, ageOf(slow.Since, 0))
	}
	return oldest
}

func outage(s *changefeed.Status) float64 {
	if s.Outage {
		return 1
	}
	return 0
}

// inRound is a value of the last round, unknown before the first.
func inRound(value func(feed.Round) int) func(*changefeed.Status) float64 {
	return func(s *changefeed.Status) float64 {
		if s.At.IsZero() {
			return unknown
		}
		return float64(value(s.Round))
	}
}

// ageOf returns the seconds since a time, or another value if there is no time.
func ageOf(t time.Time, none float64) float64 {
	if t.IsZero() {
		return none
	}
	return time.Since(t).Seconds()
}

// processGauges are the gauges of Observe that a processor has even if it does not run.
type processGauges struct{ healthy, clock metric.Float64ObservableGauge }

func newProcessGauges(m *maker) processGauges {
	return processGauges{
		healthy: m.gauge("changefeed.instance.healthy", "1", "1 if Processor.Healthy returns nil, otherwise 0."),
		clock:   m.gauge("changefeed.instance.clock", "s", "Unix time by the clock of this machine."),
	}
}

// Observe has the state of a processor read whenever metrics are collected. That makes no request. While the processor
// does not run, only its clock and that it is not healthy are reported; if it runs several times at once, its runs are
// one instance. Observe also begins the counters of letters, errors and lost leases at 0, so that their first event is
// an increase. Call stop when you need the processor no more. An error is that of the provider.
func (m *Metrics) Observe(p *changefeed.Processor) (stop func() error, err error) {
	maker := &maker{meter: m.meter}
	gauges, process := stateGauges(maker), newProcessGauges(maker)
	all := []metric.Observable{process.healthy, process.clock}
	for _, g := range gauges {
		all = append(all, g.gauge)
	}
	if err := errors.Join(maker.errs...); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	registration, err := m.meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		m.beginAtZero(ctx)
		runs, healthy := p.Status(), 0.0
		if p.Healthy() == nil {
			healthy = 1
		}
		m.observeKnown(o, process.healthy, healthy)
		m.observeKnown(o, process.clock, unixOf(time.Now()))
		for _, g := range gauges {
			m.observeKnown(o, g.gauge, g.valueOf(runs))
		}
		return nil
	}, all...)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return registration.Unregister, nil
}

// valueOf joins the known values of some runs.
func (g *stateGauge) valueOf(runs []changefeed.Status) float64 {
	all := unknown
	for i := range runs {
		switch v := g.value(&runs[i]); {
		case math.IsNaN(v):
		case math.IsNaN(all):
			all = v
		default:
			all = g.join(all, v)
		}
	}
	return all
}

// observeKnown reports a value, unless it is unknown.
func (m *Metrics) observeKnown(o metric.Observer, gauge metric.Float64Observable, value float64) {
	if !math.IsNaN(value) {
		o.ObserveFloat64(gauge, value, m.withAttributes())
	}
}
