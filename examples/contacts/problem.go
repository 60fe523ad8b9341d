package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/outbox"
)

// problem is the answer to a request that was refused: RFC 9457, with a fault for each property that is wrong.
type problem struct {
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Detail   string `json:"detail,omitempty"`
	Instance string `json:"instance,omitempty"`
	Errors   Faults `json:"errors,omitempty"`
}

// errNoContact is what lies behind a path that no contact can have.
var errNoContact = feed.ErrNotFound

// statusCanceled is for the log alone: the client has gone.
const statusCanceled = 499

// refusals say what a client is told. The first one counts: a failed precondition is a conflict too.
var refusals = []struct {
	err    error
	status int
	detail string
}{
	{context.Canceled, statusCanceled, ""},
	{outbox.ErrUnknown, http.StatusServiceUnavailable, "the store does not answer, so it is unknown whether this was done: read the contact before you try again"},
	{feed.ErrPrecondition, http.StatusPreconditionFailed, "mid-air collision: the contact has changed since; read it again"},
	{feed.ErrNotFound, http.StatusNotFound, "there is no such contact"},
	{ErrKeyReused, http.StatusUnprocessableEntity, ErrKeyReused.Error()},
	{feed.ErrConflict, http.StatusConflict, "there is such a contact already"},
	{feed.ErrThrottled, http.StatusTooManyRequests, "the store is busy"},
	{feed.ErrGone, http.StatusServiceUnavailable, "a partition is being split"},
}

// problemOf says what becomes of an error. One that the client has no part in is not shown to it.
func problemOf(err error) problem {
	if faults, ok := errors.AsType[Faults](err); ok {
		return problem{Status: http.StatusBadRequest, Detail: "the request has faults", Errors: faults}
	}
	if wrong, ok := errors.AsType[*requestError](err); ok {
		return problem{Status: wrong.status, Detail: wrong.detail}
	}
	for _, known := range refusals {
		if errors.Is(err, known.err) {
			return problem{Status: known.status, Detail: known.detail}
		}
	}
	return problem{Status: http.StatusInternalServerError}
}

// writeProblem answers a request that has failed.
func writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, ErrNotModified) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	p := problemOf(err)
	switch p.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", strconv.Itoa(wait(err)))
	case http.StatusInternalServerError:
		slog.Error("request failed", "method", r.Method, "path", r.URL.Path, "err", err)
	}
	p.Title = cmp.Or(http.StatusText(p.Status), "Client Closed Request")
	p.Instance = r.URL.Path
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // a client that has gone needs no answer
}

// wait is how many seconds a client should wait: as the store says, and at least one.
func wait(err error) int {
	var after time.Duration
	if throttled, ok := errors.AsType[*feed.ThrottledError](err); ok {
		after = throttled.After
	}
	return max(1, int(math.Ceil(after.Seconds())))
}

// unrouted answers a request that no route takes: as the router does, with a problem document in place of its text.
type unrouted struct {
	http.ResponseWriter
	request *http.Request
}

// WriteHeader has the router's status and, by now, its header Allow. It may also be a redirection.
func (u unrouted) WriteHeader(status int) {
	if status < http.StatusBadRequest {
		u.ResponseWriter.WriteHeader(status)
		return
	}
	detail := "there is nothing at this path"
	if status == http.StatusMethodNotAllowed {
		detail = "this path takes " + u.Header().Get("Allow")
	}
	writeProblem(u.ResponseWriter, u.request, &requestError{status, detail})
}

// Write leaves the router's text out.
func (u unrouted) Write(text []byte) (int, error) { return len(text), nil }
