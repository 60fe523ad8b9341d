package servicebuspub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/Azure/go-amqp"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/internal/calls"
)

// Options are the optional settings of a [Publisher].
type Options struct {
	// Unfit accepts an entity without duplicate detection or sessions, with a warning.
	Unfit bool

	// Warn receives problems of the entity that are no reason to refuse it, for example that the credential may not
	// read its settings. By default they are logged.
	Warn func(error)

	// Client contains options of the client of Service Bus, such as a TLS configuration or WebSockets. By default the
	// client retries only a little, because the processor retries too.
	Client azservicebus.ClientOptions

	// Admin contains options of the client that reads the settings of the entity.
	Admin admin.ClientOptions
}

// Publisher is an [outbox.Publisher] to a queue or topic.
type Publisher struct {
	entity string
	sender *azservicebus.Sender
	close  func() error
	calls  calls.Calls
}

// Open makes a publisher to a queue or topic of a namespace, given by its full name. Open reads the entity's settings,
// and refuses an entity that cannot keep the promises of an outbox. The publisher connects at its first use.
func Open(ctx context.Context, namespace string, credential azcore.TokenCredential, entity string,
	o Options,
) (*Publisher, error) {
	client, err := azservicebus.NewClient(namespace, credential, o.clientOptions(false))
	if err != nil {
		return nil, fmt.Errorf("make a client of Service Bus: %w", err)
	}
	settings, err := admin.NewClient(namespace, credential, &o.Admin)
	return open(ctx, client, settings, err, entity, o)
}

// OpenConnectionString is Open with a connection string, as the portal shows it. If the string contains
// UseDevelopmentEmulator=true, the settings of the entity are not read, because Microsoft's emulator does not show them
// to this client; you receive a warning.
func OpenConnectionString(ctx context.Context, connection, entity string, o Options) (*Publisher, error) {
	client, err := azservicebus.NewClientFromConnectionString(connection, o.clientOptions(isEmulator(connection)))
	if err != nil {
		return nil, fmt.Errorf("make a client of Service Bus: %w", err)
	}
	if isEmulator(connection) {
		return open(ctx, client, nil, nil, entity, o)
	}
	settings, err := admin.NewClientFromConnectionString(connection, &o.Admin)
	return open(ctx, client, settings, err, entity, o)
}

func isEmulator(connection string) bool {
	return strings.Contains(strings.ToLower(connection), "usedevelopmentemulator=true")
}

// clientOptions returns the options of the client, with few retries and strict connections.
func (o Options) clientOptions(isPlain bool) *azservicebus.ClientOptions {
	if o.Client.RetryOptions == (azservicebus.RetryOptions{}) {
		o.Client.RetryOptions = azservicebus.RetryOptions{
			MaxRetries: 1, RetryDelay: 100 * time.Millisecond,
			MaxRetryDelay: time.Second,
		}
	}
	strict := strictly(o.Client, isPlain)
	return &strict
}

func open(ctx context.Context, client *azservicebus.Client, settings *admin.Client, err error, entity string,
	o Options,
) (*Publisher, error) {
	closing := func() error {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer stop()
		return client.Close(ctx)
	}
	if err == nil {
		err = o.checkEntity(ctx, settings, entity)
	}
	var sender *azservicebus.Sender
	if err == nil {
		sender, err = client.NewSender(entity, nil)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s of Service Bus: %w", entity, err), closing())
	}
	return &Publisher{entity: entity, sender: sender, close: closing}, nil
}

const closeTimeout = 5 * time.Second // to close a connection to a service that may be gone

// Close ends the connection. Messages in transit may not arrive.
func (p *Publisher) Close() error {
	p.calls.Close()
	defer p.calls.Wait()
	return p.close()
}

// Publish implements [outbox.Publisher].
func (p *Publisher) Publish(ctx context.Context, msgs []outbox.Message) (n int, err error) {
	most := len(msgs)
	for n < len(msgs) {
		count, err := p.sendUntilDone(ctx, msgs[n:min(n+most, len(msgs))])
		switch {
		case err == nil:
			n += count
		case count > 1 && isAboutMessage(err):
			most = count / 2 // the service does not say which message of a batch is bad
		default:
			return n, fmt.Errorf("publish %q to %s of Service Bus: %w", msgs[n].ID, p.entity, explain(err))
		}
	}
	return n, nil
}

// sendUntilDone sends messages until ctx ends. The client ignores ctx for half a minute while it writes to a blocked
// connection.
func (p *Publisher) sendUntilDone(ctx context.Context, msgs []outbox.Message) (count int, err error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	type answer struct {
		count int
		err   error
	}
	answers := make(chan answer, 1)
	if err := p.calls.Go(func() {
		count, err := p.send(ctx, msgs)
		answers <- answer{count, err}
	}); err != nil {
		return 0, err
	}
	select {
	case a := <-answers:
		if a.err != nil && ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		return a.count, a.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// send sends as many messages as fit into one batch, which is accepted as a whole or not at all. send returns the
// number of these messages, also if they were refused.
func (p *Publisher) send(ctx context.Context, msgs []outbox.Message) (count int, err error) {
	batch, err := p.sender.NewMessageBatch(ctx, nil)
	if err != nil {
		return 0, err
	}
	for _, m := range msgs {
		if err = check(m); err == nil {
			err = batch.AddMessage(message(m), nil)
		}
		if err != nil {
			break
		}
		count++
	}
	switch {
	case count > 0:
		return count, p.sender.SendMessageBatch(ctx, batch, nil)
	case errors.Is(err, azservicebus.ErrMessageTooLarge):
		return 1, p.sender.SendMessage(ctx, message(msgs[0]), nil) // some entities take larger messages than batches
	}
	return 1, err
}

// maxName is the largest number of UTF-16 units in a message id, a session id and a partition key.
const maxName = 128

var errTooLong = fmt.Errorf("more than the %d characters that Service Bus takes", maxName)

// check refuses messages that the service would refuse, because such a message would fail the others in its batch.
func check(m outbox.Message) error {
	for name, text := range map[string]string{"id": m.ID, "key": m.Key} {
		if len(utf16.Encode([]rune(text))) > maxName {
			return fmt.Errorf("%s %.20q…: %w", name, text, errTooLong)
		}
	}
	return nil
}

// prefix is the prefix of the properties with attributes.
const prefix = "cloudEvents:"

func message(m outbox.Message) *azservicebus.Message {
	contentType := outbox.ContentType
	properties := map[string]any{}
	for name, value := range m.CloudEvent() {
		properties[prefix+name] = value
	}
	for name, value := range m.TraceContext() {
		properties[name] = value
	}
	return &azservicebus.Message{
		MessageID: &m.ID, SessionID: &m.Key, PartitionKey: &m.Key, Subject: &m.Action, ContentType: &contentType,
		ApplicationProperties: properties, Body: m.Data,
	}
}

// condition returns the AMQP name of an error if the error came from the service. The client hides the name if it
// considers the connection lost, as for unknown names. In that case condition reads the name from the text, in the
// format of go-amqp.
func condition(err error) amqp.ErrCond {
	if said, ok := errors.AsType[*amqp.Error](err); ok {
		return said.Condition
	}
	if said, ok := errors.AsType[*azservicebus.Error](err); ok {
		_, text, _ := strings.Cut(said.Error(), "*Error{Condition: ")
		name, _, _ := strings.Cut(text, ",")
		return amqp.ErrCond(name)
	}
	return ""
}

func isTooLarge(err error) bool {
	return errors.Is(err, azservicebus.ErrMessageTooLarge) || condition(err) == amqp.ErrCondMessageSizeExceeded
}

// isAboutMessage reports whether an error says that a message, or a message of a batch, is refused because of its
// content.
func isAboutMessage(err error) bool {
	switch condition(err) {
	case amqp.ErrCondDecodeError, amqp.ErrCondInvalidField, "com.microsoft:argument-error",
		"com.microsoft:argument-out-of-range":
		return true
	}
	return isTooLarge(err)
}

// explain marks the errors that no retry can mend.
func explain(err error) error {
	switch {
	case isTooLarge(err):
		return feed.Poison(fmt.Errorf("%w: %w", outbox.ErrTooLarge, err))
	case errors.Is(err, errTooLong), isAboutMessage(err):
		return feed.Poison(err)
	}
	return err
}
