package outboxotel_test

import (
	"context"
	"fmt"
	"log"
	"os"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/outboxotel"
)

type contact struct {
	outbox.Recorder
	Name string `json:"name"`
}

type contactCreated struct{}

func (contactCreated) EventName() string { return "ContactCreatedEvent" }

// consumer is a publisher that hands its messages to their consumer at once.
type consumer func(context.Context, outbox.Message)

func (c consumer) Publish(ctx context.Context, msgs []outbox.Message) (int, error) {
	for _, m := range msgs {
		c(ctx, m)
	}
	return len(msgs), nil
}

// The commit of a contact, the publication of its event and the work of its consumer, as spans.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	spans := tracetest.NewInMemoryExporter() // a program has one that sends them
	provider := sdk.NewTracerProvider(sdk.WithSyncer(spans))
	tracer := provider.Tracer("contacts")
	contacts, leases, done := open(ctx)
	defer done()

	// The service: its span's context is stored with the event.
	c := &contact{Name: "Ada"}
	c.RecordCreated(contactCreated{})
	u := outbox.NewUnit(contacts, outbox.Options{TraceParent: outboxotel.TraceParent})
	u.Create(&outbox.Doc[*contact]{ID: "1", PartitionKey: "1", Type: "contact", Data: c})
	request, span := tracer.Start(ctx, "POST /contacts")
	if err := u.Commit(request); err != nil {
		log.Fatal(err)
	}
	span.End()

	// The consumer: its span is linked to the event's.
	to := consumer(func(ctx context.Context, m outbox.Message) {
		cause := trace.LinkFromContext(outboxotel.Extract(ctx, m))
		_, span := tracer.Start(ctx, "process contacts", trace.WithNewRoot(),
			trace.WithSpanKind(trace.SpanKindConsumer), trace.WithLinks(cause))
		span.End()
		stop() // one event is enough for an example
	})

	// The relay: its span is linked to that of each event that it publishes.
	relay, err := outbox.NewRelay(to, outbox.RelayOptions{Source: "/contacts", Hooks: outbox.RelayHooks{
		Publishing: outboxotel.Publishing(outboxotel.Options{TracerProvider: provider, Destination: "contacts"}),
	}})
	if err != nil {
		log.Fatal(err)
	}
	p, err := changefeed.New(contacts, leases, relay, changefeed.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := p.Run(ctx); err != nil {
		log.Fatal(err)
	}

	names := map[trace.SpanID]string{}
	for _, s := range spans.GetSpans() {
		names[s.SpanContext.SpanID()] = s.Name
	}
	for _, s := range spans.GetSpans() {
		fmt.Print(s.Name)
		for _, l := range s.Links {
			fmt.Print(" -> ", names[l.SpanContext.SpanID()])
		}
		fmt.Println()
	}
	// Output:
	// POST /contacts
	// process contacts -> POST /contacts
	// send contacts -> POST /contacts
}

// open opens a container of contacts, and the leases of their relay.
func open(ctx context.Context) (contacts *docstore.Container, leases feed.LeaseStore, done func()) {
	dir, err := os.MkdirTemp("", "contacts")
	if err != nil {
		log.Fatal(err)
	}
	db, err := docstore.Open(dir, docstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if contacts, err = db.CreateContainer(ctx, docstore.ContainerSpec{
		ID: "contacts", Paths: []string{"/partitionKey"},
		DefaultTTL: new(docstore.NoDefaultTTL),
	}); err != nil {
		log.Fatal(err)
	}
	container, err := db.CreateContainer(ctx, docstore.LeaseSpec("leases"))
	if err != nil {
		log.Fatal(err)
	}
	if leases, err = docstore.NewLeases(ctx, container, "relay", contacts); err != nil {
		log.Fatal(err)
	}
	return contacts, leases, func() { db.Close(); os.RemoveAll(dir) }
}
