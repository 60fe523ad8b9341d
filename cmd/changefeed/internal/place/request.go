package place

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
	"github.com/millrace/changefeed/internal/pause"
)

// Requests about documents and containers, for the commands that a person calls.

// The limits of a Request.
const (
	requestTimeout = 5 * time.Minute  // a page of a query may take long
	maxThrottled   = 30 * time.Second // of a person's request, or of a container that is opened
)

// A Request is a request about a resource of an account.
type Request struct {
	Method   string
	Resource []string          // kinds and ids in turn, such as dbs, shop, colls
	Header   map[string]string // beside those that every request has
	Body     []byte
	Want     []string // members that the JSON of the answer must have; none if there is nothing to compare
}

// A Reply is the answer to a Request.
type Reply struct {
	Header http.Header
	Body   []byte
}

// Charge returns the request units of the request; nil if the account does not tell.
func (r Reply) Charge() *float64 {
	if charge, err := strconv.ParseFloat(r.Header.Get("X-Ms-Request-Charge"), 64); err == nil {
		return &charge
	}
	return nil
}

// Send sends a request, again and again while the account is throttled and asks for no longer wait than a person has.
func (a *Account) Send(ctx context.Context, q Request) (reply Reply, err error) {
	err = a.whileThrottled(ctx, func() error {
		reply, err = a.sendOnce(ctx, q)
		return err
	})
	return reply, err
}

// whileThrottled calls f again and again while the account is throttled, for at most maxThrottled.
func (a *Account) whileThrottled(ctx context.Context, f func() error) error {
	for begun := time.Now(); ; {
		err := f()
		wait, ok := ThrottledFor(err)
		if !ok || a.atOnce || time.Since(begun)+wait > maxThrottled {
			return err
		}
		if err := pause.For(ctx, max(wait, firstRetry)); err != nil {
			return err
		}
	}
}

// ThrottledFor returns how long a throttled account asks to wait; false if the error is another.
func ThrottledFor(err error) (time.Duration, bool) {
	if e, ok := errors.AsType[*feed.ThrottledError](err); ok {
		return e.After, true
	}
	if e, ok := errors.AsType[*callError](err); ok && e.status == http.StatusTooManyRequests {
		return e.wait, true
	}
	return 0, false
}

// sendOnce sends a request.
func (a *Account) sendOnce(ctx context.Context, q Request) (reply Reply, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := a.signedRequest(ctx, q.Method, q.Resource, "", q.Body)
	if err != nil {
		return reply, err
	}
	for name, value := range q.Header {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	answer, err := a.answerTo(r)
	if err != nil {
		return reply, err
	}
	defer answer.Body.Close()
	reply.Header = answer.Header
	if reply.Body, err = readReply(answer.Body); err != nil {
		return reply, err
	}
	if err := q.checkAnswer(answer.StatusCode, reply.Body); err != nil {
		return reply, a.strangeAnswer(q.Method, r.URL.Path, err)
	}
	return reply, nil
}

// checkAnswer refuses a success that is none of the request. The error continues "the answer to GET /dbs".
func (q Request) checkAnswer(status int, body []byte) error {
	switch {
	case q.Method == http.MethodDelete && status != http.StatusNoContent:
		return fmt.Errorf("has the status %d, and not %d", status, http.StatusNoContent)
	case len(q.Want) > 0 && !json.Valid(body):
		return errors.New("is no JSON")
	}
	for _, member := range q.Want {
		if rawjson.Lookup(body, member) == nil {
			return fmt.Errorf("has no %s", member)
		}
	}
	return nil
}

// List reads a list of resources to its end, such as the DocumentCollections of dbs, shop, colls.
func (a *Account) List(ctx context.Context, member string, resource ...string) (all [][]byte, err error) {
	q := Request{Method: http.MethodGet, Resource: resource, Header: map[string]string{}, Want: []string{member}}
	for pages := (Pages{}); ; {
		reply, err := a.Send(ctx, q)
		if err != nil {
			return nil, err
		}
		before := len(all)
		for element := range rawjson.Elements(rawjson.Lookup(reply.Body, member)) {
			all = append(all, element)
		}
		next := reply.Header.Get("X-Ms-Continuation")
		if next == "" {
			return all, nil
		}
		if err := pages.Next(next, len(all)-before); err != nil {
			return nil, err
		}
		q.Header["X-Ms-Continuation"] = next
	}
}

// IDs returns the ids of a list of resources.
func (a *Account) IDs(ctx context.Context, member string, resource ...string) (ids []string, err error) {
	all, err := a.List(ctx, member, resource...)
	for _, text := range all {
		var p struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(text, &p); err != nil {
			return nil, fmt.Errorf("list %s: %w", member, err)
		}
		ids = append(ids, p.ID)
	}
	return ids, err
}

// The names of the lists of an account.
const (
	databases  = "Databases"
	containers = "DocumentCollections"
)

// maxIdle is how many pages without a row may have the same continuation, as when an account had no time for the page.
const maxIdle = 10

// Pages notices continuations that lead back to a page read before, which would never end. The zero value is
// before the first page.
type Pages struct {
	last    string
	kept    string // an earlier continuation, of a page that is a power of 2 pages from the first
	read    int    // pages
	keepAt  int    // the page whose continuation is kept next
	idle    int    // pages without a row that lead back
	perhaps bool   // kept is set
}

// Next takes the continuation of a page, and the number of rows of the page.
func (p *Pages) Next(continuation string, rows int) error {
	if p.perhaps && (continuation == p.last || continuation == p.kept) {
		if p.idle++; rows > 0 || p.idle == maxIdle {
			return fmt.Errorf("the account sends the continuation of page %d a second time, so the pages would never end",
				p.read)
		}
		return nil
	}
	if rows > 0 {
		p.idle = 0
	}
	// Brent's way to find a cycle: however long the cycle is, a kept continuation is in it at last.
	if p.read++; p.read > p.keepAt {
		p.kept, p.keepAt, p.perhaps = continuation, 2*p.read, true
	}
	p.last = continuation
	return nil
}

// KeyHeader returns the header of a partition key. A header has ASCII characters only, and the service reads this
// header as JSON.
func KeyHeader(key feed.PartitionKey) (name, value string) {
	var b strings.Builder
	for _, unit := range utf16.Encode([]rune(string(key))) {
		if unit < 0x7F {
			b.WriteByte(byte(unit))
		} else {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return "X-Ms-Documentdb-Partitionkey", b.String()
}

// CrossPartitionPlan returns the plan of a query that an account refuses because only a client can run the query, over
// all partitions; ok is false for any other error. The plan is nil if the account does not send it.
func CrossPartitionPlan(err error) (plan json.RawMessage, ok bool) {
	refused, ok := errors.AsType[*callError](err)
	if !ok || refused.status != http.StatusBadRequest {
		return nil, false
	}
	return refused.plan, refused.plan != nil || refused.substatus == "1004" ||
		strings.Contains(refused.said, "Cross partition query only supports")
}

// planOf returns the plan in the body of a refusal, or nil.
func planOf(body []byte) json.RawMessage {
	if text := rawjson.Text(rawjson.Lookup(body, "additionalErrorInfo")); json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return nil
}
