package rabbitpub

import (
	"context"
	"fmt"
	"net"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// channel is a channel of a connection. Only one call uses a channel at a time, so that returned and refused messages
// belong to that call.
type channel struct {
	*amqp.Channel
	returned chan amqp.Return
	ended    chan *amqp.Error
}

// send sends a message and waits for its confirmation. If no queue receives the message, the broker returns it before
// the confirmation.
func (c *channel) send(exchange, key string, m amqp.Publishing) error {
	confirmation, err := c.PublishWithDeferredConfirm(exchange, key, true, false, m)
	if err != nil {
		return c.endReason(err)
	}
	if !confirmation.Wait() {
		return c.endReason(ErrNotConfirmed)
	}
	select {
	case r := <-c.returned:
		return fmt.Errorf("%w: %d %s, routing key %q", ErrNoRoute, r.ReplyCode, r.ReplyText, key)
	default:
		return nil
	}
}

// endReason returns why the channel has ended; if the channel is open, reason returns err.
func (c *channel) endReason(err error) error {
	select {
	case why, ok := <-c.ended:
		if ok && why != nil {
			return why
		}
	default:
	}
	return err
}

// takeChannel lends a channel to a call: an idle channel, or a new channel, on a new connection if necessary.
func (p *Publisher) takeChannel(ctx context.Context) (*channel, error) {
	select {
	case p.dialing <- struct{}{}: // one call makes the connection, the others wait
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-p.dialing }()
	if ch := p.idleChannel(); ch != nil {
		return ch, nil
	}
	conn, err := p.connection(ctx)
	if err != nil {
		return nil, err
	}
	opened, err := conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("open a channel: %w", err)
	}
	if err := opened.Confirm(false); err != nil {
		return nil, fmt.Errorf("ask for confirmations: %w", err)
	}
	return &channel{
		opened, opened.NotifyReturn(make(chan amqp.Return, 1)),
		opened.NotifyClose(make(chan *amqp.Error, 1)),
	}, nil
}

// putBack takes a usable channel back.
func (p *Publisher) putBack(ch *channel) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !ch.IsClosed() {
		p.idle = append(p.idle, ch)
	}
}

func (p *Publisher) idleChannel() *channel {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.idle) > 0 {
		last := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		if !last.IsClosed() {
			return last
		}
	}
	return nil
}

// connection returns the present connection, or a new connection.
func (p *Publisher) connection(ctx context.Context) (*amqp.Connection, error) {
	if err := p.calls.Closed(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	conn := p.conn
	p.mu.Unlock()
	if conn != nil && !conn.IsClosed() {
		return conn, nil
	}
	config := p.opts.Client
	if config.Dial == nil {
		config.Dial = func(network, address string) (net.Conn, error) { return dial(ctx, network, address) }
	}
	conn, err := amqp.DialConfig(p.url, config)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return conn, p.keepConnection(conn)
}

// keepConnection stores a connection in the publisher, unless the publisher was closed meanwhile.
func (p *Publisher) keepConnection(conn *amqp.Connection) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.calls.Closed(); err != nil {
		_ = conn.Close()
		return err
	}
	p.conn = conn
	return nil
}

// dial connects, and sets a deadline for the answer of the broker, which the client removes when it has the answer.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(dialTimeout))
}

const dialTimeout = 10 * time.Second
