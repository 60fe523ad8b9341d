package admin

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
	"github.com/millrace/changefeed/internal/sentence"
)

// RequestState is how a request is, as a word for programs.
type RequestState string

// The states of a request.
const (
	RequestAsked     RequestState = "asked"
	RequestServed    RequestState = "served"    // the caller has not removed the request
	RequestWithdrawn RequestState = "withdrawn" // after an instance had begun with it, or without the right to delete
	RequestExpired   RequestState = "expired"   // the caller has died
)

// Request is a request of an operator to the instances of a unit: by this package about leases, or by package
// deadletters about a partition key.
type Request struct {
	feed.Record

	State  RequestState
	Action string          // such as pause, reset, retry or release; later versions have others
	Of     feed.Range      // of a request about leases; empty for a request about a key
	Key    json.RawMessage // of a request about a key
	Letter string          // ID of a dead letter; empty if the request is not about a letter
	By     string          // who asks; empty if that is unknown
	Reason string          // why; empty if that is unknown
	Asked  time.Time       // by the clock of the caller; zero if that is unknown
	Silent time.Duration   // since the record was written
	Waits  string          // why the owner does not serve the request; empty if unknown

	Notes []string // remarks for the operator
}

func (q *Request) note(format string, args ...any) {
	q.Notes = append(q.Notes, fmt.Sprintf(format, args...))
}

// describeRequest describes a request.
func describeRequest(record feed.Record, now time.Time) Request {
	r := notes.ReadRequest(record.Properties)
	q := Request{
		Record: record, Action: r.Action, Letter: r.Letter, Asked: record.Timestamp.UTC(),
		Silent: max(0, now.Sub(record.Updated)), Waits: record.Properties[notes.WaitsProperty],
	}
	if record.Err != nil {
		q.note("%v", record.Err)
	}
	if json.Valid([]byte(r.Key)) {
		q.Key = json.RawMessage(r.Key)
	}
	control, err := notes.ReadControl(record.Properties)
	if err == nil {
		q.Of = feed.Range{Min: control.Min, Max: control.Max}
		q.By, q.Reason = control.By, control.Why
	}
	q.addState(now, err == nil && control.Action == notes.Pause, r.Tries > 0)
	if q.By != "" {
		q.note("by %s", sentence.OneLine(q.By))
	}
	if q.Reason != "" {
		q.note("%s", sentence.OneLine(q.Reason))
	}
	return q
}

// addState adds the state of the request. A pause lasts until somebody ends the pause, and has no answer.
func (q *Request) addState(now time.Time, isPause, begun bool) {
	outcome, answered := notes.ReadOutcome(q.Record.Properties)
	q.State = RequestAsked
	switch isRetired := q.Record.State == feed.StateRetired; {
	case isRetired && isPause:
		q.State = RequestWithdrawn
		q.note("the pause is over; the store removes it")
	case isPause:
	case isRetired && answered:
		q.State = RequestServed
		q.note("its outcome is %s; the store removes it", outcome.Result)
	case isRetired:
		q.State = RequestWithdrawn
		q.note("the store removes it")
	case q.TTL > 0 && now.After(q.Updated.Add(q.TTL)):
		q.State = RequestExpired
		q.note("nobody serves it any more")
	case q.Waits != "":
		q.note("not served yet: %s", sentence.OneLine(q.Waits))
	case begun:
		q.note("an instance has begun with it")
	default:
		q.note("the owner of its range has not answered yet")
	}
}

// pauses reports whether the request pauses keys of a range.
func (q *Request) pauses(r feed.Range) bool {
	return q.Action == notes.Pause && q.State == RequestAsked && r.Overlaps(q.Of)
}

// addPauses adds the requests that pause leases, and marks the leases whose owners have not obeyed.
func (l *Listing) addPauses() {
	for i := range l.Leases {
		lease := &l.Leases[i]
		for j := range l.Requests {
			if q := &l.Requests[j]; lease.Pause == nil && q.pauses(lease.Range) {
				lease.Pause = q
			}
		}
		lease.IsDefied = lease.Pause != nil && lease.Owner != "" && lease.Record.State == feed.StateLive &&
			lease.State != StateBroken
	}
}
