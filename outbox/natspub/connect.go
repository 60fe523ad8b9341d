package natspub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Connect makes a publisher to an external server, or to several servers of a cluster, as in
// "nats://a:4222,nats://b:4222". Connect creates a missing stream. If the stream de-duplicates for less than
// [Options.Window] or does not accept the subjects of the events, Connect refuses the stream. A lost connection is made
// again, for ever.
func Connect(ctx context.Context, url string, o Options) (*Publisher, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	p, err := connect(url, o)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", url, err)
	}
	if err := p.ensureStream(ctx, false); err != nil {
		p.conn.Close()
		return nil, fmt.Errorf("stream %s at %s: %w", o.Stream, p.conn.ConnectedUrl(), err)
	}
	return p, nil
}

const reconnectWait = 250 * time.Millisecond

func connect(url string, o Options) (*Publisher, error) {
	p := &Publisher{opts: o}
	options := slices.Concat([]nats.Option{
		nats.Name("changefeed outbox"),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectBufSize(-1),     // if there is no connection, a message fails instead of being sent later
		nats.IgnoreAuthErrorAbort(),   // rights that were revoked can be granted again
		nats.Timeout(5 * time.Second), // for each attempt
	}, o.NATS, []nats.Option{p.listenTo})
	conn, err := nats.Connect(url, options...)
	if err != nil {
		return nil, err
	}
	p.conn, p.requests.inbox = conn, conn.NewInbox()+"."
	_, err = conn.Subscribe(p.requests.inbox+"*", p.requests.endAnswered)
	if err == nil {
		p.js, err = jetstream.New(conn)
	}
	if err != nil {
		conn.Close()
	}
	return p, err
}

// listenTo is an option of the connection: first our callback runs, then the user's.
func (p *Publisher) listenTo(o *nats.Options) error {
	disconnected, failed := o.DisconnectedErrCB, o.AsyncErrorCB
	o.DisconnectedErrCB = func(c *nats.Conn, err error) {
		p.requests.endAll()
		if disconnected != nil {
			disconnected(c, err)
		}
	}
	o.AsyncErrorCB = func(c *nats.Conn, s *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			p.requests.endDenied(err)
		}
		if failed != nil {
			failed(c, s, err)
		}
	}
	return nil
}

// ensureStream creates the stream, or checks a foreign stream. If the stream is ours, ensure changes the stream to the
// options.
func (p *Publisher) ensureStream(ctx context.Context, ours bool) error {
	o := p.opts
	want := jetstream.StreamConfig{
		Name: o.Stream, Subjects: []string{o.Prefix + ".>"}, Duplicates: o.Window, MaxAge: o.MaxAge,
		MaxBytes: o.MaxBytes, Replicas: o.Replicas,
		Discard: jetstream.DiscardNew, Description: "Events of an outbox, one subject a partition key",
	}
	if want.MaxBytes == 0 {
		want.MaxBytes = -1
	}
	var found jetstream.Stream
	err := p.requestAPI(ctx, "STREAM.INFO", func(ctx context.Context) (err error) {
		found, err = p.js.Stream(ctx, o.Stream)
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = p.requestAPI(ctx, "STREAM.CREATE", func(ctx context.Context) (err error) {
			found, err = p.js.CreateStream(ctx, want)
			return err
		})
	}
	if err == nil && ours {
		err = p.requestAPI(ctx, "STREAM.UPDATE", func(ctx context.Context) (err error) {
			found, err = p.js.UpdateStream(ctx, want)
			return err
		})
	}
	if err != nil {
		return err
	}
	return check(found.CachedInfo().Config, o)
}

// requestAPI calls an operation of the server's API.
func (p *Publisher) requestAPI(ctx context.Context, operation string, f func(ctx context.Context) error) error {
	return p.requests.callClient(ctx, "$JS.API."+operation+"."+p.opts.Stream, f)
}

// check refuses a stream that would store a republished event twice, or would store no event at all.
func check(c jetstream.StreamConfig, o Options) error {
	if !slices.ContainsFunc(c.Subjects, func(pattern string) bool { return covers(pattern, o.Prefix) }) {
		return fmt.Errorf("it takes %q and not %s.>: add that, or set Options.Prefix", c.Subjects, o.Prefix)
	}
	if c.NoAck {
		return errors.New("it acknowledges nothing (no_ack): nobody would know what was published")
	}
	if c.Duplicates < o.Window {
		return fmt.Errorf("it knows an event that is published again for %v (duplicate_window): want %v, or a "+
			"smaller Options.Window", c.Duplicates, o.Window)
	}
	return nil
}
