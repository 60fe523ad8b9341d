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

// Publisher is an [outbox.Publisher] to a stream of NATS. The server de-duplicates.
type Publisher struct {
	opts     Options
	conn     *nats.Conn
	js       jetstream.JetStream
	requests requests
	server   *embedded // nil if the server is external
}

// Publish sends the messages one after the other, each after the acknowledgement of the previous message. If a message
// is larger than the server or the stream accepts, the error is Poison; the same holds for a message without an ID,
// because the server could not recognize a republication. Any other error may pass, also missing rights. After an
// [ErrClosed] you need a new publisher.
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
	answer, err := p.requests.send(ctx, p.conn, &nats.Msg{
		Subject: subject(p.opts.Prefix, m.Key),
		Header:  headers(m, p.opts.Stream), Data: m.Data,
	})
	if err == nil {
		err = refusal(answer)
	}
	return p.explainError(err)
}

var (
	accepted = []byte(`{"stream":`)
	refused  = []byte(`"error"`)
)

// refusal returns the error in an answer, nil if the answer has no error.
func refusal(answer *nats.Msg) error {
	if answer.Header.Get("Status") == "503" {
		return jetstream.ErrNoStreamResponse
	}
	// as nearly all are: decoding costs as much as the rest
	if bytes.HasPrefix(answer.Data, accepted) && !bytes.Contains(answer.Data, refused) {
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

// Codes of errors without a name in the client.
const (
	codeMessageTooLarge = jetstream.ErrorCode(server.JSStreamMessageExceedsMaximumErr)
	codeHeaderTooLarge  = jetstream.ErrorCode(server.JSStreamHeaderExceedsMaximumErr)
)

// explainError says whether an error may pass, and explains errors with an unclear text.
func (p *Publisher) explainError(err error) error {
	said, ok := errors.AsType[*jetstream.APIError](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrMaxPayload), ok && (said.ErrorCode == codeMessageTooLarge ||
		said.ErrorCode == codeHeaderTooLarge):
		return feed.Poison(fmt.Errorf("%w: %w", outbox.ErrTooLarge, err))
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("no stream takes subjects such as %s.key: was %s deleted?: %w", p.opts.Prefix, p.opts.Stream,
			err)
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionReconnecting):
		return errDisconnected
	case errors.Is(err, nats.ErrConnectionClosed):
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return err
}

// ErrClosed: the connection has ended for good, because you closed the publisher, or because your [Options.NATS] limit
// the reconnects. Make another publisher.
var ErrClosed = errors.New("publisher is closed")

// headers returns the id by which the server recognizes the message, the expected stream, and the attributes of the
// CloudEvent.
func headers(m *outbox.Message, stream string) nats.Header {
	values := make([]string, 0, 20) // the value of each header
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

// Message returns the event in a message of the stream, from its header and its data.
func Message(header nats.Header, data []byte) (outbox.Message, error) {
	attributes, err := cloudevent.Attributes(header)
	if err != nil {
		return outbox.Message{}, err
	}
	return cloudevent.Message(attributes, data)
}

// Conn returns the connection, which consumers may share.
func (p *Publisher) Conn() *nats.Conn { return p.conn }

// URL returns the address at which other programs reach the server; empty if they cannot.
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
