package wire

import (
	"net/http"
	"strconv"
	"time"
)

// Answers. A status and its headers are sent once, with the charge and the activity id of the request. The names of
// headers are deliberately not in net/http's canonical spelling (headers.go).

// Answer is the answer to a request: headers, and a status with a body, sent once.
type Answer struct {
	Activity  string  // id of the request, for logs and for the client
	SubStatus int     // 0 if there is none
	Charge    float64 // request units so far
	Status    int     // 0 until the status was sent
	Bytes     int64   // of the body, so far
	Range     string  // id of the partition key range of the answer; may be empty
	Kind      string  // of the resource
	Method    string  // of the request
	IsList    bool    // the request is a query, or reads a set of resources
	Version   string  // of the protocol, which the client speaks

	begun  time.Time
	w      http.ResponseWriter
	values [usualHeaders]string // room for the headers of most answers
	used   int
}

// usualHeaders is how many headers an answer can have without an allocation. Nearly all answers have fewer.
const usualHeaders = 18 // of an answer

// NewAnswer returns an unsent answer to the request with an activity id.
func NewAnswer(w http.ResponseWriter, activity string) Answer {
	return Answer{w: w, Activity: activity, begun: time.Now()}
}

// Began returns when the request came.
func (a *Answer) Began() time.Time { return a.begun }

// Set sets a header. The name must be in lower case, unless HTTP defines the header.
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

// SetLSN sets the LSN of the answer.
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
	a.Set(AnswerSession, SessionToken(a.Version, partition, lsn))
	a.SetLSN(lsn)
}

// SetMaster sets the session token and the LSN of the master partition, which has databases, containers and offers.
func (a *Answer) SetMaster(lsn int64) {
	a.SetSession(masterRange, lsn)
	a.Range = ""
}

// masterRange is the id of the only range of the master partition.
const masterRange = "0"

// SetQueried sets the headers that describe how a query was run.
func (a *Answer) SetQueried() {
	h := a.w.Header()
	h["x-ms-cosmos-is-partition-key-delete-pending"] = no
	h["x-ms-cosmos-query-execution-info"] = executionInfo
}

// SetDocuments sets the number of documents in the container.
func (a *Answer) SetDocuments(n int64) {
	var room [48]byte
	text := strconv.AppendInt(append(room[:0], "documentsCount="...), n, 10)
	a.Set(AnswerResourceUsage, string(append(text, ';')))
}

// SetQueriedContainers sets the headers of a query of containers.
func (a *Answer) SetQueriedContainers() {
	h := a.w.Header()
	h["collection-partition-index"], h["collection-service-index"] = zero, zero
	h["x-ms-cosmos-query-execution-info"] = executionInfo
}

// Send sends the answer. A nil body is empty. Any other body is JSON, unless its content type has been set. The error
// comes from the connection.
func (a *Answer) Send(status int, body []byte) error {
	a.writeHeader(status)
	if h := a.w.Header(); (body != nil || status == http.StatusNoContent) && h["Content-Type"] == nil {
		h["Content-Type"] = jsonType
	}
	bare := status == http.StatusNoContent || status == http.StatusNotModified
	if !bare {
		a.Set("Content-Length", strconv.Itoa(len(body)))
	}
	a.w.WriteHeader(status)
	n, err := a.w.Write(body)
	a.Bytes += int64(n)
	if bare {
		return nil
	}
	return err
}

// Stream sends a part of an answer of unknown length, such as a backup. The first part sends the status 200 and the
// content type. After that, an error can only cut the connection.
func (a *Answer) Stream(kind string, part []byte) (int, error) {
	if a.Status == 0 {
		a.writeHeader(http.StatusOK)
		a.Set("Content-Type", kind)
		a.w.WriteHeader(http.StatusOK)
	}
	n, err := a.w.Write(part)
	a.Bytes += int64(n)
	return n, err
}

// Control returns the control of the connection, for an answer that may take longer than others.
func (a *Answer) Control() *http.ResponseController { return http.NewResponseController(a.w) }

// writeHeader sets the headers that every answer has, and its status.
func (a *Answer) writeHeader(status int) {
	a.Set(AnswerActivity, a.Activity)
	a.Set(AnswerDuration, strconv.FormatFloat(float64(time.Since(a.begun))/float64(time.Millisecond), 'f', 3, 64))
	a.Set(AnswerCharge, strconv.FormatFloat(a.Charge, 'f', 2, 64))
	if a.Range != "" {
		a.Set(AnswerRange, a.Range)
	}
	h, own := a.w.Header(), Reply(a.Kind, a.Method, a.IsList, status)
	for i := range constantHeaders {
		if row := &constantHeaders[i]; row.Always.Has(own) {
			h[row.key] = row.values
		}
	}
	if lsn := lowerCase(h, AnswerLSN); lsn != nil {
		h["x-ms-cosmos-llsn"], h["x-ms-global-committed-lsn"] = lsn, lsn
		if (ofPrimary | anyError).Has(own) {
			setQuorum(h, lsn)
		}
	}
	a.Status = status
}

// lowerCase returns a header of an answer. Get cannot be used, because Get looks for the canonical name.
func lowerCase(h http.Header, name string) []string { return h[name] }

// setQuorum sets the headers in which the service reports how far its replicas are. This server has only a single
// replica, so all these headers have the same LSN.
func setQuorum(h http.Header, lsn []string) {
	h["x-ms-cosmos-quorum-acked-llsn"], h["x-ms-quorum-acked-lsn"] = lsn, lsn
	h["x-ms-current-replica-set-size"], h["x-ms-current-write-quorum"] = replicas, quorum
}

// Values that never change; all answers share the slices.
var (
	jsonType       = []string{"application/json"}
	gatewayVersion = []string{"version=2.14.0"}
	serviceVersion = []string{"version=changefeed"}
	schemaVersion  = []string{"1.17"} // of the service in 2024
	startTime      = []string{time.Now().UTC().Format("Mon, 02 Jan 2006 15:04:05.000 GMT")}
	noStore        = []string{"no-store, no-cache"}
	noCache        = []string{"no-cache"}
	closing        = []string{"close"}
	replicas       = []string{"4"} // as for a partition of the service
	quorum         = []string{"3"} // number of replicas
	zero, one      = []string{"0"}, []string{"1"}
	no             = []string{"false"}
	// rows that are equal for ORDER BY are in the order of their resource ids, in reverse if the first column is
	executionInfo = []string{`{"reverseRidEnabled":true,"reverseIndexScan":false}`}
)

// SetSubStatus sets the sub-status of an error. As in the service, there is no header if sub is 0.
func (a *Answer) SetSubStatus(sub int) {
	a.SubStatus = sub
	if sub != 0 {
		a.Set(AnswerSubStatus, strconv.Itoa(sub))
	}
}

// SetError sets the headers of an error. If last is set, the connection is closed after the error, because the sender
// is unknown or the rest of a body is still to come.
func (a *Answer) SetError(e *Error, last bool) {
	a.SetSubStatus(e.Sub)
	// Removes what was set about a resource that is not served.
	own := Reply(a.Kind, a.Method, a.IsList, e.Status)
	for _, row := range replyHeaders {
		if !(row.Always | row.Maybe).Has(own) {
			delete(a.w.Header(), row.key)
		}
	}
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
