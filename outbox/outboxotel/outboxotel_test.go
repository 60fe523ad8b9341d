package outboxotel_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/outboxotel"
)

const (
	commit  = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	another = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

// to is a publisher that keeps what it gets, and answers as it is told.
type to struct {
	got  []outbox.Message
	span trace.SpanContext // in which it was called
	n    int
	err  error
}

func (p *to) Publish(ctx context.Context, msgs []outbox.Message) (int, error) {
	p.got, p.span = msgs, trace.SpanContextFromContext(ctx)
	if p.err != nil {
		return p.n, p.err
	}
	return len(msgs), nil
}

// publish has a relay publish events of one key that were stored with these trace contexts, and returns what it
// records.
func publish(t *testing.T, p *to, o outboxotel.Options, stored ...string) tracetest.SpanStub {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	o.TracerProvider = sdk.NewTracerProvider(sdk.WithSyncer(spans))
	relay,
		err := outbox.NewRelay(p, outbox.RelayOptions{Hooks: outbox.RelayHooks{Publishing: outboxotel.Publishing(o)}})
	if err != nil {
		t.Fatal(err)
	}
	b := &feed.Batch{}
	for i, context := range stored {
		body := fmt.Appendf(nil,
			`{"id":"%d","partitionKey":"c","type":"domainEvent","seq":%d,"traceparent":%q,"data":{"action":"Renamed"}}`,
			i, i+1, context)
		b.Changes = append(b.Changes, feed.Change{ID: fmt.Sprint(i), PartitionKey: `["c"]`, LSN: int64(i), Body: body})
	}
	if err := relay.Handle(t.Context(), b); (err == nil) != (p.err == nil) {
		t.Fatal(err)
	}
	if n := len(spans.GetSpans()); n != 1 {
		t.Fatalf("%d spans have ended, want 1", n)
	}
	return spans.GetSpans()[0]
}

func TestASpanLinksToTheTraceOfEachEvent(t *testing.T) {
	p := &to{}
	span := publish(t, p, outboxotel.Options{System: "nats", Destination: "contacts"}, commit, another, commit)
	var linked []string
	for _, l := range span.Links {
		id := attribute.NewSet(l.Attributes...)
		v, _ := id.Value("messaging.message.id")
		linked = append(linked, fmt.Sprintf("%s 00-%s-%s-%s", v.AsString(), l.SpanContext.TraceID(),
			l.SpanContext.SpanID(), l.SpanContext.TraceFlags()))
		if !l.SpanContext.IsRemote() {
			t.Error("link is to a span of this process")
		}
	}
	if diff := cmp.Diff([]string{"0 " + commit, "1 " + another, "2 " + commit}, linked); diff != "" {
		t.Error(diff)
	}
	for i, want := range []string{commit, another, commit} {
		if p.got[i].TraceParent != want {
			t.Errorf("message %d carries %s, want %s as it was stored", i, p.got[i].TraceParent, want)
		}
	}
	if span.Name != "send contacts" || span.SpanKind != trace.SpanKindClient || span.Parent.IsValid() {
		t.Errorf("span %q of kind %v under %v, want a client's root", span.Name, span.SpanKind, span.Parent)
	}
	if p.span.SpanID() != span.SpanContext.SpanID() {
		t.Error("publisher is called outside of the span")
	}
	want := map[string]string{
		"messaging.system": "nats", "messaging.operation.name": "send", "messaging.operation.type": "send",
		"messaging.destination.name": "contacts", "messaging.batch.message_count": "3",
	}
	if diff := cmp.Diff(want, attributes(span)); diff != "" {
		t.Error(diff)
	}
}

func attributes(s tracetest.SpanStub) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

func TestAnEventWithoutATraceGetsThatOfItsPublication(t *testing.T) {
	p := &to{}
	span := publish(t, p, outboxotel.Options{}, "", commit)
	if got := trace.SpanContextFromContext(outboxotel.Extract(t.Context(),
		p.got[0])); got.SpanID() != span.SpanContext.SpanID() || got.TraceID() != span.SpanContext.TraceID() {
		t.Errorf("message carries %q, want the span that publishes it", p.got[0].TraceParent)
	}
	if p.got[1].TraceParent != commit {
		t.Errorf("message beside it carries %q, want %s", p.got[1].TraceParent, commit)
	}
	if span.Name != "send" || span.SpanKind != trace.SpanKindProducer || len(span.Links) != 1 {
		t.Errorf("span %q of kind %v with %d links, want a producer's with 1", span.Name, span.SpanKind,
			len(span.Links))
	}
}

func TestAnEventsTraceContextThatCannotBeReadIsPassedOn(t *testing.T) {
	p := &to{}
	span := publish(t, p, outboxotel.Options{}, "of another kind")
	if len(span.Links) != 0 || p.got[0].TraceParent != "of another kind" {
		t.Errorf("%d links, message carries %q", len(span.Links), p.got[0].TraceParent)
	}
	if id := attributes(span)["messaging.message.id"]; id != "0" {
		t.Errorf("span is about message %q, want 0", id)
	}
}

type errFull struct{}

func (errFull) Error() string { return "stream is full" }

func TestASpanSaysWhyAPublicationHasFailed(t *testing.T) {
	span := publish(t, &to{n: 1, err: fmt.Errorf("publish: %w", errFull{})}, outboxotel.Options{}, commit, commit)
	if span.Status.Code != codes.Error || span.Status.Description != "publish: stream is full" {
		t.Errorf("status is %+v", span.Status)
	}
	got := attributes(span)
	if got["changefeed.outbox.accepted"] != "1" ||
		got["error.type"] != "github.com/millrace/changefeed/outbox/outboxotel_test.errFull" {
		t.Errorf("attributes are %v", got)
	}
	if span := publish(t, &to{}, outboxotel.Options{}, commit); span.Status.Code != codes.Unset {
		t.Errorf("status of a success is %+v", span.Status)
	}
}

func TestATraceContextSurvivesTheOutbox(t *testing.T) {
	if got := outboxotel.TraceParent(t.Context()); got != "" {
		t.Errorf("without a span it is %q", got)
	}
	ctx := outboxotel.Extract(t.Context(), outbox.Message{TraceParent: commit})
	if got := outboxotel.TraceParent(ctx); got != commit {
		t.Errorf("got %s, want %s", got, commit)
	}
	if got := outboxotel.TraceState(t.Context()); got != "" {
		t.Errorf("without a span the tracestate is %q", got)
	}
	if got := outboxotel.TraceState(outboxotel.Extract(t.Context(),
		outbox.Message{TraceParent: commit, TraceState: "a=1,b=2"})); got != "a=1,b=2" {
		t.Errorf("the tracestate is %q", got)
	}
	if !trace.SpanContextFromContext(ctx).IsRemote() {
		t.Error("span is not remote")
	}
	for _, none := range []string{
		"", "00-4bf92f3577b34da6a3ce929d0e0e4736",
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01",
	} {
		if got := trace.SpanContextFromContext(outboxotel.Extract(ctx,
			outbox.Message{TraceParent: none})); got.IsValid() {
			t.Errorf("of %q the span is %v, want none, and not the caller's", none, got)
		}
	}
}

func TestAProviderThatIsSetLaterIsUsed(t *testing.T) {
	publishing := outboxotel.Publishing(outboxotel.Options{})
	before := otel.GetTracerProvider()
	defer otel.SetTracerProvider(before)
	spans := tracetest.NewInMemoryExporter()
	otel.SetTracerProvider(sdk.NewTracerProvider(sdk.WithSyncer(spans)))
	_, ended := publishing(t.Context(), []outbox.Message{{ID: "1"}})
	ended(1, nil)
	if n := len(spans.GetSpans()); n != 1 {
		t.Errorf("%d spans, want 1", n)
	}
}
