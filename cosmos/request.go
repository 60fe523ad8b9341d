package cosmos

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rest"
)

// capabilities says that the client supports merged partitions (1), and that it sends the start time beside a
// continuation, which a feed needs after a merge (2).
const capabilities = "3"

// maxAnswer is the largest answer that is read. Pages have at most 4 MB, except for the transaction at their end; a
// larger answer is not from the service and would fill memory.
const maxAnswer = 64 << 20

// request is a request, which may be sent several times.
type request struct {
	method string
	at     rest.Resource
	header fields
	rid    string // resource id of the intended container, for a request about items
	body   []byte
	action string        // the right that the request needs, by Azure's name
	writes bool          // may change data, so the request is not repeated if its outcome is unknown
	hub    bool          // goes to the write region, although it only reads
	moves  bool          // the caller handles a moved partition
	hold   time.Duration // how long the server may hold the request
	within time.Duration // the time limit; 0 is the client's timeout
}

// String returns the request line.
func (r request) String() string { return r.method + " " + cmp.Or(r.at.Raw, "/") }

// answer is the answer to a successful request.
type answer struct {
	status int // 2xx or 304
	header http.Header
	body   []byte
}

func (a *answer) is(status int) bool { return a.status == status }

// charge returns the cost of the request, in request units; 0 if the server does not report the cost.
func (a *answer) charge() float64 { return chargeOf(a.header) }

// chargeOf returns the request units that the headers of an answer report; 0 if they report none.
func chargeOf(h http.Header) float64 {
	units, _ := strconv.ParseFloat(h.Get(headerCharge), 64)
	return units
}

// sendOnce sends a request once. The timeout's cause names the host, because "context deadline exceeded" would not say
// which of several regions did not answer.
func (c *Client) sendOnce(ctx context.Context, to *url.URL, r request, activity string) (*answer, error) {
	within := cmp.Or(r.within, c.timeout+r.hold)
	ctx, cancel := context.WithTimeoutCause(ctx, within, silence{to.Host, within})
	defer cancel()
	req, err := c.buildRequest(ctx, to, r, activity)
	if err != nil {
		return nil, lost(ctx, r, err)
	}
	resp, err := c.transport.Do(req)
	if err != nil {
		feed.AddCost(ctx, feed.Cost{Requests: 1})
		return nil, lost(ctx, r, err)
	}
	feed.AddCost(ctx, feed.Cost{Requests: 1, Charge: chargeOf(resp.Header)})
	body, err := readBody(resp)
	if err != nil {
		return nil, lost(ctx, r, err)
	}
	if resp.StatusCode/100 == 2 || resp.StatusCode == http.StatusNotModified {
		return &answer{resp.StatusCode, resp.Header, body}, nil
	}
	return nil, refusal(r, resp, body)
}

// silence is the error of a request that was not answered in time.
type silence struct {
	host   string
	within time.Duration
}

// Error implements error.
func (s silence) Error() string { return fmt.Sprintf("no answer from %s within %v", s.host, s.within) }

// ownFields is the largest number of headers that every request has in addition.
const ownFields = 10

// buildRequest makes the signed HTTP request. Each attempt is signed anew, since the date is
// part of the signature.
func (c *Client) buildRequest(ctx context.Context, to *url.URL, r request, activity string) (*http.Request, error) {
	u := *to
	// Both forms are set, because an id may contain a slash, which the path alone would turn into a separator.
	u.Path, u.RawPath = to.Path+r.at.Path, to.EscapedPath()+r.at.Raw
	if r.at.Kind == "" {
		u.Path, u.RawPath = to.Path+"/", ""
	}
	// The address is known already, so it need not be formatted and parsed again.
	req, err := http.NewRequestWithContext(ctx, r.method, "", bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	req.URL, req.Host = &u, u.Host
	date := time.Now().UTC().Format(http.TimeFormat)
	auth, err := c.signer.Sign(ctx, r.method, r.at, date)
	if err != nil {
		return nil, err
	}
	all := append(make(fields, 0, ownFields+len(r.header)),
		field{"Accept", jsonType}, field{"Cache-Control", "no-cache"}, field{"User-Agent", c.agent},
		field{"Authorization", auth}, field{headerDate, date}, field{headerVersion, rest.Version},
		field{headerCapabilities, capabilities}, field{headerActivity, activity})
	if c.regions.isMultiWrite() {
		all = append(all, field{headerTentative, "true"})
	}
	if r.rid != "" {
		all = append(all, field{headerContainerRID, r.rid})
	}
	req.Header = append(all, r.header...).header()
	return req, nil
}

// readBody reads an answer to its end and closes it, so that the connection can be used again.
func readBody(resp *http.Response) (body []byte, err error) {
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	var b bytes.Buffer
	if n := resp.ContentLength; n > 0 && n <= maxAnswer {
		b.Grow(int(n) + bytes.MinRead)
	}
	if n, err := b.ReadFrom(io.LimitReader(resp.Body, maxAnswer+1)); err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	} else if n > maxAnswer {
		return nil, fmt.Errorf("answer is larger than %d bytes", maxAnswer)
	}
	return b.Bytes(), nil
}

// lost returns the error of a request without an answer: the cause of its context, if the context has ended.
func lost(ctx context.Context, r request, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // the error names method and address already
	}
	return fmt.Errorf("%s: %w", r, err)
}

// newActivity returns an id by which the service's support finds a request.
func newActivity() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0F|0x40, b[8]&0x3F|0x80
	var text [36]byte
	at := 0
	for i, part := range [][]byte{b[:4], b[4:6], b[6:8], b[8:10], b[10:]} {
		if i > 0 {
			text[at] = '-'
			at++
		}
		at += hex.Encode(text[at:], part)
	}
	return string(text[:])
}
