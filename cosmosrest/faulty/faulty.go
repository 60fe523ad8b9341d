// Package faulty lets a server fail on order, so that you can test what your program does when the account throttles,
// splits, is away, or does not answer.
//
//	server := faulty.New(handler) // of cosmosrest.New; cosmostest.Server has one
//	err := server.Add(faulty.Fault{Container: "shop/orders", Status: 429, SubStatus: 3200, Times: 3})
//
// Programs in other languages order faults over HTTP: see [Injector.Control]. changefeed serve --faults serves that.
package faulty

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/internal/pause"
)

// Fault is what happens to the next requests that it fits. A request meets the first of the faults that fit it.
type Fault struct {
	// Container is the container of the requests, DATABASE/CONTAINER; empty is every request for a resource.
	Container string

	// Method is the method of the requests, such as POST; empty is any. Queries are POSTs.
	Method string

	// Status is the status of the answer, from 400 to 599; the request is not carried out. 0 carries the request out.
	Status int

	// SubStatus is the header x-ms-substatus of the answer, such as 3200 for a 429, or 1002 for a 410. 0 is none.
	SubStatus int

	// RetryAfter is the header x-ms-retry-after-ms of the answer. 0 is none.
	RetryAfter time.Duration

	// Lose carries the request out and closes the connection without an answer. Not beside Status.
	Lose bool

	// Delay is how long the request waits first. It may be beside Status or Lose, or alone.
	Delay time.Duration

	// Times is the number of requests; 0 is 1.
	Times int
}

// maxDelay is the longest delay of a request.
const maxDelay = 10 * time.Minute

// check returns an error if a fault is not possible.
func (f *Fault) check() error {
	switch {
	case f.Container != "" && strings.Count(f.Container, "/") != 1:
		return fmt.Errorf("container is %q: want DATABASE/CONTAINER, or none for all", f.Container)
	case f.Status != 0 && (f.Status < 400 || f.Status > 599):
		return fmt.Errorf("status is %d: want 400 to 599, or 0 to carry the request out", f.Status)
	case f.Status != 0 && f.Lose:
		return fmt.Errorf("status is %d, and lose is set: want one of them", f.Status)
	case f.Status == 0 && !f.Lose && f.Delay == 0:
		return fmt.Errorf("the fault does nothing: want a status, lose or a delay")
	case f.Status == 0 && (f.SubStatus != 0 || f.RetryAfter != 0):
		return fmt.Errorf("status is missing: want one beside sub_status and retry_after")
	case f.SubStatus < 0:
		return fmt.Errorf("sub_status is %d: want a positive number, or 0 for none", f.SubStatus)
	case f.RetryAfter < 0:
		return fmt.Errorf("retry_after is %v: want a positive duration, or 0 for none", f.RetryAfter)
	case f.Delay < 0 || f.Delay > maxDelay:
		return fmt.Errorf("delay is %v: want 0 to %v", f.Delay, maxDelay)
	case f.Times < 0:
		return fmt.Errorf("times is %d: want a positive number, or 0 for 1", f.Times)
	}
	return nil
}

// fits reports whether a fault is for a request.
func (f *Fault) fits(r *http.Request) bool {
	if f.Method != "" && !strings.EqualFold(f.Method, r.Method) || !strings.HasPrefix(r.URL.Path, "/dbs") {
		return false
	}
	database, container, _ := strings.Cut(f.Container, "/")
	at := "/dbs/" + database + "/colls/" + container
	return f.Container == "" || r.URL.Path == at || strings.HasPrefix(r.URL.Path, at+"/")
}

// Injector is an [http.Handler] that fails on order, and otherwise calls the handler of a server.
type Injector struct {
	next http.Handler

	mu     sync.Mutex
	faults []Fault
}

// New returns an injector without faults.
func New(next http.Handler) *Injector { return &Injector{next: next} }

// Add orders a fault. If the fault is not possible, the error names the field.
func (i *Injector) Add(f Fault) error {
	if err := f.check(); err != nil {
		return fmt.Errorf("order fault: %w", err)
	}
	f.Times = max(f.Times, 1)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.faults = append(i.faults, f)
	return nil
}

// Clear removes all faults.
func (i *Injector) Clear() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.faults = nil
}

// Pending returns the faults that requests have not met yet, with the number of times that are left.
func (i *Injector) Pending() []Fault {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.faults)
}

// takeFault takes a fault for a request.
func (i *Injector) takeFault(r *http.Request) (f Fault, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := slices.IndexFunc(i.faults, func(f Fault) bool { return f.fits(r) })
	if n < 0 {
		return f, false
	}
	f = i.faults[n]
	if i.faults[n].Times--; i.faults[n].Times == 0 {
		i.faults = slices.Delete(i.faults, n, n+1)
	}
	return f, true
}

// ServeHTTP implements [http.Handler].
func (i *Injector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, ok := i.takeFault(r)
	if !ok {
		i.next.ServeHTTP(w, r)
		return
	}
	if pause.For(r.Context(), f.Delay) != nil {
		return // the client has gone
	}
	switch {
	case f.Status != 0:
		f.answer(w, r)
	case f.Lose:
		i.next.ServeHTTP(&unsent{header: http.Header{}}, r)
		panic(http.ErrAbortHandler) // closes the connection
	default:
		i.next.ServeHTTP(w, r)
	}
}

// codes are the service's words for statuses that are not those of HTTP.
var codes = map[int]string{429: "TooManyRequests", 449: "RetryWith", 503: "ServiceUnavailable", 408: "RequestTimeout"}

// answer writes the answer of a fault.
func (f *Fault) answer(w http.ResponseWriter, r *http.Request) {
	code := codes[f.Status]
	if code == "" {
		code = strings.ReplaceAll(http.StatusText(f.Status), " ", "")
	}
	if code == "" {
		code = fmt.Sprint(f.Status)
	}
	e := wire.Errorf(f.Status, f.SubStatus, code, "this answer was ordered as a fault")
	e.After = f.RetryAfter
	in := wire.NewRequest(w, r)
	out := wire.NewAnswer(w, in.Activity())
	out.SetError(e, false)
	_ = out.Send(e.Status, e.Body(out.Activity)) // an error means that the client has gone
}

// unsent is the writer of an answer that nobody receives.
type unsent struct{ header http.Header }

// Header implements [http.ResponseWriter].
func (u *unsent) Header() http.Header { return u.header }

// Write implements [http.ResponseWriter].
func (u *unsent) Write(text []byte) (int, error) { return len(text), nil }

// WriteHeader implements [http.ResponseWriter].
func (u *unsent) WriteHeader(int) {}
