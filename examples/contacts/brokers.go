package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/natspub"
	"github.com/millrace/changefeed/outbox/webhookpub"
)

// publisher is a broker that is open.
type publisher interface {
	outbox.Publisher
	Close() error
}

// brokerForms are the addresses of brokers. The last three need a binary that was built with -tags brokers: see tagged.go.
const brokerForms = `embedded:DIR, nats://HOST:PORT, https://HOST/PATH,
servicebus:NAMESPACE/ENTITY, kafka:HOST:PORT/TOPIC or amqp://USER@HOST/VHOST?exchange=NAME`

// secretVariable is the environment variable with the key that requests to a webhook are signed with.
const secretVariable = "CHANGEFEED_WEBHOOK_SECRET"

// openBroker opens the broker of an address.
func openBroker(ctx context.Context, address string) (p publisher, err error) {
	switch scheme, rest, _ := strings.Cut(address, ":"); scheme {
	case "embedded":
		p, err = natspub.Embedded(ctx, rest, natspub.Options{})
	case "nats":
		p, err = natspub.Connect(ctx, address, natspub.Options{})
	case "https", "http":
		p, err = openWebhook(address)
	default:
		if open := tagged[scheme]; open != nil {
			p, err = open(ctx, address)
			break
		}
		err = fmt.Errorf("want %s, of which the last three need go run -tags brokers", strings.ReplaceAll(brokerForms, "\n", " "))
	}
	if err != nil {
		return nil, fmt.Errorf("--to is %s: %w", address, err)
	}
	return p, nil
}

// openWebhook sends events as CloudEvents.
func openWebhook(address string) (publisher, error) {
	var o webhookpub.Options
	if text := os.Getenv(secretVariable); text != "" {
		secret, err := webhookpub.ParseSecret(text)
		if err != nil {
			return nil, fmt.Errorf("$%s: %w", secretVariable, err)
		}
		o.Secret = secret
	} else {
		slog.Warn("requests to the webhook are not signed: set $" + secretVariable)
	}
	return webhookpub.New(address, o)
}

// consume calls a function for each event that the broker gets, those of a contact in order, until ctx ends. It returns
// the function's error, and the event comes again when a consumer of that name is started again. NATS and Service Bus
// are read here: events that go to another broker have their consumers elsewhere.
func (o options) consume(ctx context.Context, from publisher, name string, handle func(outbox.Message) error) error {
	if nats, ok := from.(*natspub.Publisher); ok {
		return consumeNATS(ctx, nats, name, handle)
	}
	if strings.HasPrefix(o.to, "servicebus:") {
		return consumeServiceBus(ctx, o.to, o.consumer, func(_ context.Context, m outbox.Message) error { return handle(m) })
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
