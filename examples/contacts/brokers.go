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

// publisher is an open broker.
type publisher interface {
	outbox.Publisher
	Close() error
}

// brokerForms are the forms of broker addresses. For the last three, build with -tags brokers: see tagged.go.
const brokerForms = `embedded:DIR, nats://HOST:PORT, https://HOST/PATH,
servicebus:NAMESPACE/ENTITY, kafka:HOST:PORT/TOPIC or amqp://USER@HOST/VHOST?exchange=NAME`

// secretVariable is the environment variable with the key that signs requests to a webhook.
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
		err = fmt.Errorf("want %s, of which the last three need go run -tags brokers",
			strings.ReplaceAll(brokerForms, "\n", " "))
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

// consumeEvents calls a function for each event that the broker receives, until ctx ends. The events of a contact come
// in order. If the function returns an error, consumeEvents returns this error, and the event comes again when you
// start a consumer of that name again. consumeEvents reads only NATS and Service Bus. Events for another broker have
// their consumers elsewhere.
func (o options) consumeEvents(ctx context.Context, from publisher, name string,
	handle func(outbox.Message) error,
) error {
	if nats, ok := from.(*natspub.Publisher); ok {
		return consumeNATS(ctx, nats, name, handle)
	}
	if strings.HasPrefix(o.to, "servicebus:") {
		return consumeServiceBus(ctx, o.to, o.consumer, func(_ context.Context, m outbox.Message) error {
			return handle(m)
		})
	}
	<-ctx.Done()
	return nil
}

// ackWait is the time after which an event comes again if its process was killed. Printing an event takes much less
// time.
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
		InactiveThreshold: natspub.DefaultMaxAge, // if the process does not come back, its consumer is removed
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
		case errors.Is(err, jetstream.ErrNoHeartbeat): // the connection was lost, and is restored automatically
			continue
		case err != nil:
			return fmt.Errorf("consumer %s: %w", name, err)
		}
		event, err := natspub.Message(msg.Headers(), msg.Data())
		if err != nil { // the message is not an event
			slog.Warn("message is left out", "subject", msg.Subject(), "err", err)
			_ = msg.Term()
			continue
		}
		if err := handle(event); err != nil {
			return fmt.Errorf("consume event %s: %w", event.ID, err)
		}
		_ = msg.Ack() // if the acknowledgement is lost, the event is redelivered, and the consumer recognizes the event
	}
}
