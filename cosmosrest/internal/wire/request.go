package wire

import (
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Requests: the headers that several operations read, with the service's rules for their values. The 400 for an
// invalid value names the header. A header of a single operation is read in that operation.

// Request is a request as the client sent it: its path, its headers, and a body that can be read once.
type Request struct {
	Target Target
	Method string
	Signed time.Time // the date that a key of the account has signed; zero if none has
	Late   bool      // the body did not come in time, so its rest is still to come on the connection

	http *http.Request
	w    http.ResponseWriter // its connection has the deadline of the body
}

// NewRequest returns a request whose path is not parsed yet.
func NewRequest(w http.ResponseWriter, r *http.Request) Request {
	return Request{Method: r.Method, http: r, w: w}
}

// Path returns the path as the client sent it.
func (r *Request) Path() string { return r.http.URL.Path }

// Client returns the address of the sender, without the port, which changes with each connection.
func (r *Request) Client() string {
	host, _, err := net.SplitHostPort(r.http.RemoteAddr)
	if err != nil {
		return r.http.RemoteAddr // of a network in memory
	}
	return host
}

// Parse reads the path into Target.
func (r *Request) Parse() (err error) {
	r.Target, err = ParsePath(pathOf(r.http.URL))
	return err
}

// pathOf returns the escaped path of a request. A question mark in the path of an item belongs to the item's id: some
// SDKs do not escape the id, and no request about an item has a query string.
func pathOf(u *url.URL) string {
	path := u.EscapedPath()
	if u.RawQuery == "" && !u.ForceQuery || !strings.Contains(path, "/docs/") {
		return path
	}
	return path + "?" + u.RawQuery
}

// Header returns the first value of a header, or "" if there is none. The name must be in canonical form;
// [http.Header.Get] would convert the name at each call.
func (r *Request) Header(name string) string {
	if v := r.http.Header[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// Flag reports whether a header is "true", in upper or lower case.
func (r *Request) Flag(name string) bool { return strings.EqualFold(r.Header(name), "true") }

// Activity returns the activity id that the client sent, or a new one. Every answer and the log contain this id, so
// the request in a user's report can be found in the log.
func (r *Request) Activity() string {
	if id := r.http.Header.Get(HeaderActivity); id != "" && len(id) <= maxActivity {
		return id
	}
	return NewUUID()
}

// Base returns the address that the client called, without a path. The account's answer repeats this address, because
// a server may have several names.
func (r *Request) Base() (scheme, host string) {
	if r.http.TLS == nil {
		return "http", r.http.Host
	}
	return "https", r.http.Host
}

// Address returns the whole address that the client called.
func (r *Request) Address() string {
	scheme, host := r.Base()
	return scheme + "://" + host + r.http.URL.EscapedPath()
}

// A body may take a fixed time plus a time for its length, so a slow client cannot hold a connection for hours. Only
// a first part is allocated before any bytes of the body have come.
const (
	earlyBody = 64 << 10 // bytes allocated before any of the body has come

	bodyPause = 10 * time.Second // fixed part of the time for a body
	bodyRate  = 32 << 10         // bytes per additional second
)

// Body reads the body. If the body is larger than limit bytes, the error is a 413; if the body takes too long, a 408.
func (r *Request) Body(limit int64) ([]byte, error) {
	n := r.http.ContentLength
	if n > limit {
		return nil, TooLarge(limit)
	}
	most := n
	if n < 0 {
		most = limit
	}
	patience := bodyPause + time.Duration(most/bodyRate)*time.Second
	conn := http.NewResponseController(r.w)
	timed := conn.SetReadDeadline(time.Now().Add(patience)) == nil
	b, err := r.readBody(n, limit)
	if timed {
		_ = conn.SetReadDeadline(time.Time{}) // otherwise the old deadline would end the request
	}
	switch {
	case err == nil:
		return b, nil
	case isTooLarge(err):
		return nil, TooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		r.Late = true
		return nil, Errorf(http.StatusRequestTimeout, 0, CodeTimeout,
			"the body did not come within %v: want at least %d KB a second", patience, bodyRate>>10)
	}
	return nil, BadRequest("body is cut short: %v", err)
}

// readBody reads a body of n bytes, or of unknown length if n is negative. If the length is known, the slice has
// capacity for an item's system properties, so the item can be stored without a copy.
func (r *Request) readBody(n, limit int64) ([]byte, error) {
	if n < 0 {
		// This does not replace r.http.Body, because the rest of the body may have to be dropped later.
		return io.ReadAll(http.MaxBytesReader(r.w, r.http.Body, limit))
	}
	early := min(n, earlyBody)
	b := make([]byte, early, early+service.SystemRoom)
	_, err := io.ReadFull(r.http.Body, b)
	if rest := int(n) - len(b); rest > 0 && err == nil {
		b = slices.Grow(b, rest+service.SystemRoom)[:n]
		_, err = io.ReadFull(r.http.Body, b[earlyBody:])
	}
	return b, err
}

// isTooLarge reports whether an error means that a body exceeds its limit.
func isTooLarge(err error) bool {
	_, ok := errors.AsType[*http.MaxBytesError](err)
	return ok
}

// Key returns the partition key header as the client sent it; empty if there is none.
func (r *Request) Key() (feed.PartitionKey, error) { return Key(r.Header(HeaderKey)) }

// IsQuery reports whether the request is a query, by its content type. The headers of old SDKs are enough for clients
// that send no content type. As in the service, a body of type application/json is created as an item.
func (r *Request) IsQuery() bool {
	kind := r.Header(HeaderContentType)
	return r.IsBareQuery() || strings.HasPrefix(kind, QueryType) || !strings.HasPrefix(kind, "application/json") &&
		(r.Flag(HeaderIsQuery) || r.Flag(HeaderQuery))
}

// IsBareQuery reports whether the request is a query whose body contains only the query text.
func (r *Request) IsBareQuery() bool {
	return r.Flag(HeaderIsQuery) && strings.HasPrefix(r.Header(HeaderContentType), "application/sql")
}

// Minimal reports whether the client does not need the written item in the answer.
func (r *Request) Minimal() bool { return strings.Contains(r.Header(HeaderPrefer), "return=minimal") }

// IfMatch returns the ETag that the client's write requires, with quotes; empty if there is none.
func (r *Request) IfMatch() string { return Quoted(r.Header(HeaderIfMatch)) }

// RefuseOther refuses a request whose condition names another version of a resource than the present one.
func (r *Request) RefuseOther(etag string) error {
	if want := r.Header(HeaderIfMatch); want != "" && want != "*" && !SameTag(want, etag) {
		return PreconditionFailed("the resource has the ETag %s: want %s, it was changed", etag, want)
	}
	return nil
}

// Has reports whether the client already has this version of a resource, according to If-None-Match.
func (r *Request) Has(etag string) bool { return SameTag(r.Header(HeaderIfNoneMatch), etag) }

// MaxItems reads x-ms-max-item-count. MaxItems returns 0 if the header is missing, 0 or -1; -1 leaves the number to
// the server.
func (r *Request) MaxItems() (int, error) {
	text := r.Header(HeaderMaxItems)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	switch {
	case err == nil && n == -1:
		return 0, nil
	case err != nil || n < 0:
		return 0,
			BadRequest("The input PageSize %.64s is invalid. Ensure to pass a valid page size which must be a "+
				"positive integer or -1 for a dynamic page size. "+
				"x-ms-max-item-count is %.64q: want 1 to %d, or -1", text, text, math.MaxInt32)
	}
	return int(n), nil
}

// PageRows returns how many rows a page of a query or of ReadFeed may have. For -1 the result is 0, which means any
// number.
func (r *Request) PageRows() (int, error) {
	if text := r.Header(HeaderMaxItems); text == "" || text == "0" {
		return UsualRows, nil
	}
	return r.MaxItems()
}

// CheckContinuationLimit refuses a limit for the size of continuations that is not a positive number of KB. Other
// limits have no effect, because continuations are small.
func (r *Request) CheckContinuationLimit() error {
	text := r.Header(HeaderContinueLimit)
	if text == "" {
		return nil
	}
	if n, err := strconv.ParseInt(text, 10, 32); err != nil || n < 1 {
		return BadRequest("x-ms-documentdb-responsecontinuationtokenlimitinkb is %.64q: want 1 to %d", text,
			math.MaxInt32)
	}
	return nil
}

// Consistent refuses a read if the partition cannot serve the request's consistency level or session.
func (r *Request) Consistent(part feed.Partition, newest int64) error {
	return Consistent(r.Header(HeaderConsistency), r.Header(HeaderSession), part, newest)
}

// Narrow applies the headers for a range of effective partition keys to the range in. If a bound has no header, the
// bound of in counts. named reports whether there was such a header.
func (r *Request) Narrow(in feed.Range) (sub feed.Range, named bool, err error) {
	sub = in
	for _, bound := range []struct {
		header string
		to     *string
	}{{HeaderStartEPK, &sub.Min}, {HeaderEndEPK, &sub.Max}} {
		text := r.Header(bound.header)
		if text == "" {
			continue
		}
		named = true
		if len(text) > maxEPK || strings.Trim(text, "0123456789ABCDEFabcdef") != "" {
			return sub, named, BadRequest("%s is %.64q: want an effective partition key in hexadecimal digits",
				strings.ToLower(bound.header), text)
		}
		*bound.to = strings.ToUpper(text)
	}
	switch {
	case !named:
		return sub, false, nil
	case sub.Empty():
		return sub, named, BadRequest("x-ms-start-epk is %q and x-ms-end-epk is %q: want a start below the end",
			sub.Min, sub.Max)
	case !in.Contains(sub):
		return sub, named, Gone("keys %s are not all in range %s: read the ranges again", sub, in)
	}
	return sub, named, nil
}

// Features returns a function that reports whether the client supports a feature of query plans, according to the
// client's list. A client without a list supports none.
func (r *Request) Features() func(feature string) bool {
	listed := map[string]bool{}
	for name := range strings.SplitSeq(r.Header(HeaderFeatures), ",") {
		listed[strings.ToLower(strings.TrimSpace(name))] = true
	}
	return func(feature string) bool { return listed[strings.ToLower(feature)] }
}
