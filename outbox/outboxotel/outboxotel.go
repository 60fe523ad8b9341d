// Package outboxotel connects the traces on both sides of an outbox, with OpenTelemetry: the commit
// that raised an event, the relay that publishes it, and the consumer that handles it.
//
// A unit of work stores its trace context with its events, and a relay makes a span for each call of
// its publisher, with a link to the trace of each event:
//
//	u := outbox.NewUnit(contacts, outbox.Options{TraceParent: outboxotel.TraceParent, TraceState: outboxotel.TraceState})
//
//	relay, err := outbox.NewRelay(broker, outbox.RelayOptions{
//		Source: "/contacts",
//		Hooks:  outbox.RelayHooks{Publishing: outboxotel.Publishing(outboxotel.Options{
//			System: "nats", Destination: "contacts",
//		})},
//	})
//
// A consumer links its own span to the event's, or continues its trace:
//
//	ctx, span := tracer.Start(ctx, "handle", trace.WithSpanKind(trace.SpanKindConsumer),
//		trace.WithLinks(trace.LinkFromContext(outboxotel.Extract(ctx, m))))
//
// # Spans
//
// The spans follow the semantic conventions for messaging. The context that a message carries is that
// of the unit of work, where its event was made; the relay never changes it, so that a consumer is
// connected with the cause, however often and by whomever the event is published. Such a span is of
// kind client. An event that was stored without a context gets that of the span that publishes it,
// which is then of kind producer.
//
// A publication is not part of the trace of the commit, for it may come days later, or again, and
// has events of several commits: hence the links. A link has the event's id.
package outboxotel

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/changefeed/outbox"
)

// Options of [Publishing]. The zero value works.
type Options struct {
	// TracerProvider makes the tracer; the global one by default.
	TracerProvider trace.TracerProvider

	// System is the attribute messaging.system, which the conventions require: kafka, servicebus,
	// rabbitmq, nats; none by default.
	System string

	// Destination is the attribute messaging.destination.name, a topic for example, and a part of
	// the name of each span; none by default.
	Destination string
}

const scope = "github.com/millrace/changefeed/outbox/outboxotel"

// Publishing makes the hook [outbox.RelayHooks.Publishing], with a span for each call of the publisher.
func Publishing(o Options) func(context.Context, []outbox.Message) (context.Context, func(n int, err error)) {
	provider := o.TracerProvider
	if provider == nil {
		provider = otel.GetTracerProvider() // which passes on to the one that is set later
	}
	tracer := provider.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))
	name := "send"
	attributes := []attribute.KeyValue{semconv.MessagingOperationName(name), semconv.MessagingOperationTypeSend}
	if o.System != "" {
		attributes = append(attributes, semconv.MessagingSystemKey.String(o.System))
	}
	if o.Destination != "" {
		name += " " + o.Destination
		attributes = append(attributes, semconv.MessagingDestinationName(o.Destination))
	}
	return func(ctx context.Context, msgs []outbox.Message) (context.Context, func(n int, err error)) {
		kind, links := creation(ctx, msgs)
		ctx, span := tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(attributes...), trace.WithAttributes(of(msgs)), trace.WithLinks(links...))
		for i := range msgs {
			if msgs[i].TraceParent == "" {
				msgs[i].TraceParent, msgs[i].TraceState = TraceParent(ctx), TraceState(ctx)
			}
		}
		return ctx, func(n int, err error) {
			if err != nil {
				span.SetAttributes(semconv.ErrorType(err), acceptedKey.Int(n))
				span.SetStatus(codes.Error, err.Error())
			}
			span.End()
		}
	}
}

// acceptedKey says how many messages of a call that failed are with the broker.
const acceptedKey = attribute.Key("changefeed.outbox.accepted")

// of is what a span says of its messages: the id of a single one, or how many there are.
func of(msgs []outbox.Message) attribute.KeyValue {
	if len(msgs) == 1 {
		return semconv.MessagingMessageID(msgs[0].ID)
	}
	return semconv.MessagingBatchMessageCount(len(msgs))
}

// creation has a link for each message to where its event was made, and the kind of a span that is that place itself for
// the others, if any.
func creation(ctx context.Context, msgs []outbox.Message) (kind trace.SpanKind, links []trace.Link) {
	kind = trace.SpanKindClient
	for _, m := range msgs {
		if m.TraceParent == "" {
			kind = trace.SpanKindProducer
			continue
		}
		made := trace.SpanContextFromContext(Extract(ctx, m))
		if made.IsValid() {
			links = append(links, trace.Link{SpanContext: made, Attributes: []attribute.KeyValue{semconv.MessagingMessageID(m.ID)}})
		}
	}
	return kind, links
}

var w3c propagation.TraceContext

const traceParent = "traceparent"

// TraceParent is the W3C trace context of the span in ctx, for [outbox.Options.TraceParent]; empty
// without one.
func TraceParent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	w3c.Inject(ctx, carrier)
	return carrier[traceParent]
}

// TraceState is the tracestate of the span in ctx, for [outbox.Options.TraceState]; empty without one.
func TraceState(ctx context.Context) string {
	return trace.SpanContextFromContext(ctx).TraceState().String()
}

// Extract returns a context with the span in which a message's event was made, as a remote one: what
// a consumer links its span to, or begins it under. Without a valid TraceParent it has no span.
func Extract(ctx context.Context, m outbox.Message) context.Context {
	ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{}) // not that of the caller
	return w3c.Extract(ctx, propagation.MapCarrier{traceParent: m.TraceParent, "tracestate": m.TraceState})
}
