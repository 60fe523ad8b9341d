package metrics

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/millrace/changefeed/outbox"
)

const operationSend = "send"

// sending are the instruments of the calls of a publisher.
type sending struct {
	sent     metric.Int64Counter
	duration metric.Float64Histogram
}

func newSending(m *maker) *sending {
	return &sending{
		sent: m.counter("messaging.client.sent.messages", "{message}",
			"Messages that a relay has sent; with error.type those that the broker has not accepted."),
		duration: m.histogram("messaging.client.operation.duration", "s", "Duration of a call of the publisher.",
			seconds...),
	}
}

// RelayHooks returns hooks that count and measure the calls of the publisher, and then call those of next, such as
// those of package outboxotel, which make the spans.
func (m *Metrics) RelayHooks(next outbox.RelayHooks) outbox.RelayHooks {
	hooks := next
	hooks.Publishing = func(ctx context.Context, msgs []outbox.Message) (context.Context, func(n int, err error)) {
		ended := func(int, error) {}
		if next.Publishing != nil {
			ctx, ended = next.Publishing(ctx, msgs)
		}
		began := time.Now()
		return ctx, func(n int, err error) {
			operation := semconv.MessagingOperationName(operationSend)
			m.sending.duration.Record(ctx, time.Since(began).Seconds(), m.withError(err, operation))
			m.sending.sent.Add(ctx, int64(n), m.withAttributes(operation))
			if err != nil {
				m.sending.sent.Add(ctx, int64(len(msgs)-n), m.withError(err, operation))
			}
			ended(n, err)
		}
	}
	return hooks
}

// relayGauges are gauges that are read from the status of a relay.
type relayGauges struct{ waiting, oldest, lag, expires metric.Float64ObservableGauge }

func newRelayGauges(m *maker) *relayGauges {
	return &relayGauges{
		waiting: m.gauge("changefeed.outbox.waiting", "{key}", "Partition keys whose next event is not accepted yet."),
		oldest:  m.gauge("changefeed.outbox.oldest", "s", "Age of the oldest of these events, or 0."),
		lag:     m.gauge("changefeed.outbox.lag", "s", "Between the commit of the last accepted event and its acceptance."),
		expires: m.gauge("changefeed.outbox.expires", "s",
			"Until the first of these events expires unpublished; absent if none does."),
	}
}

// ObserveRelay has the state of a relay read whenever metrics are collected. Call stop when you need the relay no more.
// An error is that of the provider.
func (m *Metrics) ObserveRelay(r *outbox.Relay) (stop func() error, err error) {
	maker := &maker{meter: m.meter}
	g := newRelayGauges(maker)
	if err := errors.Join(maker.errs...); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	registration, err := m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := r.Status()
		m.observeKnown(o, g.waiting, float64(s.Waiting))
		m.observeKnown(o, g.oldest, ageOf(s.Oldest, 0))
		if !s.Expires.IsZero() {
			m.observeKnown(o, g.expires, time.Until(s.Expires).Seconds())
		}
		if s.Published > 0 {
			m.observeKnown(o, g.lag, s.Lag.Seconds())
		}
		return nil
	}, g.waiting, g.oldest, g.lag, g.expires)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return registration.Unregister, nil
}
