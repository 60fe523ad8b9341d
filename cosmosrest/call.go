package cosmosrest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
)

// call is one request and its answer.
type call struct {
	s      *Server
	w      http.ResponseWriter
	r      *http.Request
	ctx    context.Context
	target target
	who    principal
	known  bool // who was authenticated
	late   bool // the body did not come in time

	activity string
	charge   float64 // request units so far
	meter    meter   // of what it computes
	written  bool    // something was committed: the answer must say so
	status   int     // of the answer, once it is sent

	values [usualHeaders]string // room for those of the answer
	used   int
}

func newCall(s *Server, w http.ResponseWriter, r *http.Request) *call {
	c := &call{s: s, w: w, r: r, ctx: r.Context(), activity: r.Header.Get(headerActivity)}
	c.meter.s, c.meter.ctx = s, c.ctx
	if c.activity == "" || len(c.activity) > maxActivity {
		c.activity = newUUID()
	}
	return c
}

const maxActivity = 64 // bytes of an activity id that is echoed

// newUUID is a random UUID.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, as documented
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	text := make([]byte, 0, 36)
	for i := range b {
		switch i {
		case 4, 6, 8, 10:
			text = append(text, '-')
		}
		text = hex.AppendEncode(text, b[i:i+1])
	}
	return string(text)
}

// Headers of requests, in the form that net/http keeps them in. Names that the protocol
// documents are not explained again.
const (
	headerActivity     = "X-Ms-Activity-Id"
	headerContinuation = "X-Ms-Continuation"
	headerKey          = "X-Ms-Documentdb-Partitionkey"
	headerMaxItems     = "X-Ms-Max-Item-Count"
	headerRangeID      = "X-Ms-Documentdb-Partitionkeyrangeid"
	headerSession      = "X-Ms-Session-Token"
)

// Headers of answers, in lower case as the service writes them: the .NET SDK finds the
// continuation and others by their exact spelling. Those that HTTP itself defines, such
// as Content-Type, are spelled as net/http spells them.
const (
	answerActivity       = "x-ms-activity-id"
	answerAltContentPath = "x-ms-alt-content-path"
	answerCharge         = "x-ms-request-charge"
	answerContentPath    = "x-ms-content-path"
	answerContinuation   = "x-ms-continuation"
	answerETag           = "etag"
	answerItemCount      = "x-ms-item-count"
	answerLSN            = "lsn"
	answerRetryAfter     = "x-ms-retry-after-ms"
	answerSession        = "x-ms-session-token"
	answerSubStatus      = "x-ms-substatus"
)

// header is the first value of a request header, which must be in canonical form.
func (c *call) header(name string) string {
	if v := c.r.Header[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// flag tells whether a request header says true, in any case.
func (c *call) flag(name string) bool { return strings.EqualFold(c.header(name), "true") }

// set sets a header of the answer, whose name must be in lower case unless HTTP defines it.
func (c *call) set(name, value string) {
	i := c.used
	if i == len(c.values) {
		c.w.Header()[name] = []string{value}
		return
	}
	c.used++
	c.values[i] = value
	c.w.Header()[name] = c.values[i : i+1 : i+1]
}

const usualHeaders = 12 // of an answer

// body reads the request's body. Above limit bytes it is a 413, and when it takes too long a 408.
func (c *call) body(limit int64) ([]byte, error) {
	n := c.r.ContentLength
	if n > limit {
		return nil, tooLarge(limit)
	}
	most := n
	if n < 0 {
		most = limit
	}
	takes := bodyPause + time.Duration(most/bodyRate)*time.Second
	conn := http.NewResponseController(c.w)
	timed := conn.SetReadDeadline(time.Now().Add(takes)) == nil
	b, err := c.bytes(n, limit)
	if timed {
		_ = conn.SetReadDeadline(time.Time{}) // or the end of the time would end the request
	}
	switch {
	case err == nil:
		return b, nil
	case isTooLarge(err):
		return nil, tooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.late = true
		return nil, newFault(http.StatusRequestTimeout, 0, "RequestTimeout", "the body did not come within %v: want at least %d KB a second", takes, bodyRate>>10)
	}
	return nil, badRequest("body is cut short: %v", err)
}

const (
	earlyBody = 64 << 10 // bytes that are made ready before anything of a body has come

	bodyPause = 10 * time.Second // that a body may take, and besides
	bodyRate  = 32 << 10         // a second for so many bytes
)

// bytes reads a body of n bytes, or of as many as come when n is not known.
func (c *call) bytes(n, limit int64) ([]byte, error) {
	c.r.Body = http.MaxBytesReader(c.w, c.r.Body, limit)
	if n <= 0 {
		return io.ReadAll(c.r.Body)
	}
	b := make([]byte, min(n, earlyBody))
	_, err := io.ReadFull(c.r.Body, b)
	if rest := int(n) - len(b); rest > 0 && err == nil {
		b = slices.Grow(b, rest)[:n]
		_, err = io.ReadFull(c.r.Body, b[earlyBody:])
	}
	return b, err
}

func isTooLarge(err error) bool {
	_, ok := errors.AsType[*http.MaxBytesError](err)
	return ok
}

func tooLarge(limit int64) error {
	return newFault(http.StatusRequestEntityTooLarge, 0, "RequestEntityTooLarge", "Request size is too large: want at most %d bytes", limit)
}

// waiting is the context of a request that waits for a change, for so long at most.
func (c *call) waiting(most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(c.ctx, most)
	if c.s.o.Ending == nil {
		return ctx, cancel
	}
	stop := context.AfterFunc(c.s.o.Ending, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// reply sends an answer. A nil body is an empty one. It refuses a large one while too much is
// being sent, but not one that says what was done: whoever is refused tries again.
func (c *call) reply(status int, body []byte) error {
	c.meter.rest()
	if len(body) > largeAnswer {
		defer c.s.sending.Add(-int64(len(body)))
		if c.s.sending.Add(int64(len(body))) > maxSending && !c.written {
			return throttled(holdPause, "The answers that clients are slow to read are more than %d MB together", maxSending>>20)
		}
	}
	c.frame()
	h := c.w.Header()
	if body != nil {
		h["Content-Type"] = jsonType
	}
	if status != http.StatusNoContent && status != http.StatusNotModified {
		c.set("Content-Length", strconv.Itoa(len(body)))
	}
	c.status = status
	c.w.WriteHeader(status)
	_, err := c.w.Write(body)
	if err != nil && status != http.StatusNoContent && status != http.StatusNotModified {
		c.s.log.Debug("client has gone", "activity", c.activity, "err", err)
	}
	return nil
}

const (
	largeAnswer = 64 << 10  // bytes; smaller ones are not counted
	maxSending  = 128 << 20 // bytes of large answers that are sent at once
)

// frame sets the headers that every answer has.
func (c *call) frame() {
	c.set(answerActivity, c.activity)
	c.set(answerCharge, strconv.FormatFloat(max(c.charge, chargeQuery(0, 0, c.meter.work)), 'f', 2, 64))
	h := c.w.Header()
	h["x-ms-gatewayversion"] = gatewayVersion
	h["x-ms-serviceversion"] = serviceVersion
	h["Cache-Control"] = noStore
}

// Values that never change; the slices are shared by all answers.
var (
	jsonType       = []string{"application/json"}
	gatewayVersion = []string{"version=2.14.0"}
	serviceVersion = []string{"version=changefeed"}
	noStore        = []string{"no-store, no-cache"}
	closing        = []string{"close"}
)

// refuse sends the answer of an error, unless one has been sent.
func (c *call) refuse(err error) {
	if c.status != 0 {
		return
	}
	f := faultOf(err)
	if f.status >= http.StatusInternalServerError {
		c.s.log.Error("request failed", "method", c.r.Method, "path", c.r.URL.Path, "status", f.status, "err", err, "activity", c.activity)
	}
	if f.sub != 0 || f.status >= http.StatusBadRequest {
		c.set(answerSubStatus, strconv.Itoa(f.sub))
	}
	if f.after > 0 {
		c.set(answerRetryAfter, strconv.FormatInt(max(f.after.Milliseconds(), 1), 10))
	}
	if f.allow != "" {
		c.set("Allow", f.allow)
	}
	if !c.known || c.late { // a stranger, or one whose body would be in the way
		c.w.Header()["Connection"] = closing
	}
	_ = c.reply(f.status, f.body(c.activity)) // refuses nothing
}

// session sets the session token and the LSN of a partition.
func (c *call) session(partition string, lsn int64) {
	c.set(answerSession, sessionToken(partition, lsn))
	c.set(answerLSN, strconv.FormatInt(lsn, 10))
}

// container is the one that the path names, by id or by resource id.
func (c *call) container() (*docstore.Container, error) {
	found, err := c.s.db.Container(c.target.db + "/" + c.target.coll)
	if errors.Is(err, changefeed.ErrNotFound) {
		if found = c.s.byRID(c.target.db, c.target.coll); found == nil {
			return nil, newFault(http.StatusNotFound, c.missingOwner(), "NotFound", "Owner resource does not exist: container %q of database %q", c.target.coll, c.target.db)
		}
		err = nil
	}
	if err != nil {
		return nil, err
	}
	if want := c.header("X-Ms-Cosmos-Intended-Collection-Rid"); want != "" && want != found.RID() {
		return nil, newFault(http.StatusBadRequest, subWrongRID, "BadRequest", "the container has the resource id %s: want %s, it was made anew", found.RID(), want)
	}
	c.setOwner(found)
	return found, nil
}

// setOwner tells whose the answer is: what is in a container has the container as its
// owner, a container its database. Clients put the owner's path before the resource's.
func (c *call) setOwner(cont *docstore.Container) {
	rid, path := cont.RID(), "dbs/"+cont.Database()
	if c.target.kind == "colls" {
		rid = strings.Split(cont.Self(), "/")[1]
	} else {
		path += "/colls/" + cont.ID()
	}
	c.set(answerContentPath, rid)
	c.set(answerAltContentPath, path)
}

// missingOwner is the sub-status of a missing container: 0 when it was asked for itself,
// and its database is there.
func (c *call) missingOwner() int {
	if c.target.kind != "colls" || c.target.feed {
		return subOwnerNotFound
	}
	if _, err := c.database(); err != nil {
		return subOwnerNotFound
	}
	return 0
}

// byRID is the container with these resource ids; nil for none.
func (s *Server) byRID(db, coll string) *docstore.Container {
	for _, c := range s.db.Containers() {
		if c.RID() == coll && strings.HasPrefix(c.Self(), "dbs/"+db+"/") {
			return c
		}
	}
	return nil
}

// partitionKey reads the partition key header; empty when there is none. Clients written
// in Go quote as Go does, which is not always JSON: those are accepted too.
func (c *call) partitionKey() (changefeed.PartitionKey, error) {
	text := c.header(headerKey)
	if text == "" {
		return "", nil
	}
	return parseKey(text)
}
