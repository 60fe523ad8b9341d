package metrics

import (
	"context"
	"encoding/json"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

const operationProcess = "process"

// maxLinks is how many traces the span of a batch is linked to, the limit of the SDKs.
const maxLinks = 128

// Handler wraps a handler: each call has a span, and the hooks of [Metrics.Hooks] become a need of the handler, which
// the processor obeys. The abilities and the needs of the handler stay.
func (m *Metrics) Handler(h feed.Handler) changefeed.HandlerWithNeeds { return &handler{m, h} }

// handler is a handler with spans.
type handler struct {
	m    *Metrics
	next feed.Handler
}

// Needs implements [changefeed.HandlerWithNeeds].
func (h *handler) Needs() changefeed.Needs {
	needs := changefeed.NeedsOf(h.next)
	needs.Hooks = needs.Hooks.And(h.m.Hooks())
	return needs
}

// errPanicked is the error of a span whose handler has panicked. The processor logs the panic with its stack.
var errPanicked error = &feed.PanicError{Value: "see the log"}

// Handle implements [feed.Handler].
func (h *handler) Handle(ctx context.Context, b *feed.Batch) error {
	name := operationProcess
	if h.m.o.Container != "" {
		name += " " + h.m.o.Container
	}
	ctx, span := h.m.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(h.m.common...), trace.WithAttributes(
			semconv.MessagingOperationName(operationProcess), semconv.MessagingOperationTypeProcess,
			semconv.MessagingBatchMessageCount(len(b.Changes)),
			keyLease.String(b.LeaseToken), keyAttempt.Int(b.Attempt),
		))
	returned := false
	defer func() {
		if !returned {
			endSpan(span, errPanicked)
		}
	}()
	if span.IsRecording() {
		h.m.linkTraces(ctx, span, b.Changes)
	}
	err := h.next.Handle(ctx, b)
	returned = true
	endSpan(span, err)
	return err
}

// Open implements [feed.Opener].
func (h *handler) Open(ctx context.Context, l feed.Lease) error {
	if opener, ok := h.next.(feed.Opener); ok {
		return opener.Open(ctx, l)
	}
	return nil
}

// Close implements [feed.Closer].
func (h *handler) Close(ctx context.Context, l feed.Lease, why feed.Reason) error {
	if closer, ok := h.next.(feed.Closer); ok {
		return closer.Close(ctx, l, why)
	}
	return nil
}

// linkTraces links a span to the traces of changes.
func (m *Metrics) linkTraces(ctx context.Context, span trace.Span, changes []feed.Change) {
	none := trace.ContextWithSpanContext(ctx, trace.SpanContext{}) // in place of a traceparent that is invalid
	links := 0
	for i := range changes {
		parent, state := m.o.TraceParent(&changes[i])
		if parent == "" {
			continue
		}
		carrier := propagation.MapCarrier{"traceparent": parent, "tracestate": state}
		of := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(none, carrier))
		if !of.IsValid() {
			continue
		}
		span.AddLink(trace.Link{SpanContext: of})
		if links++; links == maxLinks {
			return
		}
	}
}

// traceParentOf is the default of Options.TraceParent.
func traceParentOf(c *feed.Change) (parent, state string) {
	if !strings.Contains(string(c.Body), `"traceparent"`) { // parsing all documents would cost more than the span
		return "", ""
	}
	var document struct {
		TraceParent string `json:"traceparent"`
		TraceState  string `json:"tracestate"`
	}
	if json.Unmarshal([]byte(c.Body), &document) != nil {
		return "", ""
	}
	return document.TraceParent, document.TraceState
}
