package wire

import (
	"net/http"
	"strconv"
	"time"

	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Answers. A status and its headers are sent once, with the charge and the activity id of
// the request; net/http's own canonical spelling of names is avoided on purpose
// (headers.go).

// Answer is the answer that a client gets: headers, and a status with a body, once.
type Answer struct {
	Activity string  // id of the request, for logs and for the client
	Charge   float64 // request units so far
	Status   int     // once it is sent; else 0
	Range    string  // id of the partition key range that it is from; empty for none

	begun  time.Time
	w      http.ResponseWriter
	values [usualHeaders]string // room for those of most answers
	used   int
}

// usualHeaders is how many headers an answer has room for without allocating; nearly all
// have fewer.
const usualHeaders = 14 // of an answer

// NewAnswer is an answer to the request with an activity id, of which nothing was sent.
func NewAnswer(w http.ResponseWriter, activity string) Answer {
	return Answer{w: w, Activity: activity, begun: time.Now()}
}

// Set sets a header, whose name must be in lower case unless HTTP defines it.
func (a *Answer) Set(name, value string) {
	i := a.used
	if i == len(a.values) {
		a.w.Header()[name] = []string{value}
		return
	}
	a.used++
	a.values[i] = value
	a.w.Header()[name] = a.values[i : i+1 : i+1]
}

// SetCount sets the number of items.
func (a *Answer) SetCount(items int) { a.Set(AnswerItemCount, strconv.Itoa(items)) }

// SetLSN sets the LSN that the answer is about.
func (a *Answer) SetLSN(lsn int64) { a.Set(AnswerLSN, strconv.FormatInt(lsn, 10)) }

// SetItemLSN sets the LSN of the last write of the item.
func (a *Answer) SetItemLSN(lsn int64) {
	a.Set(AnswerItemLSN, strconv.FormatInt(lsn, 10))
	h := a.w.Header()
	h["x-ms-cosmos-item-llsn"] = lowerCase(h, AnswerItemLSN)
}

// SetSession sets the session token and the LSN of a partition.
func (a *Answer) SetSession(partition string, lsn int64) {
	a.Range = partition
	a.Set(AnswerSession, service.SessionToken(partition, lsn))
	a.SetLSN(lsn)
}

// SetQueried sets the headers that say how a query was run.
func (a *Answer) SetQueried() {
	h := a.w.Header()
	h["x-ms-cosmos-is-partition-key-delete-pending"] = no
	h["x-ms-cosmos-query-execution-info"] = executionInfo
}

// SetContainer sets the headers that a container's own answers have.
func (a *Answer) SetContainer() {
	h := a.w.Header()
	h["collection-partition-index"], h["collection-service-index"] = zero, zero
}

// Send sends the answer. A nil body is empty, and any other is JSON unless its content type
// has been set. The error is the connection's.
func (a *Answer) Send(status int, body []byte) error {
	a.begin(status)
	if h := a.w.Header(); (body != nil || status == http.StatusNoContent) && h["Content-Type"] == nil {
		h["Content-Type"] = jsonType
	}
	bare := status == http.StatusNoContent || status == http.StatusNotModified
	if !bare {
		a.Set("Content-Length", strconv.Itoa(len(body)))
	}
	a.w.WriteHeader(status)
	_, err := a.w.Write(body)
	if bare {
		return nil
	}
	return err
}

// Stream sends a part of an answer whose length is not known: a backup. The first part
// makes it a 200, with a kind of content; an error after that can only cut the connection.
func (a *Answer) Stream(kind string, part []byte) (int, error) {
	if a.Status == 0 {
		a.begin(http.StatusOK)
		a.Set("Content-Type", kind)
		a.w.WriteHeader(http.StatusOK)
	}
	return a.w.Write(part)
}

// Control is the control of the connection, for an answer that takes longer than others
// may.
func (a *Answer) Control() *http.ResponseController { return http.NewResponseController(a.w) }

// begin sets the headers that every answer has, and its status.
func (a *Answer) begin(status int) {
	a.Set(AnswerActivity, a.Activity)
	a.Set(AnswerDuration, strconv.FormatFloat(float64(time.Since(a.begun))/float64(time.Millisecond), 'f', 3, 64))
	a.Set(AnswerCharge, strconv.FormatFloat(a.Charge, 'f', 2, 64))
	if a.Range != "" {
		a.Set(AnswerRange, a.Range)
	}
	h := a.w.Header()
	h["x-ms-gatewayversion"] = gatewayVersion
	h["x-ms-serviceversion"] = serviceVersion
	h["x-ms-schemaversion"] = schemaVersion
	h["x-ms-last-state-change-utc"] = startTime
	h["x-ms-xp-role"], h["x-ms-transport-request-id"] = one, one
	h["x-ms-number-of-read-regions"] = zero
	h["Cache-Control"], h["Pragma"] = noStore, noCache
	if lsn := lowerCase(h, AnswerLSN); lsn != nil {
		setReplicas(h, lsn)
	}
	a.Status = status
}

// lowerCase is a header of an answer, which Get would look for under its canonical name.
func lowerCase(h http.Header, name string) []string { return h[name] }

// setReplicas sets the headers by which the service tells how far its replicas and regions
// are. Here there is one, which has everything, so they share the value of the LSN.
func setReplicas(h http.Header, lsn []string) {
	h["x-ms-cosmos-llsn"], h["x-ms-cosmos-quorum-acked-llsn"] = lsn, lsn
	h["x-ms-global-committed-lsn"], h["x-ms-quorum-acked-lsn"] = lsn, lsn
	h["x-ms-current-replica-set-size"], h["x-ms-current-write-quorum"] = replicas, quorum
}

// Values that never change; the slices are shared by all answers.
var (
	jsonType       = []string{"application/json"}
	gatewayVersion = []string{"version=2.14.0"}
	serviceVersion = []string{"version=changefeed"}
	schemaVersion  = []string{"1.17"} // of the service in 2024
	startTime      = []string{time.Now().UTC().Format("Mon, 02 Jan 2006 15:04:05.000 GMT")}
	noStore        = []string{"no-store, no-cache"}
	noCache        = []string{"no-cache"}
	closing        = []string{"close"}
	replicas       = []string{"4"} // as many as a partition of the service has
	quorum         = []string{"3"} // of them
	zero, one      = []string{"0"}, []string{"1"}
	no             = []string{"false"}
	executionInfo  = []string{`{"reverseRidEnabled":true,"reverseIndexScan":false}`} // rows that ORDER BY takes for equal are in the order of their resource ids, backwards if the first column is
)

// SetSubStatus sets the sub-status of a refusal. Without one there is no header, as in the
// service.
func (a *Answer) SetSubStatus(sub int) {
	if sub != 0 {
		a.Set(AnswerSubStatus, strconv.Itoa(sub))
	}
}

// SetError sets the headers of an error. With last, the connection is closed after it: a
// stranger's, or one on which the rest of a body is still to come.
func (a *Answer) SetError(e *Error, last bool) {
	a.SetSubStatus(e.Sub)
	// The owner of a resource that is not served.
	delete(a.w.Header(), AnswerContentPath)
	delete(a.w.Header(), AnswerAltContentPath)
	if e.After > 0 {
		a.Set(AnswerRetryAfter, strconv.FormatInt(max(e.After.Milliseconds(), 1), 10))
	}
	if e.Allow != "" {
		a.Set(AnswerAllow, e.Allow)
	}
	if last {
		a.w.Header()["Connection"] = closing
	}
}
