package webhook

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/webhook"
	"github.com/millrace/changefeed/trigger/contract"
)

// Form is the form of a body.
type Form string

// The forms.
const (
	// FormArray is a JSON array. Its elements are the documents or, with Options.Meta, objects with the documents.
	FormArray Form = "array"

	// FormLines is the same, with each element on a line of its own: application/x-ndjson.
	FormLines Form = "lines"

	// FormCloudEvents is a batch of CloudEvents in JSON, application/cloudevents-batch+json: an event for each change.
	FormCloudEvents Form = "cloudevents"
)

// Options are the optional settings of a [Handler]. The zero value works.
type Options struct {
	// Form is the form of the bodies; the default is FormArray.
	Form Form

	// Meta writes each change as an object with its LSN, time, operation, id, key and range beside the document,
	// because a document alone does not show a delete.
	Meta bool

	// Source is the attribute source of CloudEvents, a URI; the default is /changes.
	Source string

	// Secret signs the requests. Without a Secret the receiver cannot verify the sender.
	Secret []byte

	// Header is added to each request, for example an Authorization.
	Header http.Header

	// Timeout limits a request with its answer; the default is 30 s.
	Timeout time.Duration

	// Transport sends the requests; the default keeps up to 256 connections.
	Transport http.RoundTripper
}

const (
	defaultTimeout = 30 * time.Second
	defaultSource  = "/changes"
)

// Handler is a [feed.Handler] that sends each batch to a URL.
type Handler struct {
	url    string
	opts   Options
	client http.Client
}

// New makes the handler of a URL of http or https. New sends nothing.
func New(to string, o Options) (*Handler, error) {
	if _, err := webhook.ParseURL(to); err != nil {
		return nil, fmt.Errorf("webhook: URL is %w", err)
	}
	o.Form, o.Source = cmp.Or(o.Form, FormArray), cmp.Or(o.Source, defaultSource)
	if !slices.Contains([]Form{FormArray, FormLines, FormCloudEvents}, o.Form) {
		return nil, fmt.Errorf("webhook: Form is %q: want %s, %s or %s", o.Form, FormArray, FormLines, FormCloudEvents)
	}
	if o.Timeout < 0 {
		return nil, fmt.Errorf("webhook: Timeout is %v: want a positive duration, or zero for %v", o.Timeout,
			defaultTimeout)
	}
	if o.Secret != nil && len(o.Secret) == 0 {
		return nil, errors.New("webhook: Secret is empty: want at least one byte, or nil for no signatures")
	}
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	if o.Transport == nil {
		o.Transport = webhook.NewTransport()
	}
	return &Handler{url: to, opts: o, client: webhook.NewClient(o.Transport)}, nil
}

// Close closes the idle connections.
func (h *Handler) Close() { h.client.CloseIdleConnections() }

// Handle sends a batch and returns what the answer says. See the documentation of the package for the answers.
func (h *Handler) Handle(ctx context.Context, b *feed.Batch) error {
	timed, cancel := context.WithTimeoutCause(ctx, h.opts.Timeout, errLate)
	defer cancel()
	req, err := h.newRequest(timed, b)
	if err != nil {
		return err
	}
	resp, err := h.client.Do(req)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case timed.Err() != nil:
		return fmt.Errorf("webhook: %w within %v", errLate, h.opts.Timeout)
	default:
		return &feed.Failure{Outage: true, Err: fmt.Errorf("webhook: %w", webhook.WithoutURL(err))}
	}
	defer resp.Body.Close()
	text, err := readAnswer(resp)
	if err != nil {
		return cmp.Or(context.Cause(ctx), fmt.Errorf("webhook: read the answer %s: %w", resp.Status, err))
	}
	return verdict(resp, text, len(b.Changes))
}

// maxOutcome is the largest number of bytes of an answer that names failed changes.
const maxOutcome = 16 << 20

// readAnswer reads an answer: all that names failed changes, and the beginning of any other.
func readAnswer(resp *http.Response) ([]byte, error) {
	isAccepted := resp.StatusCode/100 == 2
	if !isAccepted || !isJSON(resp.Header) {
		text, err := io.ReadAll(io.LimitReader(resp.Body, webhook.MaxAnswer))
		if !isAccepted {
			err = nil // the status says all
		}
		return text, err
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxOutcome+1))
	if err == nil && len(text) > maxOutcome {
		err = fmt.Errorf("it is longer than %d MB", maxOutcome>>20)
	}
	return text, err
}

// isJSON reports whether an answer may name failed changes.
func isJSON(header http.Header) bool {
	kind, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}

var errLate = errors.New("no answer")

// newRequest makes the request of a batch.
func (h *Handler) newRequest(ctx context.Context, b *feed.Batch) (*http.Request, error) {
	body, err := h.encodeBody(b)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if h.opts.Header != nil {
		req.Header = h.opts.Header.Clone()
	}
	req.Header.Set("User-Agent", cmp.Or(req.Header.Get("User-Agent"), "changefeed"))
	for name, value := range map[string]string{
		"Content-Type":        h.contentType(),
		"Changefeed-Lease":    b.LeaseToken,
		"Changefeed-Range":    b.Range.String(),
		"Changefeed-Instance": url.PathEscape(b.Instance), // a header has no other letters
		"Changefeed-Epoch":    strconv.FormatInt(b.Epoch, 10),
		"Changefeed-Attempt":  strconv.Itoa(b.Attempt),
	} {
		req.Header.Set(name, value)
	}
	id := batchID(b)
	req.Header.Set(webhook.IDHeader, id)
	if h.opts.Secret != nil {
		webhook.Sign(req.Header, id, body, time.Now(), h.opts.Secret)
	}
	return req, nil
}

// batchID names the changes of a batch: the same ones have the same id, whoever sends them.
func batchID(b *feed.Batch) string {
	if len(b.Changes) == 0 {
		return b.Range.String()
	}
	return fmt.Sprintf("%s-%d-%d", changeID(&b.Changes[0]), b.Changes[len(b.Changes)-1].LSN, len(b.Changes))
}

// changeID names a change: an item of a partition key changes once with each LSN. It is a value of a header.
func changeID(c *feed.Change) string {
	return fmt.Sprintf("%d-%s-%s", c.LSN, url.PathEscape(string(c.PartitionKey)), url.PathEscape(c.ID))
}

// Statuses that say nothing about the changes of a batch.
var noFaultOfChanges = []int{
	http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed,
	http.StatusProxyAuthRequired, http.StatusRequestTimeout, http.StatusGone, http.StatusMisdirectedRequest,
	http.StatusTooEarly, http.StatusTooManyRequests,
	http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
}

// verdict returns what an answer means for a batch of n changes.
func verdict(resp *http.Response, text []byte, n int) error {
	status := resp.StatusCode
	if status >= 200 && status < 300 {
		return outcomeOf(resp.Header, text, n)
	}
	err := fmt.Errorf("webhook: answer %s%s", resp.Status, webhook.Quote(text))
	f := &feed.Failure{Err: err, After: webhook.RetryAfter(resp.Header.Get("Retry-After"), time.Now())}
	switch {
	case slices.Contains(noFaultOfChanges, status):
		f.Outage = true
		return f
	case status >= 400 && status < 500:
		f.Err = feed.Poison(err)
	case status >= 300 && status < 400:
		f.Err = fmt.Errorf("%w: redirects are not followed", err)
	}
	if f.After == 0 {
		return f.Err
	}
	return f
}

// outcomeOf returns the failures that the body of an accepting answer names, if it names any.
func outcomeOf(header http.Header, text []byte, n int) error {
	if !isJSON(header) || len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	outcome, err := contract.ParseOutcome(text, n)
	if wrong, ok := errors.AsType[*contract.BreachError](err); ok {
		return fmt.Errorf("webhook: the answer is wrong: %s, in %s", wrong.Reason, wrong.Message)
	}
	return cmp.Or(err, outcome)
}
