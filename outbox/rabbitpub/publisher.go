package rabbitpub

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
	"github.com/millrace/changefeed/outbox/internal/calls"
)

// Options are the optional settings of a [Publisher].
type Options struct {
	// RoutingKey is the routing key of all messages, instead of their keys: with the exchange "", the name of a queue.
	RoutingKey string

	// Client are settings of the connection, such as TLS.
	Client amqp.Config
}

// Publisher is an [outbox.Publisher] to an exchange. RabbitMQ does not de-duplicate.
type Publisher struct {
	url, exchange string
	opts          Options

	dialing chan struct{} // full while a connection is being made
	calls   calls.Calls   // of Publish

	mu   sync.Mutex
	conn *amqp.Connection
	idle []*channel
}

var (
	// ErrNoRoute: no queue is bound to the exchange for the routing key.
	ErrNoRoute = errors.New("no queue gets the message")
	// ErrNotConfirmed: the broker has refused the message, or the connection has ended before the broker answered.
	ErrNotConfirmed = errors.New("not confirmed")
)

// New makes a publisher to an exchange of the broker with this URL, amqp or amqps. The publisher connects at its first
// use. The exchange must exist.
func New(broker, exchange string, o Options) (*Publisher, error) {
	if _, err := amqp.ParseURI(broker); err != nil {
		if bad, ok := errors.AsType[*url.Error](err); ok {
			err = bad.Err // without the URL, which contains a password
		}
		return nil, fmt.Errorf("URL of RabbitMQ: %w", err)
	}
	return &Publisher{url: broker, exchange: exchange, opts: o, dialing: make(chan struct{}, 1)}, nil
}

// closeTimeout limits how long the broker may take to close the connection.
const closeTimeout = 5 * time.Second

// Close ends the connection, and with it the calls in progress.
func (p *Publisher) Close() error {
	p.calls.Close()
	defer p.calls.Wait()
	p.mu.Lock()
	conn := p.conn
	p.conn, p.idle = nil, nil
	p.mu.Unlock()
	if conn == nil || conn.IsClosed() {
		return nil
	}
	return conn.CloseDeadline(time.Now().Add(closeTimeout))
}

// Publish implements [outbox.Publisher].
func (p *Publisher) Publish(ctx context.Context, msgs []outbox.Message) (int, error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	var n atomic.Int64
	ended := make(chan error, 1)
	err := p.calls.Go(func() { ended <- p.send(ctx, msgs, &n) }) // the client ignores ctx
	if err != nil {
		ended <- err
	}
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	if ctx.Err() != nil && (err != nil || int(n.Load()) < len(msgs)) {
		err = context.Cause(ctx)
	}
	accepted := int(n.Load())
	if err == nil || accepted == len(msgs) {
		return len(msgs), nil
	}
	return accepted, fmt.Errorf("publish %q to RabbitMQ exchange %q: %w", msgs[accepted].ID, p.exchange, explain(err))
}

// send sends messages one after the other, and counts the accepted messages.
func (p *Publisher) send(ctx context.Context, msgs []outbox.Message, n *atomic.Int64) error {
	if len(msgs) == 0 {
		return nil
	}
	ch, err := p.takeChannel(ctx)
	if err != nil {
		return err
	}
	for _, m := range msgs {
		if ctx.Err() != nil {
			break
		}
		if err = ch.send(p.exchange, p.routingKey(m), message(m)); err != nil {
			break
		}
		n.Add(1)
	}
	p.putBack(ch)
	return err
}

func (p *Publisher) routingKey(m outbox.Message) string {
	if p.opts.RoutingKey != "" {
		return p.opts.RoutingKey
	}
	return short(m.Key)
}

// short returns a text that fits into a short string of AMQP: the text, or a hash.
func short(text string) string {
	const most = 255 // bytes
	if len(text) <= most {
		return text
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text)))
}

func message(m outbox.Message) amqp.Publishing {
	headers := amqp.Table{"key": m.Key}
	for name, value := range m.CloudEvent() {
		headers["cloudEvents:"+name] = value
	}
	for name, value := range m.TraceContext() {
		headers[name] = value
	}
	return amqp.Publishing{
		DeliveryMode: amqp.Persistent, MessageId: short(m.ID), Type: short(m.Action), ContentType: outbox.ContentType,
		Timestamp: m.Time, Headers: headers, Body: m.Data,
	}
}

// explain marks the errors that no retry can mend.
func explain(err error) error {
	said, ok := errors.AsType[*amqp.Error](err)
	if ok && (said.Code == amqp.ContentTooLarge || said.Code == amqp.PreconditionFailed &&
		strings.Contains(said.Reason, "message size")) {
		return feed.Poison(fmt.Errorf("%w: %w", outbox.ErrTooLarge, err))
	}
	return err
}
