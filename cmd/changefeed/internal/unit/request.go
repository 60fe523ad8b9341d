package unit

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"github.com/millrace/changefeed/cmd/changefeed/internal/terminal"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/notes"
)

// A Request is an operator's request to the owner of a key.
type Request struct {
	Action string // retry, release, or an action of a later version
	Key    json.RawMessage
	Letter string    // ID
	Asked  time.Time // by the clock of the caller
	Range  string    // of a request about leases; empty for one about a key

	age time.Duration
}

// The states of a request.
const (
	asked     = "asked"
	served    = "served"    // the caller has not removed the request
	withdrawn = "withdrawn" // after an instance had begun with the request, or by a caller without the right to delete
	expired   = "expired"   // the caller has died
)

// describeRequest makes the row the row of a request.
func (r *Row) describeRequest(now time.Time) {
	q := notes.ReadRequest(r.record.Properties)
	r.Kind, r.Lease = KindRequest, ""
	r.Request = &Request{Action: q.Action, Letter: q.Letter, Asked: r.record.Timestamp.UTC()}
	if r.Request.age = now.Sub(r.Request.Asked); r.Request.Asked.IsZero() {
		r.Request.age = now.Sub(r.record.Updated)
	}
	if json.Valid([]byte(q.Key)) {
		r.Request.Key = json.RawMessage(q.Key)
	}
	if control, err := notes.ReadControl(r.record.Properties); err == nil {
		r.Request.Range = control.Min + "-" + control.Max
		r.describeControl(control)
		return
	}
	outcome, ok := notes.ReadOutcome(r.record.Properties)
	why := r.record.Properties[notes.WaitsProperty]
	switch {
	case r.record.State == feed.StateRetired && ok:
		r.State = served
		r.note("its outcome is %s; the store removes it", outcome.Result)
	case r.record.State == feed.StateRetired:
		r.State = withdrawn
		r.note("the store removes it")
	case r.record.TTL > 0 && now.After(r.record.Updated.Add(r.record.TTL)):
		r.State = expired
		r.note("nobody serves it any more")
	case why != "":
		r.State = asked
		r.note("not served yet: %s", terminal.OneLine(why))
	case q.Tries > 0:
		r.State = asked
		r.note("an instance has begun with it")
	default:
		r.State = asked
		r.note("the owner of its range has not answered yet")
	}
}

// describeControl describes a request about whole leases.
func (r *Row) describeControl(control notes.Control) {
	switch {
	case r.record.State == feed.StateRetired && control.Action == notes.Pause:
		r.State = withdrawn
		r.note("the pause is over; the store removes it")
	case r.record.State == feed.StateRetired:
		r.State = served
		r.note("the store removes it")
	default:
		r.State = asked
	}
	if control.By != "" {
		r.note("by %s", terminal.OneLine(control.By))
	}
	if control.Why != "" {
		r.note("%s", terminal.OneLine(control.Why))
	}
}

// longestKey is the width of a request in a table.
const longestKey = 41

// cells returns the columns of a request: action and key, age, and state. The ID would fill the line.
func (q *Request) cells(r Row) []string {
	name := terminal.Shorten(terminal.OneLine(q.Action+" "+cmp.Or(q.Range, string(q.Key))), longestKey)
	return []string{
		name, "-", terminal.Seconds(max(0, q.age.Seconds())) + " ago", "-", "-", "-", r.State, "-",
		strings.Join(r.Notes, "; "),
	}
}
