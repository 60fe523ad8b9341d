package natspub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cloudevent"
	"github.com/millrace/changefeed/outbox"
)

// Publisher is an [outbox.Publisher] to a stream of NATS. It de-duplicates.
type Publisher struct {
	opts     Options
	conn     *nats.Conn
	js       jetstream.JetStream
	requests requests
	server   *embedded // nil when the server is elsewhere
}

// Publish sends the messages one by one, each after the one before it was acknowledged. A message that is
// larger than the server or the stream takes is Poison, and one without an ID, by which the server would know it again; any
// other error may pass, those for lack of rights included. After an [ErrClosed] a new publisher is needed.
func (p *Publisher) Publish(ctx context.Context, msgs []outbox.Message) (n int, err error) {
	for i := range msgs {
		if err := p.send(ctx, &msgs[i]); err != nil {
			return i, fmt.Errorf("NATS: %w", err)
		}
	}
	return len(msgs), nil
}

func (p *Publisher) send(ctx context.Context, m *outbox.Message) error {
	if m.ID == "" {
		return feed.Poison(outbox.ErrNoID)
	}
	answer, err := p.requests.send(ctx, p.conn, &nats.Msg{Subject: subject(p.opts.Prefix, m.Key), Header: headers(m, p.opts.Stream), Data: m.Data})
	if err == nil {
		err = refusal(answer)
	}
	return p.meaning(err)
}

var (
	accepted = []byte(`{"stream":`)
	refused  = []byte(`"error"`)
)

// refusal is the error that an answer has, if it has one.
func refusal(answer *nats.Msg) error {
	if answer.Header.Get("Status") == "503" {
		return jetstream.ErrNoStreamResponse
	}
	if bytes.HasPrefix(answer.Data, accepted) && !bytes.Contains(answer.Data, refused) { // as nearly all do, and to decode it costs as much as all else here
		return nil
	}
	var ack struct {
		Stream string              `json:"stream"`
		Error  *jetstream.APIError `json:"error"`
	}
	err := json.Unmarshal(answer.Data, &ack)
	switch {
	case err != nil || ack.Stream == "" && ack.Error == nil:
		return fmt.Errorf("%w: %.200q", jetstream.ErrInvalidJSAck, answer.Data)
	case ack.Error != nil:
		return ack.Error
	}
	return nil
}

// Codes of errors that the client has no name for.
const (
	codeMessageTooLarge = jetstream.ErrorCode(server.JSStreamMessageExceedsMaximumErr)
	codeHeaderTooLarge  = jetstream.ErrorCode(server.JSStreamHeaderExceedsMaximumErr)
)

// meaning says of an error whether it can pass, and what it is where the client's text does not.
func (p *Publisher) meaning(err error) error {
	said, ok := errors.AsType[*jetstream.APIError](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrMaxPayload), ok && (said.ErrorCode == codeMessageTooLarge || said.ErrorCode == codeHeaderTooLarge):
		return feed.Poison(fmt.Errorf("%w: %w", outbox.ErrTooLarge, err))
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("no stream takes subjects such as %s.key: was %s deleted?: %w", p.opts.Prefix, p.opts.Stream, err)
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionReconnecting):
		return errDisconnected
	case errors.Is(err, nats.ErrConnectionClosed):
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return err
}

// ErrClosed: the connection has ended for good, because the publisher was closed, or because of
// [Options.NATS] it is not made again for ever: make another publisher.
var ErrClosed = errors.New("publisher is closed")

// headers are the id by which the server knows the message, the stream that has to take it, and the attributes of the CloudEvent.
func headers(m *outbox.Message, stream string) nats.Header {
	values := make([]string, 0, 20) // of all headers, each of which has one
	h := make(nats.Header, cap(values))
	set := func(name, value string) {
		values = append(values, value)
		h[name] = values[len(values)-1 : len(values) : len(values)]
	}
	set(nats.MsgIdHdr, cloudevent.Escape(m.ID))
	set(jetstream.ExpectedStreamHeader, stream)
	set(contentType, outbox.ContentType)
	for name, value := range m.CloudEvent() {
		set(cloudevent.Prefix+name, cloudevent.Escape(value))
	}
	for name, value := range m.TraceContext() {
		set(name, value)
	}
	return h
}

const contentType = cloudevent.Prefix + "datacontenttype"

// Message is the event that a message of the stream was, from its header and its data.
func Message(header nats.Header, data []byte) (outbox.Message, error) {
	attributes, err := cloudevent.Attributes(header)
	if err != nil {
		return outbox.Message{}, err
	}
	return cloudevent.Message(attributes, data)
}

// Conn is the connection, which consumers may share.
func (p *Publisher) Conn() *nats.Conn { return p.conn }

// URL is where other programs reach the server; empty where they cannot.
func (p *Publisher) URL() string {
	if p.server == nil {
		return p.conn.ConnectedUrl()
	}
	return p.server.url
}

// Close ends the connection, and the server if it is embedded. A second call does nothing.
func (p *Publisher) Close() error {
	p.conn.Close()
	if p.server == nil {
		return nil
	}
	return p.server.close()
}
