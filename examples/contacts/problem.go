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

// problem is the answer to a refused request, as in RFC 9457, with a fault for each invalid property.
type problem struct {
	Title    string `json:"title"`
	Status   int    `json:"status"`
	Detail   string `json:"detail,omitempty"`
	Instance string `json:"instance,omitempty"`
	Errors   Faults `json:"errors,omitempty"`
}

// errNoContact is the error for a path that cannot be a contact's.
var errNoContact = feed.ErrNotFound

// statusCanceled is used only in the log: the client has gone.
const statusCanceled = 499

// refusals map errors to answers. The first match counts, because a failed precondition is a conflict too.
var refusals = []struct {
	err    error
	status int
	detail string
}{
	{context.Canceled, statusCanceled, ""},
	{
		outbox.ErrUnknown, http.StatusServiceUnavailable,
		"the store does not answer, so it is unknown whether this was done: read the contact before you try again",
	},
	{
		feed.ErrPrecondition, http.StatusPreconditionFailed,
		"mid-air collision: the contact has changed since; read it again",
	},
	{feed.ErrNotFound, http.StatusNotFound, "there is no such contact"},
	{ErrKeyReused, http.StatusUnprocessableEntity, ErrKeyReused.Error()},
	{feed.ErrConflict, http.StatusConflict, "there is such a contact already"},
	{feed.ErrThrottled, http.StatusTooManyRequests, "the store is busy"},
	{feed.ErrGone, http.StatusServiceUnavailable, "a partition is being split"},
}

// problemOf returns the problem of an error. If the client did not cause the error, its text is not shown.
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

// writeProblem answers a failed request.
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

// wait returns how many seconds a client should wait: the time that the store says, but at least 1 second.
func wait(err error) int {
	var after time.Duration
	if throttled, ok := errors.AsType[*feed.ThrottledError](err); ok {
		after = throttled.After
	}
	return max(1, int(math.Ceil(after.Seconds())))
}

// unrouted answers a request for which there is no route. The client gets the router's status with a problem document
// instead of the router's text.
type unrouted struct {
	http.ResponseWriter
	request *http.Request
}

// WriteHeader receives the router's status, after the router has set its header Allow. The status may also be a
// redirect.
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

// Write drops the router's text.
func (u unrouted) Write(text []byte) (int, error) { return len(text), nil }
