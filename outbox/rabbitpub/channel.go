package rabbitpub

import (
	"context"
	"fmt"
	"net"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// channel is a channel of a connection that one call has at a time, so that what the broker returns
// and refuses on it is of that call.
type channel struct {
	*amqp.Channel
	returned chan amqp.Return
	ended    chan *amqp.Error
}

// send sends a message and waits for its confirmation. What no queue gets is returned before it is confirmed.
func (c *channel) send(exchange, key string, m amqp.Publishing) error {
	confirmation, err := c.PublishWithDeferredConfirm(exchange, key, true, false, m)
	if err != nil {
		return c.reason(err)
	}
	if !confirmation.Wait() {
		return c.reason(ErrNotConfirmed)
	}
	select {
	case r := <-c.returned:
		return fmt.Errorf("%w: %d %s, routing key %q", ErrNoRoute, r.ReplyCode, r.ReplyText, key)
	default:
		return nil
	}
}

// reason is why the channel has ended, if it has, or else err.
func (c *channel) reason(err error) error {
	select {
	case why, ok := <-c.ended:
		if ok && why != nil {
			return why
		}
	default:
	}
	return err
}

// take gives a channel to a call: one that is idle, or a new one, of a new connection if need be.
func (p *Publisher) take(ctx context.Context) (*channel, error) {
	select {
	case p.dialing <- struct{}{}: // one makes the connection, the others wait for it
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
	return &channel{opened, opened.NotifyReturn(make(chan amqp.Return, 1)), opened.NotifyClose(make(chan *amqp.Error, 1))}, nil
}

// put takes a channel back that is in order.
func (p *Publisher) put(ch *channel) {
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

// connection is the one that there is, or a new one.
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
	return conn, p.keep(conn)
}

// keep makes a connection that of the publisher, unless that was closed meanwhile.
func (p *Publisher) keep(conn *amqp.Connection) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.calls.Closed(); err != nil {
		_ = conn.Close()
		return err
	}
	p.conn = conn
	return nil
}

// dial connects, and gives the broker a while to answer: the client ends that while when it has the answer.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(dialTimeout))
}

const dialTimeout = 10 * time.Second
