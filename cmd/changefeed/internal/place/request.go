package place

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	requestTimeout = 5 * time.Minute // a page of a query may take long
	maxThrottled   = 30 * time.Second
)

// A Request is a request about a resource of an account.
type Request struct {
	Method   string
	Resource []string          // kinds and ids in turn, such as dbs, shop, colls
	Header   map[string]string // beside those that every request has
	Body     []byte
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
func (a *Account) Send(ctx context.Context, q Request) (Reply, error) {
	for begun := time.Now(); ; {
		reply, err := a.sendOnce(ctx, q)
		refused, ok := errors.AsType[*callError](err)
		if !ok || refused.status != http.StatusTooManyRequests || time.Since(begun)+refused.wait > maxThrottled {
			return reply, err
		}
		if err := pause.For(ctx, max(refused.wait, firstRetry)); err != nil {
			return Reply{}, err
		}
	}
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
	if reply.Body, err = io.ReadAll(io.LimitReader(answer.Body, maxReply)); err != nil {
		return reply, fmt.Errorf("read answer of account: %w", err)
	}
	return reply, nil
}

// List reads a list of resources to its end, such as the DocumentCollections of dbs, shop, colls.
func (a *Account) List(ctx context.Context, member string, resource ...string) (all [][]byte, err error) {
	q := Request{Method: http.MethodGet, Resource: resource, Header: map[string]string{}}
	for {
		reply, err := a.Send(ctx, q)
		if err != nil {
			return nil, err
		}
		for element := range rawjson.Elements(rawjson.Lookup(reply.Body, member)) {
			all = append(all, element)
		}
		if q.Header["X-Ms-Continuation"] = reply.Header.Get("X-Ms-Continuation"); q.Header["X-Ms-Continuation"] == "" {
			return all, nil
		}
	}
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
