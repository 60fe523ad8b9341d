// Package explorer is the part of the dashboard below /store/, which shows the documents of stores and accounts to a
// person, and changes them. The store that a server has open is an account too, see package place, so there is a single
// way to all of them.
//
// Reads are GET. The dashboard lets others through only for a user who may write. Answers are bounded: lists come in
// pages, long documents are cut there, and a feed waits for the viewer.
package explorer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/items"
	"github.com/millrace/changefeed/cmd/changefeed/internal/place"
	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
)

// An Explorer is an [http.Handler] that shows stores and accounts. The zero value is not ready for use; see [New].
type Explorer struct {
	handler http.Handler
	feeds   chan struct{} // holds a token for each feed that somebody looks at

	mu     sync.Mutex // guards the rest
	places []*shown
}

// mostFeeds is how many feeds are read at the same time.
const mostFeeds = 20

// New makes an explorer that shows nothing yet.
func New() *Explorer {
	e := &Explorer{feeds: make(chan struct{}, mostFeeds)}
	mux := http.NewServeMux()
	for pattern, serve := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /containers":    e.listContainers,
		"POST /containers":   e.createContainer,
		"DELETE /containers": e.dropContainer,
		"GET /container":     e.describeContainer,
		"GET /query":         e.query,
		"GET /item":          e.getItem,
		"POST /item":         e.createItem,
		"PUT /item":          e.replaceItem,
		"DELETE /item":       e.deleteItem,
		"GET /feed":          e.follow,
		"POST /import":       e.importItems,
		"POST /split":        e.split,
		"POST /merge":        e.merge,
		"GET /copy":          e.copyAs,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := serve(w, r); err != nil {
				refuse(w, err)
			}
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, usage.Missing{Err: fmt.Errorf("the explorer has no %s %s", r.Method, r.URL.Path)})
	})
	e.handler = mux
	return e
}

// ServeHTTP implements [http.Handler].
func (e *Explorer) ServeHTTP(w http.ResponseWriter, r *http.Request) { e.handler.ServeHTTP(w, r) }

// A Place is a store or an account that is shown.
type Place struct {
	Name   string // for people; no two places have the same
	Opener *place.Opener
	Whole  place.Address // of the store or account, or of the only container that may be read

	// Account is the URL at which clients reach the store; empty if the address of a container says that.
	Account func() string
}

// shown is a place that is shown. An opener is for one goroutine at a time.
type shown struct {
	Place
	opening chan struct{} // holds one
}

// OfStore is the place of a store that somebody else has open and closes.
func OfStore(db *docstore.DB, dir string, account func() string) Place {
	opener, whole := place.OfStore(db, dir)
	name := "store in memory"
	if dir != "" {
		name = "store " + dir
	}
	return Place{Name: name, Opener: opener, Whole: whole, Account: account}
}

// Show shows a place until hide is called. Places of the same name are shown once, until the last of them is hidden.
func (e *Explorer) Show(p Place) (hide func()) {
	p.Opener.AtOnce = true // the page tells that an account is throttled
	made := &shown{Place: p, opening: make(chan struct{}, 1)}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.places = append(e.places, made)
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.places = slices.DeleteFunc(e.places, func(s *shown) bool { return s == made })
	}
}

// all are the places, each name once.
func (e *Explorer) all() (all []*shown) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.places {
		if !slices.ContainsFunc(all, func(o *shown) bool { return o.Name == p.Name }) {
			all = append(all, p)
		}
	}
	return all
}

// errNothing is why nothing can be looked into.
var errNothing = usage.Missing{Err: errors.New("this process has no store or account open that could be shown")}

// find returns the place that a request names, by default the first place.
func (e *Explorer) find(r *http.Request) (*shown, error) {
	name, all := r.FormValue("in"), e.all()
	if len(all) == 0 {
		return nil, errNothing
	}
	var names []string
	for _, p := range all {
		if name == "" || p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return nil, usage.Missing{Err: fmt.Errorf("in is %q: want one of %q", name, names)}
}

// address returns the address of the container that a request names.
func (e *Explorer) address(r *http.Request) (*shown, place.Address, error) {
	p, err := e.find(r)
	if err != nil {
		return nil, place.Address{}, err
	}
	name := r.FormValue("container")
	at := p.Whole
	at.Field, at.Given = "container", name
	var ok bool
	if at.Database, at.Container, ok = place.ParseName(name); !ok {
		return nil, at, usage.Error{Err: fmt.Errorf("container is %q: want database/container", name)}
	}
	return p, at, nil
}

// use calls f with the opener of a place, which has a single user at a time.
func (p *shown) use(ctx context.Context, f func(o *place.Opener) error) error {
	select {
	case p.opening <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-p.opening }()
	return f(p.Opener)
}

// open opens the container that a request names.
func (e *Explorer) open(r *http.Request) (t *items.Target, err error) {
	p, at, err := e.address(r)
	if err != nil {
		return nil, err
	}
	err = p.use(r.Context(), func(o *place.Opener) error {
		t, err = items.Open(r.Context(), o, at)
		return err
	})
	return t, err
}

// flagInText is a flag in an error, which has no dashes here.
var flagInText = regexp.MustCompile(`(^|[\s(])--([a-z])`)

// A failure is an error as JSON.
type failure struct {
	Error string  `json:"error"`
	Retry float64 `json:"retry_seconds,omitempty"` // of a throttled account

	// The document that somebody else has changed meanwhile, if it is still there.
	Current string `json:"current,omitempty"`
	ETag    string `json:"etag,omitempty"`
}

// refuse answers a request with an error.
func refuse(w http.ResponseWriter, err error) {
	status, f := http.StatusBadGateway, failure{Error: flagInText.ReplaceAllString(err.Error(), "$1$2")}
	if wait, ok := place.ThrottledFor(err); ok {
		f.Retry = max(wait, time.Second).Seconds()
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(f.Retry))))
		status = http.StatusTooManyRequests
	} else {
		status = statusOf(err)
	}
	if changed, ok := errors.AsType[*changedError](err); ok {
		f.Current, f.ETag = changed.current, changed.etag
	}
	answer(w, status, f)
}

// statusOf is the status of an error that is not about throttling.
func statusOf(err error) int {
	wrong, isWrong := errors.AsType[usage.Error](err)
	_, isMissing := errors.AsType[usage.Missing](err)
	switch {
	case errors.Is(err, items.ErrOtherETag):
		return http.StatusPreconditionFailed
	case errors.Is(err, items.ErrExists), errors.Is(err, place.ErrExists):
		return http.StatusConflict
	case isMissing, errors.Is(err, feed.ErrNotFound), errors.Is(err, place.ErrNoContainer):
		return http.StatusNotFound
	case isWrong && wrong.Err != nil, errors.Is(err, feed.ErrBadRequest):
		return http.StatusBadRequest
	case errors.Is(err, feed.ErrForbidden):
		return http.StatusForbidden
	case errors.Is(err, errBusy):
		return http.StatusServiceUnavailable
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok && tooLarge.Limit > 0 {
		return http.StatusRequestEntityTooLarge
	}
	return http.StatusBadGateway
}

// writeTimeout is how long a viewer may take for a part of an answer.
const writeTimeout = 10 * time.Second

// answer answers a request with JSON.
func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	text := jsonOf(body)
	w.WriteHeader(status)
	to := http.NewResponseController(w)
	for part := range slices.Chunk(text, 64<<10) {
		_ = to.SetWriteDeadline(time.Now().Add(writeTimeout)) // a test's recorder has none
		if _, err := w.Write(part); err != nil {
			return // a viewer that is gone, or takes nothing, needs no answer
		}
	}
}

// jsonOf is a value as a line of JSON.
func jsonOf(value any) []byte {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil { // a number that is none, which would be a mistake of ours
		return []byte(`{"error":"the answer is no JSON"}` + "\n")
	}
	return text.Bytes()
}
