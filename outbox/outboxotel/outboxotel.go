// Package outboxotel connects the traces on both sides of an outbox, with OpenTelemetry: the commit that raised an
// event, the relay that publishes the event, and the consumer that handles it.
//
// A unit of work stores the trace context with the events. A relay makes a span for each call of the publisher, with a
// link to the trace of each event:
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
// Your consumer links a span to the event's span, or continues the trace of the event:
//
//	ctx, span := tracer.Start(ctx, "handle", trace.WithSpanKind(trace.SpanKindConsumer),
//		trace.WithLinks(trace.LinkFromContext(outboxotel.Extract(ctx, m))))
//
// # Spans
//
// The spans follow the semantic conventions for messaging. A message contains the context of the unit of work in which
// the event was made. The relay never changes this context, so that a consumer is connected with the cause, however
// often and by whichever relay the event is published. Such a span is of kind client. If an event was stored without a
// context, the event receives the context of the publishing span, which is then of kind producer.
//
// A publication is not part of the trace of the commit, because a publication may happen days later, or again, and has
// events of several commits. So the span has links instead. A link contains the event's id.
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

	// System is the attribute messaging.system, which the conventions require: kafka, servicebus, rabbitmq, nats; none
	// by default.
	System string

	// Destination is the attribute messaging.destination.name, a topic for example, and a part of
	// the name of each span; none by default.
	Destination string
}

const scope = "github.com/millrace/changefeed/outbox/outboxotel"

// Publishing returns a hook [outbox.RelayHooks.Publishing] that makes a span for each call of the publisher.
func Publishing(o Options) func(context.Context, []outbox.Message) (context.Context, func(n int, err error)) {
	provider := o.TracerProvider
	if provider == nil {
		provider = otel.GetTracerProvider() // passes calls on to a provider that is set later
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
		ctx, span := tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(attributes...),
			trace.WithAttributes(of(msgs)), trace.WithLinks(links...))
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

// acceptedKey is the attribute for the number of accepted messages of a failed call.
const acceptedKey = attribute.Key("changefeed.outbox.accepted")

// of returns the attribute that describes a span's messages: the id of a single message, or their number.
func of(msgs []outbox.Message) attribute.KeyValue {
	if len(msgs) == 1 {
		return semconv.MessagingMessageID(msgs[0].ID)
	}
	return semconv.MessagingBatchMessageCount(len(msgs))
}

// creation returns a link for each message to the span in which the event was made. The kind is producer if a message
// has no such span, because then the new span replaces the missing span.
func creation(ctx context.Context, msgs []outbox.Message) (kind trace.SpanKind, links []trace.Link) {
	kind = trace.SpanKindClient
	for _, m := range msgs {
		if m.TraceParent == "" {
			kind = trace.SpanKindProducer
			continue
		}
		made := trace.SpanContextFromContext(Extract(ctx, m))
		if made.IsValid() {
			links = append(links, trace.Link{
				SpanContext: made,
				Attributes:  []attribute.KeyValue{semconv.MessagingMessageID(m.ID)},
			})
		}
	}
	return kind, links
}

var w3c propagation.TraceContext

const traceParent = "traceparent"

// TraceParent returns the W3C trace context of the span in ctx, for [outbox.Options.TraceParent]; empty if there is no
// span.
func TraceParent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	w3c.Inject(ctx, carrier)
	return carrier[traceParent]
}

// TraceState returns the tracestate of the span in ctx, for [outbox.Options.TraceState]; empty if there is no span.
func TraceState(ctx context.Context) string {
	return trace.SpanContextFromContext(ctx).TraceState().String()
}

// Extract returns a context with the span in which a message's event was made, as a remote span: link your consumer's
// span to this span, or begin your span under this span. Without a valid TraceParent the context has no span.
func Extract(ctx context.Context, m outbox.Message) context.Context {
	ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{}) // without the span of the caller
	return w3c.Extract(ctx, propagation.MapCarrier{traceParent: m.TraceParent, "tracestate": m.TraceState})
}
