package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/deadletters"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/broker"
	"github.com/millrace/changefeed/internal/place"
	"github.com/millrace/changefeed/internal/unit"
	"github.com/millrace/changefeed/internal/usage"
	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/natspub"
)

// containers are the container of contacts and what the relay needs beside it.
type containers struct {
	*place.Opener
	contacts *place.Container
	store    store
	leases   changefeed.LeaseStore
	letters  changefeed.LetterBox
	isAlone  bool // no other process can have the leases
}

// openContainers opens the containers, and makes those that do not exist.
func openContainers(ctx context.Context, contacts, leases string) (*containers, error) {
	at, err := place.Parse("--contacts", contacts)
	if err != nil {
		return nil, err
	}
	leasesAt := at.Beside("leases")
	if leases != "" {
		if leasesAt, err = place.Parse("--leases", leases); err != nil {
			return nil, err
		}
	}
	c := &containers{Opener: place.NewOpener(place.Settings{})}
	if err = c.openContacts(ctx, at); err == nil {
		err = c.openRelay(ctx, leasesAt)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// openContacts opens the container of contacts, whose documents may expire.
func (c *containers) openContacts(ctx context.Context, at place.Address) (err error) {
	spec := docstore.ContainerSpec{Paths: []string{"/partitionKey"}, DefaultTTL: new(docstore.NoDefaultTTL), Ranges: 4}
	given := func(part string) bool { return part == "pk" || part == "ttl" }
	c.contacts, err = c.Make(ctx, at, place.Wanted{Spec: spec, Given: given})
	if _, differs := errors.AsType[usage.Error](err); differs {
		err = fmt.Errorf("--contacts is %s: want a container with the partition key /partitionKey and the default time to live -1: %w", at, err)
	}
	if err != nil {
		return err
	}
	c.store = c.contacts.Concrete()
	return nil
}

// openRelay opens the leases, and the dead letters beside them.
func (c *containers) openRelay(ctx context.Context, at place.Address) error {
	leases, err := c.openOr(ctx, at, c.CreateLeases)
	if err != nil {
		return err
	}
	c.isAlone = leases.Local != nil
	if c.leases, err = unit.OpenStore(ctx, leases, processorName, c.contacts); err != nil {
		return err
	}
	letters, err := c.openOr(ctx, at.Beside("letters"), func(ctx context.Context, at place.Address) (*place.Container, error) {
		return c.Create(ctx, at, docstore.ContainerSpec{Paths: []string{deadletters.KeyPath}})
	})
	if err != nil {
		return err
	}
	c.letters, err = deadletters.Container(letters.Concrete(), processorName, c.contacts.Concrete())
	return err
}

// openOr opens a container, or makes it, unless another process makes it at this moment.
func (c *containers) openOr(ctx context.Context, at place.Address, create func(context.Context, place.Address) (*place.Container, error)) (*place.Container, error) {
	found, err := c.Open(ctx, at)
	if !errors.Is(err, place.ErrNoContainer) {
		return found, err
	}
	if found, err = create(ctx, at); errors.Is(err, changefeed.ErrConflict) {
		return c.Open(ctx, at)
	}
	return found, err
}

// consume calls a function for each event that the broker gets, those of a contact in order, until ctx ends. It returns
// the function's error, and the event comes again when a consumer of that name is started again. NATS and Service Bus
// are read here: events that go to another broker have their consumers elsewhere.
func (o options) consume(ctx context.Context, from broker.Publisher, name string, handle func(outbox.Message) error) error {
	if nats, ok := from.(*natspub.Publisher); ok {
		return consumeNATS(ctx, nats, name, handle)
	}
	if strings.HasPrefix(o.to, "servicebus:") {
		return broker.ConsumeServiceBus(ctx, o.to, o.consumer, func(_ context.Context, m outbox.Message) error { return handle(m) })
	}
	<-ctx.Done()
	return nil
}

// ackWait is when an event comes again that a process had in hand when it was killed. It takes much less to print one.
const ackWait = 3 * time.Second

// consumeNATS reads a durable consumer of the stream.
func consumeNATS(ctx context.Context, nats *natspub.Publisher, name string, handle func(outbox.Message) error) error {
	js, err := jetstream.New(nats.Conn())
	if err != nil {
		return err
	}
	durable, err := js.CreateOrUpdateConsumer(ctx, natspub.DefaultStream, jetstream.ConsumerConfig{
		Durable: name, AckPolicy: jetstream.AckExplicitPolicy,
		MaxAckPending:     1, // an event that was not handled comes before all others
		AckWait:           ackWait,
		InactiveThreshold: natspub.DefaultMaxAge, // a process that does not come back leaves nothing behind
	})
	if err != nil {
		return fmt.Errorf("consumer %s: %w", name, err)
	}
	read, err := durable.Messages()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, read.Stop)()
	for {
		msg, err := read.Next()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, jetstream.ErrNoHeartbeat): // the connection was lost; it is made again
			continue
		case err != nil:
			return fmt.Errorf("consumer %s: %w", name, err)
		}
		event, err := natspub.Message(msg.Headers(), msg.Data())
		if err != nil { // it is no event, and never will be
			slog.Warn("message is left out", "subject", msg.Subject(), "err", err)
			_ = msg.Term()
			continue
		}
		if err := handle(event); err != nil {
			return fmt.Errorf("consume event %s: %w", event.ID, err)
		}
		_ = msg.Ack() // if it gets lost, the event comes again, and is recognized
	}
}
