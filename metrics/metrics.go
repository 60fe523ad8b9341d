package metrics

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/changefeed/feed"
)

// Options of [New]. The zero value works, but give Unit and Container if a program has several units.
type Options struct {
	// Unit is the name of the deployment unit, the attribute messaging.consumer.group.name; none by default.
	Unit string

	// Container is the name of the monitored container, such as shop/orders, the attribute messaging.destination.name;
	// none by default.
	Container string

	// MeterProvider makes the instruments; the global provider by default.
	MeterProvider metric.MeterProvider

	// TracerProvider makes the spans; the global provider by default.
	TracerProvider trace.TracerProvider

	// TraceParent returns the traceparent and the tracestate of the commit of a change, in the form of W3C Trace
	// Context, or two empty texts. By default these are the members traceparent and tracestate of the document.
	TraceParent func(c *feed.Change) (parent, state string)
}

// Metrics are the instruments of one unit. Its methods may be called by several goroutines.
type Metrics struct {
	o       Options
	common  []attribute.KeyValue
	meter   metric.Meter
	tracer  trace.Tracer
	events  *events
	sending *sending
	lag     *lagGauges
}

const scope = "github.com/millrace/changefeed/metrics"

// New makes the instruments. An error is that of the provider, if it refuses an instrument.
func New(o Options) (*Metrics, error) {
	m := &Metrics{o: o}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider() // passes calls on to a provider that is set later
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	if o.TraceParent == nil {
		m.o.TraceParent = traceParentOf
	}
	m.meter = o.MeterProvider.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))
	m.tracer = o.TracerProvider.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))
	if o.Container != "" {
		m.common = append(m.common, semconv.MessagingDestinationName(o.Container))
	}
	if o.Unit != "" {
		m.common = append(m.common, semconv.MessagingConsumerGroupName(o.Unit))
	}
	maker := &maker{meter: m.meter}
	m.events, m.sending, m.lag = newEvents(maker), newSending(maker), newLagGauges(maker)
	if err := errors.Join(maker.errs...); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	if _, err := m.meter.RegisterCallback(m.observeLag, m.lag.allGauges()...); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return m, nil
}

// withAttributes returns the attributes that all instruments have, and some more.
func (m *Metrics) withAttributes(more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(append(more, m.common...)...))
}

// withError is with, and error.type if there is an error.
func (m *Metrics) withError(err error, more ...attribute.KeyValue) metric.MeasurementOption {
	if err != nil {
		more = append(more, semconv.ErrorTypeKey.String(typeOf(err)))
	}
	return m.withAttributes(more...)
}

// kinds are the errors that error.type tells from each other.
var kinds = []struct {
	is   error
	name string
}{
	{feed.ErrLeaseLost, "lease_lost"},
	{feed.ErrHandlerTimeout, "timeout"},
	{feed.ErrStopped, "stopped"},
	{feed.ErrThrottled, "throttled"},
	{feed.ErrForbidden, "forbidden"},
	{feed.ErrNotFound, "not_found"},
	{feed.ErrGone, "gone"},
	{feed.ErrConflict, "conflict"},
	{feed.ErrPrecondition, "conflict"},
	{context.DeadlineExceeded, "timeout"},
	{context.Canceled, "canceled"},
}

// typeOf returns the value of error.type: a word of a short list, because texts of errors would be series without end.
func typeOf(err error) string {
	for _, kind := range kinds {
		if errors.Is(err, kind.is) {
			return kind.name
		}
	}
	if _, isPanic := errors.AsType[*feed.PanicError](err); isPanic {
		return "panic"
	}
	return "_OTHER" // the word of the conventions for an error without a type
}

// maker makes instruments, and keeps the errors.
type maker struct {
	meter metric.Meter
	names []string // with their units
	errs  []error
}

func (m *maker) keepError(name, unit string, err error) {
	m.names = append(m.names, name+" "+unit)
	if err != nil {
		m.errs = append(m.errs, err)
	}
}

func (m *maker) counter(name, unit, text string) metric.Int64Counter {
	c, err := m.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
	m.keepError(name, unit, err)
	return c
}

func (m *maker) gauge(name, unit, text string) metric.Float64ObservableGauge {
	g, err := m.meter.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(text))
	m.keepError(name, unit, err)
	return g
}

// seconds are the bounds of durations: from a tenth of a millisecond, for a handler in memory, to the minutes of a
// program that hangs.
var seconds = []float64{0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300}

func (m *maker) histogram(name, unit, text string, bounds ...float64) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(name, metric.WithUnit(unit), metric.WithDescription(text),
		metric.WithExplicitBucketBoundaries(bounds...))
	m.keepError(name, unit, err)
	return h
}

// lowered makes a word of an attribute from a name in words.
func lowered(words string) string { return strings.ReplaceAll(words, " ", "_") }
