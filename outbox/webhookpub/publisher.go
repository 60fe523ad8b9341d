package webhookpub

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cloudevent"
	"github.com/millrace/changefeed/internal/webhook"
	"github.com/millrace/changefeed/outbox"
)

// Options are the options of a publisher. The zero value works.
type Options struct {
	// Structured sends the attributes in the body, for receivers that cannot see headers.
	Structured bool

	// Secret signs the requests. Without a Secret the receiver cannot verify the sender.
	Secret []byte

	// Header is added to each request, for example an Authorization.
	Header http.Header

	// Timeout limits a request with its answer; 30 s by default.
	Timeout time.Duration

	// Transport sends the requests; by default a transport that keeps a connection for each active key, up to 256.
	Transport http.RoundTripper
}

const (
	defaultTimeout = 30 * time.Second

	// MaxRetryAfter is the longest pause that a receiver can ask for: a longer Retry-After counts as MaxRetryAfter.
	MaxRetryAfter = webhook.MaxRetryAfter
)

// Publisher is an [outbox.Publisher] to a webhook. HTTP does not de-duplicate.
type Publisher struct {
	url    string
	opts   Options
	client http.Client
}

// New makes a publisher to a URL of http or https. New sends nothing yet.
func New(to string, o Options) (*Publisher, error) {
	parsed, err := url.Parse(to)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" {
		return nil, &changefeed.OptionError{
			Field: "URL", Value: webhook.Redacted(parsed),
			Want: "one such as https://example.com/events",
		}
	}
	if o.Secret != nil && len(o.Secret) == 0 {
		return nil, &changefeed.OptionError{
			Field: "Secret", Value: "empty",
			Want: "at least one byte, or nil for no signatures",
		}
	}
	if o.Timeout < 0 {
		return nil, &changefeed.OptionError{
			Field: "Timeout", Value: o.Timeout.String(),
			Want: "a positive duration, or zero for 30 s",
		}
	}
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	if o.Transport == nil {
		o.Transport = webhook.NewTransport()
	}
	return &Publisher{url: to, opts: o, client: webhook.NewClient(o.Transport)}, nil
}

// Close closes the idle connections.
func (p *Publisher) Close() error {
	p.client.CloseIdleConnections()
	return nil
}

// Publish sends the messages one after the other, each after the previous message was accepted. See the package's
// documentation for the errors that are Poison. If an answer has Retry-After, the error wraps a [feed.Failure] with its
// After.
func (p *Publisher) Publish(ctx context.Context, msgs []outbox.Message) (n int, err error) {
	for i := range msgs {
		if err := p.sendMessage(ctx, &msgs[i]); err != nil {
			return i, fmt.Errorf("webhook: %w", err)
		}
	}
	return len(msgs), nil
}

func (p *Publisher) sendMessage(ctx context.Context, m *outbox.Message) error {
	timed, cancel := context.WithTimeoutCause(ctx, p.opts.Timeout, fmt.Errorf("no answer within %v", p.opts.Timeout))
	defer cancel()
	header, body, err := p.encodeRequest(m)
	if err != nil {
		return feed.Poison(err)
	}
	req, err := http.NewRequestWithContext(timed, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = header
	if p.opts.Secret != nil {
		now := time.Now()
		sign(req.Header, body, now, p.opts.Secret)
		webhook.Sign(req.Header, cloudevent.Escape(m.ID), body, now, p.opts.Secret)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		if timed.Err() != nil {
			return context.Cause(timed)
		}
		return webhook.WithoutURL(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, webhook.MaxAnswer)) // only the status matters
	return verdict(resp, text)
}

// encodeRequest makes the header and the body of a request.
func (p *Publisher) encodeRequest(m *outbox.Message) (header http.Header, body []byte, err error) {
	header = maps.Clone(p.opts.Header)
	if header == nil {
		header = http.Header{}
	}
	for name, value := range m.TraceContext() {
		header.Set(name, value)
	}
	header.Set("User-Agent", cmp.Or(header.Get("User-Agent"), "changefeed"))
	if p.opts.Structured {
		header.Set("Content-Type", structuredType)
		body, err = envelope(m)
		return header, body, err
	}
	header.Set("Content-Type", outbox.ContentType)
	for name, value := range m.CloudEvent() {
		header.Set(cloudevent.Prefix+name, cloudevent.Escape(value))
	}
	return header, m.Data, nil
}

// ofTheReceiver are the statuses from 400 to 499 that say nothing about the event.
var ofTheReceiver = []int{
	http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed,
	http.StatusProxyAuthRequired,
	http.StatusRequestTimeout, http.StatusGone, http.StatusMisdirectedRequest, http.StatusTooEarly,
	http.StatusTooManyRequests,
}

// ofTheWay are the statuses from 500 on with which a broken receiver, or a proxy before it, answers all events.
var ofTheWay = []int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}

// verdict returns the error that an answer means for its event.
func verdict(resp *http.Response, text []byte) error {
	status := resp.StatusCode
	if status >= 200 && status < 300 {
		return nil
	}
	err := fmt.Errorf("answer %s%s", resp.Status, webhook.Quote(text))
	switch {
	case status == http.StatusRequestEntityTooLarge:
		return feed.Poison(fmt.Errorf("%w: %w", outbox.ErrTooLarge, err))
	case status >= 400 && status < 500 && !slices.Contains(ofTheReceiver, status):
		return feed.Poison(err)
	case status >= 500 && !slices.Contains(ofTheWay, status):
		err = fmt.Errorf("%w: %w", outbox.ErrRefused, err)
	case status >= 300 && status < 400:
		err = fmt.Errorf("%w: redirects are not followed", err)
	}
	if after := webhook.RetryAfter(resp.Header.Get("Retry-After"), time.Now()); after > 0 {
		return &feed.Failure{After: after, Err: err}
	}
	return err
}
