package metrics

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/changefeed/feed"
)

// The keys of attributes without a convention.
const (
	keyReason      = attribute.Key("changefeed.reason")      // why a lease was given up
	keyDisposition = attribute.Key("changefeed.disposition") // why a change is a dead letter
	keyOrigin      = attribute.Key("changefeed.origin")      // where an error arose
	keyWrite       = attribute.Key("changefeed.lease.write") // checkpoint or renewal
	keyLease       = attribute.Key("changefeed.lease")       // of spans only
	keyAttempt     = attribute.Key("changefeed.attempt")     // of spans only
)

// The values of db.operation.name.
const (
	operationRead  = "query_change_feed"
	operationWrite = "replace_lease"
)

// events are the instruments that hooks write.
type events struct {
	processed, readTime, writeTime, charge        metric.Float64Histogram
	consumed, read, acquired, released, takenOver metric.Int64Counter
	parked, redriven, skipped, errors             metric.Int64Counter
}

func newEvents(m *maker) *events {
	return &events{
		processed: m.histogram("messaging.process.duration", "s", "Duration of a call of the handler.", seconds...),
		consumed: m.counter("messaging.client.consumed.messages", "{message}",
			"Changes that the handler has received."),
		charge: m.histogram("azure.cosmosdb.client.operation.request_charge", "{request_unit}",
			"Request units of an operation.", 1, 2, 5, 10, 25, 50, 100, 250, 500, 1000),
		readTime: m.histogram("changefeed.read.duration", "s", "Duration of a read of the feed.", seconds...),
		read:     m.counter("changefeed.read.changes", "{change}", "Changes that were read from the feed."),
		writeTime: m.histogram("changefeed.lease.write.duration", "s", "Duration of a write of a lease.",
			seconds...),
		acquired: m.counter("changefeed.lease.acquired", "{lease}", "Leases that this instance has begun to work on."),
		released: m.counter("changefeed.lease.released", "{lease}", "Leases that this instance has given up."),
		takenOver: m.counter("changefeed.lease.taken_over", "{lease}",
			"Leases that were taken from instances without a sign of life."),
		parked:   m.counter("changefeed.parked", "{change}", "Changes that became dead letters."),
		redriven: m.counter("changefeed.redriven", "{letter}", "Dead letters that the handler has received again."),
		skipped:  m.counter("changefeed.skipped", "{change}", "Changes that an operator had skipped."),
		errors:   m.counter("changefeed.errors", "{error}", "Failures after which the processor goes on."),
	}
}

// Hooks returns the hooks that write the instruments. You need them only if you do not use [Metrics.Handler], which
// states them as a need of the handler.
func (m *Metrics) Hooks() feed.Hooks {
	e := m.events
	return feed.Hooks{
		BatchDone: func(ctx context.Context, d feed.BatchDone) {
			with := m.withError(d.Err, semconv.MessagingOperationName(operationProcess))
			e.processed.Record(ctx, d.Duration.Seconds(), with)
			e.consumed.Add(ctx, int64(len(d.Batch.Changes)), with)
		},
		ReadDone: func(ctx context.Context, d feed.ReadDone) {
			e.readTime.Record(ctx, d.Duration.Seconds(), m.withError(d.Err))
			e.read.Add(ctx, int64(d.Changes), m.withAttributes())
			m.recordCharge(ctx, d.Charge, operationRead)
		},
		StoreDone: m.storeDone,
		Acquired:  func(ctx context.Context, _ feed.Lease) { e.acquired.Add(ctx, 1, m.withAttributes()) },
		Released: func(ctx context.Context, _ feed.Lease, why feed.Reason) {
			e.released.Add(ctx, 1, m.withAttributes(keyReason.String(string(why))))
		},
		TakenOver: func(ctx context.Context, t feed.TakeOver) {
			e.takenOver.Add(ctx, int64(len(t.Leases)), m.withAttributes())
		},
		Parked: func(ctx context.Context, l feed.DeadLetter) {
			e.parked.Add(ctx, 1, m.withAttributes(keyDisposition.String(string(l.Disposition))))
		},
		Redriven: func(ctx context.Context, r feed.Redriven) { e.redriven.Add(ctx, 1, m.withError(r.Err)) },
		Skipped: func(ctx context.Context, s feed.Skip) {
			e.skipped.Add(ctx, int64(len(s.Changes)), m.withAttributes())
		},
		Error: func(ctx context.Context, err *feed.Error) {
			e.errors.Add(ctx, 1, m.withAttributes(keyOrigin.String(lowered(string(err.Origin)))))
		},
	}
}

// beginAtZero makes the series of rare events that are failures. Without it the first event would make the series, and
// no rate would show that event.
func (m *Metrics) beginAtZero(ctx context.Context) {
	e := m.events
	e.takenOver.Add(ctx, 0, m.withAttributes())
	e.released.Add(ctx, 0, m.withAttributes(keyReason.String(string(feed.ReasonLost))))
	for _, d := range []feed.Disposition{
		feed.DispositionFailed, feed.DispositionPoison, feed.DispositionUndecodable, feed.DispositionCrashed,
		feed.DispositionHeld,
	} {
		e.parked.Add(ctx, 0, m.withAttributes(keyDisposition.String(string(d))))
	}
	for _, origin := range []feed.Origin{
		feed.OriginHandler, feed.OriginSource, feed.OriginLeaseStore, feed.OriginBalancer, feed.OriginDeadLetters,
	} {
		e.errors.Add(ctx, 0, m.withAttributes(keyOrigin.String(lowered(string(origin)))))
	}
}

// recordCharge records request units, if the store has said how many.
func (m *Metrics) recordCharge(ctx context.Context, units float64, operation string) {
	if units > 0 {
		m.events.charge.Record(ctx, units, m.withAttributes(semconv.DBOperationName(operation)))
	}
}

// storeDone records a write of a lease, as a span too.
func (m *Metrics) storeDone(ctx context.Context, d feed.StoreDone) {
	kind := "checkpoint"
	if d.Renewal {
		kind = "renewal"
	}
	m.events.writeTime.Record(ctx, d.Duration.Seconds(), m.withError(d.Err, keyWrite.String(kind)))
	m.recordCharge(ctx, d.Charge, operationWrite)
	end := time.Now()
	_, span := m.tracer.Start(ctx, kind, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithTimestamp(end.Add(-d.Duration)), trace.WithAttributes(m.common...),
		trace.WithAttributes(semconv.DBOperationName(operationWrite), keyLease.String(d.Lease)))
	if d.Charge > 0 {
		span.SetAttributes(semconv.AzureCosmosDBOperationRequestCharge(d.Charge))
	}
	endSpan(span, d.Err, trace.WithTimestamp(end))
}

// endSpan ends a span, with its error if there is one.
func endSpan(span trace.Span, err error, o ...trace.SpanEndOption) {
	if err != nil {
		span.SetAttributes(semconv.ErrorTypeKey.String(typeOf(err)))
		span.SetStatus(codes.Error, err.Error())
	}
	span.End(o...)
}
