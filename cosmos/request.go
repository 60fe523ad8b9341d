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

	"github.com/millrace/changefeed/internal/cosmosdb/rest"
)

// capabilities says that the client copes with merged partitions (1), and that it
// sends the start time beside a continuation, which a feed needs after a merge (2).
const capabilities = "3"

// maxAnswer is the largest answer that is read. Pages have at most 4 MB, except for the
// transaction at their end; anything larger is not the service and would fill memory.
const maxAnswer = 64 << 20

// request is a request, which may be sent several times.
type request struct {
	method string
	at     rest.Resource
	header fields
	rid    string // of the container that is meant, for a request about items
	body   []byte
	action string        // the right that it needs, by Azure's name
	writes bool          // may change something, so it is not repeated when its outcome is unknown
	hub    bool          // goes to the write region, though it only reads
	moves  bool          // its caller knows what to do about a partition that has moved
	hold   time.Duration // how long the server may keep it waiting
	within time.Duration // how long it may take at most; 0 is the client's timeout
}

// String returns the request line.
func (r request) String() string { return r.method + " " + cmp.Or(r.at.Raw, "/") }

// answer is the answer to a request that succeeded.
type answer struct {
	status int // 2xx or 304
	header http.Header
	body   []byte
}

func (a *answer) is(status int) bool { return a.status == status }

// charge is what the request has cost, in request units; 0 when the server does not say.
func (a *answer) charge() float64 {
	units, _ := strconv.ParseFloat(a.header.Get(headerCharge), 64)
	return units
}

// sendOnce sends a request once. The timeout's cause names the host, because "context
// deadline exceeded" would not say which of several regions did not answer.
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
		return nil, lost(ctx, r, err)
	}
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

// ownFields is how many headers each request has beside those of its kind, at most.
const ownFields = 10

// buildRequest makes the signed HTTP request. Each attempt is signed anew, since the date is
// part of the signature.
func (c *Client) buildRequest(ctx context.Context, to *url.URL, r request, activity string) (*http.Request, error) {
	u := *to
	// Both forms are given, because an id may hold a slash, and the path alone would
	// have it taken for a separator.
	u.Path, u.RawPath = to.Path+r.at.Path, to.EscapedPath()+r.at.Raw
	if r.at.Kind == "" {
		u.Path, u.RawPath = to.Path+"/", ""
	}
	// The address is known already, and need not be written and read again.
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

// readBody reads an answer to its end and closes it, so that the connection is used
// again.
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

// lost is the error of a request without an answer: the cause of its context's end, if
// that has ended.
func lost(ctx context.Context, r request, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // method and address are said already
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
