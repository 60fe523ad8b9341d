package wire

import (
	"errors"
	"io"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Requests: the headers that more than one operation reads, each with the service's rules
// for its values and a 400 that names the header. Headers of one operation are read where
// it is.

// Request is a request as the client sent it: its path, its headers, and a body that can be
// read once.
type Request struct {
	Target Target
	Method string
	Late   bool // the body did not come in time, so the rest of it is still to come on the connection

	http *http.Request
	w    http.ResponseWriter // whose connection has the deadline of the body
}

// NewRequest is a request before its path is parsed.
func NewRequest(w http.ResponseWriter, r *http.Request) Request {
	return Request{Method: r.Method, http: r, w: w}
}

// Path is the path as it came.
func (r *Request) Path() string { return r.http.URL.Path }

// Parse reads the path into Target.
func (r *Request) Parse() (err error) {
	r.Target, err = ParsePath(r.http.URL.EscapedPath())
	return err
}

// Header is the first value of a header, whose name must be in canonical form, because
// [http.Header.Get] would make that form again at each call. Without the header it is
// empty.
func (r *Request) Header(name string) string {
	if v := r.http.Header[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// Flag reports whether a header says true, in any case.
func (r *Request) Flag(name string) bool { return strings.EqualFold(r.Header(name), "true") }

// Activity is the activity id that the client gave, or a new one. It is in every answer and
// in the log, so that a report of a user can be found there.
func (r *Request) Activity() string {
	if id := r.http.Header.Get(HeaderActivity); id != "" && len(id) <= maxActivity {
		return id
	}
	return NewUUID()
}

// Base is the address that the client called, without a path. The account's answer repeats
// it, because the server may be reached by several names.
func (r *Request) Base() (scheme, host string) {
	if r.http.TLS == nil {
		return "http", r.http.Host
	}
	return "https", r.http.Host
}

// A body may take a fixed time and a time by its length, so that a slow client does not
// hold a connection for hours; and only its beginning is allocated before any of it has
// come.
const (
	earlyBody = 64 << 10 // bytes that are allocated before anything of a body has come

	bodyPause = 10 * time.Second // that a body may take, and besides
	bodyRate  = 32 << 10         // a second for so many bytes
)

// Body reads the body. Above limit bytes it is a 413, and if it takes too long a 408.
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
	b, err := r.read(n, limit)
	if timed {
		_ = conn.SetReadDeadline(time.Time{}) // or the end of the time would end the request
	}
	switch {
	case err == nil:
		return b, nil
	case isTooLarge(err):
		return nil, TooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		r.Late = true
		return nil, Errorf(http.StatusRequestTimeout, 0, CodeTimeout, "the body did not come within %v: want at least %d KB a second", patience, bodyRate>>10)
	}
	return nil, BadRequest("body is cut short: %v", err)
}

// read reads a body of n bytes, or of as many as come when n is not known. A body of known
// length has the room for an item's system properties, so that it can be stored without a copy.
func (r *Request) read(n, limit int64) ([]byte, error) {
	if n < 0 {
		// Not put in the place of the body, whose rest may have to be dropped.
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

// isTooLarge reports the error of a body above its limit.
func isTooLarge(err error) bool {
	_, ok := errors.AsType[*http.MaxBytesError](err)
	return ok
}

// Key is the partition key header as it came; empty when there is none.
func (r *Request) Key() (feed.PartitionKey, error) { return Key(r.Header(HeaderKey)) }

// IsQuery reports a query, by its content type. The old SDKs' headers do alone, for clients
// that send no content type: what comes as application/json is created, as in the service.
func (r *Request) IsQuery() bool {
	kind := r.Header(HeaderContentType)
	return r.IsBareQuery() || strings.HasPrefix(kind, QueryType) || !strings.HasPrefix(kind, "application/json") && (r.Flag(HeaderIsQuery) || r.Flag(HeaderQuery))
}

// IsBareQuery reports a query whose body is its text and nothing else.
func (r *Request) IsBareQuery() bool {
	return r.Flag(HeaderIsQuery) && strings.HasPrefix(r.Header(HeaderContentType), "application/sql")
}

// Minimal reports whether the client does not want back what it wrote.
func (r *Request) Minimal() bool { return strings.Contains(r.Header(HeaderPrefer), "return=minimal") }

// IfMatch is the ETag that the client's write is conditional on, with its quotes; empty for none.
func (r *Request) IfMatch() string { return Quoted(r.Header(HeaderIfMatch)) }

// RefuseOther refuses a request about another version of a resource than the present one.
func (r *Request) RefuseOther(etag string) error {
	if want := r.Header(HeaderIfMatch); want != "" && want != "*" && !SameTag(want, etag) {
		return PreconditionFailed("the resource has the ETag %s: want %s, it was changed", etag, want)
	}
	return nil
}

// Has reports whether the client has this version of a resource already, by If-None-Match.
func (r *Request) Has(etag string) bool { return SameTag(r.Header(HeaderIfNoneMatch), etag) }

// MaxItems reads x-ms-max-item-count. It is 0 without the header, for 0, and for -1, which
// leaves the number to the server.
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
		return 0, BadRequest("The input PageSize %.64s is invalid. Ensure to pass a valid page size which must be a positive integer or -1 for a dynamic page size. "+
			"x-ms-max-item-count is %.64q: want 1 to %d, or -1", text, text, math.MaxInt32)
	}
	return int(n), nil
}

// PageRows is how many rows a page of a query or of ReadFeed may have; 0 is any number, for -1.
func (r *Request) PageRows() (int, error) {
	if text := r.Header(HeaderMaxItems); text == "" || text == "0" {
		return UsualRows, nil
	}
	return r.MaxItems()
}

// Consistent refuses a read that the partition cannot serve at the consistency, or to the
// session, of the request.
func (r *Request) Consistent(part feed.Partition, newest int64) error {
	return Consistent(r.Header(HeaderConsistency), r.Header(HeaderSession), part, newest)
}

// Narrow applies the headers for a range of effective partition keys to a range. A bound
// without a header is that of the range. named reports whether there was such a header.
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
			return sub, named, BadRequest("%s is %.64q: want an effective partition key in hexadecimal digits", strings.ToLower(bound.header), text)
		}
		*bound.to = strings.ToUpper(text)
	}
	switch {
	case !named:
		return sub, false, nil
	case sub.Empty():
		return sub, named, BadRequest("x-ms-start-epk is %q and x-ms-end-epk is %q: want a start below the end", sub.Min, sub.Max)
	case !in.Contains(sub):
		return sub, named, Gone("keys %s are not all in range %s: read the ranges again", sub, in)
	}
	return sub, named, nil
}

// Features reports whether the client can carry out a feature of plans, by its own list. A
// client without a list has none.
func (r *Request) Features() func(feature string) bool {
	listed := map[string]bool{}
	for name := range strings.SplitSeq(r.Header(HeaderFeatures), ",") {
		listed[strings.ToLower(strings.TrimSpace(name))] = true
	}
	return func(feature string) bool { return listed[strings.ToLower(feature)] }
}
