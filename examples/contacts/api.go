package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// api answers HTTP requests.
type api struct {
	contacts *Contacts
	events   *journal
}

// endpoint answers a request. If an endpoint returns an error, the client gets a problem document.
type endpoint func(w http.ResponseWriter, r *http.Request) error

const root = "/api/contacts"

// listRoutes returns the service's routes. The page and its events are added in makeHandler.
func (a *api) listRoutes() map[string]endpoint {
	return map[string]endpoint{
		"POST " + root:                              a.createContact,
		"GET " + root:                               a.listContacts,
		"GET " + root + "/{id}":                     a.getContact,
		"POST " + root + "/{id}/update-name":        change[UpdateName](a),
		"POST " + root + "/{id}/update-description": change[UpdateDescription](a),
		"POST " + root + "/{id}/update-email":       change[UpdateEmail](a),
		"POST " + root + "/{id}/update-company":     change[UpdateCompany](a),
		"DELETE " + root + "/{id}":                  a.deleteContact,
	}
}

var (
	//go:embed openapi.json
	description []byte
	//go:embed page.html
	page []byte
)

// makeHandler returns a handler with all routes. Requests that a browser sends for other sites cannot change data.
func (a *api) makeHandler() http.Handler {
	mux := http.NewServeMux()
	for pattern, answer := range a.listRoutes() {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, mostBody)
			if err := answer(w, r); err != nil {
				writeProblem(w, r, err)
			}
		})
	}
	mux.HandleFunc("GET /openapi.json", asset("application/json", description))
	mux.HandleFunc("GET /{$}", asset("text/html; charset=utf-8", page))
	mux.HandleFunc("GET /events", a.events.serveEvents)
	routed := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern == "" {
			w = unrouted{w, r}
		}
		mux.ServeHTTP(w, r)
	})
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, r, &requestError{http.StatusForbidden, "a page of another site may change nothing here"})
	}))
	return protection.Handler(routed)
}

func asset(contentType string, text []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(text) // a client that has gone needs no answer
	}
}

func (a *api) createContact(w http.ResponseWriter, r *http.Request) error {
	var cmd CreateContact
	if err := decode(r, &cmd); err != nil {
		return err
	}
	key := r.Header.Get("Idempotency-Key")
	if len(key) > mostKey {
		return Faults{{Parameter: "Idempotency-Key", Detail: fmt.Sprintf("must have at most %d characters", mostKey)}}
	}
	id, etag, err := a.contacts.Create(r.Context(), cmd, key)
	if err != nil {
		return err
	}
	if etag != "" {
		w.Header().Set("ETag", etag)
	}
	w.Header().Set("Location", root+"/"+id)
	w.WriteHeader(http.StatusCreated)
	return nil
}

func (a *api) getContact(w http.ResponseWriter, r *http.Request) error {
	id, known, err := address(r, "If-None-Match")
	if err != nil {
		return err
	}
	v, etag, err := a.contacts.Get(r.Context(), id, known)
	if etag != "" {
		w.Header().Set("ETag", etag)
	}
	if err != nil {
		return err
	}
	return reply(w, v)
}

const (
	defaultPage = 10
	mostPage    = 1000
)

func (a *api) listContacts(w http.ResponseWriter, r *http.Request) error {
	size := defaultPage
	if text := r.URL.Query().Get("pageSize"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > mostPage {
			return Faults{{Parameter: "pageSize", Detail: fmt.Sprintf("must be a number from 1 to %d", mostPage)}}
		}
		size = n
	}
	p, next, err := a.contacts.List(r.Context(), size, r.Header.Get(continuationHeader))
	if err != nil {
		return err
	}
	if next != "" {
		w.Header().Set(continuationHeader, next)
	}
	return reply(w, p)
}

// change returns the endpoint for a command in the body.
func change[C Command](a *api) endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		var cmd C
		if err := decode(r, &cmd); err != nil {
			return err
		}
		return a.doCommand(w, r, cmd, http.StatusNoContent)
	}
}

func (a *api) deleteContact(w http.ResponseWriter, r *http.Request) error {
	return a.doCommand(w, r, DeleteContact{}, http.StatusOK)
}

func (a *api) doCommand(w http.ResponseWriter, r *http.Request, cmd Command, status int) error {
	id, match, err := address(r, "If-Match")
	if err != nil {
		return err
	}
	etag, err := a.contacts.Do(r.Context(), id, cmd, match)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", etag)
	w.WriteHeader(status)
	return nil
}

var uuid = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// address returns the id of the contact, and the ETags in a header: in the standard header or, if that is missing, in
// ETag, which the .NET sample uses in both cases.
func address(r *http.Request, standard string) (id string, tags Tags, err error) {
	id = strings.ToLower(r.PathValue("id"))
	sent := r.Header.Get("ETag")
	switch {
	case !uuid.MatchString(id):
		return "", nil, errNoContact
	case strings.Trim(id, "0-") == "":
		return "", nil, Faults{{Parameter: "id", Detail: "must not be the empty UUID"}}
	case len(sent) > mostTag:
		return "", nil, Faults{{Parameter: "ETag", Detail: fmt.Sprintf("must have at most %d characters", mostTag)}}
	}
	headers := r.Header.Values(standard)
	if len(headers) > 0 {
		sent = strings.Join(headers, ",")
	}
	// an invalid header must not count as no condition
	if tags = parseTags(sent, standard == "If-None-Match"); len(headers) > 0 && tags == nil {
		return "", nil, Faults{{Parameter: standard, Detail: "must have an ETag"}}
	}
	return id, tags, nil
}

// Tags are the ETags that a client knows; nil means none.
type Tags []string

// parseTags parses a list of ETags. Weak ETags count only if weak is set.
func parseTags(list string, weak bool) (t Tags) {
	for tag := range strings.SplitSeq(list, ",") {
		tag = strings.TrimSpace(tag)
		if weak {
			tag = strings.TrimPrefix(tag, "W/")
		}
		if tag != "" {
			t = append(t, tag)
		}
	}
	return t
}

// Have reports whether an ETag is in the list.
func (t Tags) Have(etag string) bool {
	for _, tag := range t {
		if tag == "*" || tag == etag {
			return true
		}
	}
	return false
}

const mostBody = 64 << 10

// A requestError is the error of a request that cannot be read or answered.
type requestError struct {
	status int
	detail string
}

func (e *requestError) Error() string { return e.detail }

// decode reads a body. The body must be a single JSON object without unknown members.
func decode(r *http.Request, into any) error {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind != "application/json" {
		return &requestError{http.StatusUnsupportedMediaType, "the Content-Type must be application/json"}
	}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = decodeObject(body, into)
	}
	if err == nil {
		return nil
	}
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &requestError{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body must have at most %d bytes",
			large.Limit)}
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		return Faults{{Pointer: "#/" + wrong.Field, Detail: "must not be a " + wrong.Value}}
	}
	return &requestError{http.StatusBadRequest, "the body must be a JSON object: " +
		strings.TrimPrefix(err.Error(), "json: ")}
}

// decodeObject reads exactly one object. decodeObject refuses null, because null would leave all fields unchanged,
// which here means empty.
func decodeObject(body []byte, into any) error {
	if trimmed := bytes.TrimSpace(body); len(trimmed) > 0 && trimmed[0] != '{' && json.Valid(trimmed) {
		return errors.New("it is none")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, more := d.Token(); !errors.Is(more, io.EOF) {
		return errors.New("it has more after it")
	}
	return nil
}

// reply answers with JSON.
func reply(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(v)
}
