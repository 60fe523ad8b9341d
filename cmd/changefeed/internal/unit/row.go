package unit

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/admin"
	"github.com/millrace/changefeed/feed"
)

// A Row describes a record, or keys without a record, as the tables and the lines for programs show them. Package admin
// has all these facts; a row has them in a single form.
type Row struct {
	Processor string
	Container string
	Kind      string
	ID        string
	Lease     string // token
	Range     string
	Owner     string
	Epoch     string
	Position  string
	Mode      string
	State     string
	Attempts  int
	Held      int      // partition keys
	HeldKeys  []string // their names
	SetAside  int      // partition keys
	Outage    string
	Silent    float64
	Lag       *int64 // changes; nil if unknown
	Exact     bool
	Shared    bool     // an upper bound, see [changefeed.Lag]
	Waited    *float64 // of the oldest of these changes; nil if unknown
	Watermark time.Time
	Stuck     []feed.Stuck
	Pace      *changefeed.Pace
	Request   *Request
	Overlaps  []string       // the ids of leases that cover some of the same keys
	InHand    *float64       // seconds that a batch of a lease has been in the handler, if that is too long
	Leases    int            // of an instance
	Load      *int64         // of a lease; nil without a measurement
	Sharing   shared         // of an instance
	Runs      *feed.Variant  // variant of an instance; nil if the instance does not tell
	Presence  admin.Presence // of an instance
	Stray     Stray          // of a document of no unit
	Notes     []string

	record feed.Record
}

func (r *Row) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// A Request is an operator's request to the owner of a key.
type Request struct {
	Action string // retry, release, or an action of a later version
	Key    json.RawMessage
	Letter string    // ID
	Asked  time.Time // by the clock of the caller
	Range  string    // of a request about leases; empty for a request about a key

	age time.Duration
}

// rowsOf returns the rows of a listing, by their ranges, so that a hole stands at the right place.
func rowsOf(l *admin.Listing) (rows []Row) {
	for _, i := range l.Instances {
		r := rowOf(KindInstance, i.Record, i.Notes, i.Silent)
		r.Presence, r.Leases, r.Runs, r.Sharing = i.Presence, i.Leases, i.Runs, sharingOf(i)
		rows = append(rows, r)
	}
	for _, q := range l.Requests {
		rows = append(rows, requestRow(q, l.At))
	}
	for _, d := range l.Documents {
		rows = append(rows, rowOf(KindDocument, d.Record, d.Notes, max(0, l.At.Sub(d.Updated))))
	}
	for _, lease := range l.Leases {
		rows = append(rows, leaseRow(lease, l.At))
	}
	for _, h := range l.Holes {
		r := Row{Kind: KindHole, Range: h.Range.String(), Notes: h.Notes, record: feed.Record{Range: h.Range}}
		rows = append(rows, r)
	}
	slices.SortStableFunc(rows, func(a, b Row) int { return compareRanges(a.record.Range, b.record.Range) })
	return rows
}

// compareRanges orders ranges by their beginnings, and then by their ends.
func compareRanges(a, b feed.Range) int {
	return strings.Compare(a.Min+"-"+a.Max, b.Min+"-"+b.Max)
}

// rowOf returns the row of a record.
func rowOf(kind string, record feed.Record, notes []string, silent time.Duration) Row {
	return Row{
		Kind: kind, ID: record.ID, Lease: record.Token, Owner: record.Owner, Epoch: record.Epoch, Notes: notes,
		Position: PositionText(record.Position), Mode: record.Mode.String(), State: record.State.String(),
		Attempts: record.Attempts, Silent: silent.Seconds(), record: record,
	}
}

// leaseRow returns the row of a lease.
func leaseRow(lease admin.Lease, now time.Time) Row {
	r := rowOf(KindLease, lease.Record, lease.Notes, lease.Silent)
	r.State, r.Stuck, r.Overlaps = string(lease.State), lease.Stuck, lease.Overlaps
	r.Held, r.HeldKeys, r.SetAside = len(lease.Held), lease.Held, len(lease.SetAside)
	if !lease.Range.Empty() {
		r.Range = lease.Range.String()
	}
	if !lease.Outage.IsZero() {
		r.Outage = lease.Outage.UTC().Format(time.RFC3339)
	}
	if load, measured := lease.LoadOf(); measured {
		r.Load = &load
	}
	if len(lease.Slow) > 0 {
		r.InHand = new(lease.InHand(now).Seconds())
	}
	if lag := lease.Lag; lag != nil {
		r.Lag, r.Exact, r.Shared = new(lag.Pending), lag.Exact, lag.Shared
		if age, known := lag.Age(now); known {
			r.Waited = new(age.Seconds())
		}
		r.Watermark, r.Pace = lag.Watermark, lag.Pace
	}
	return r
}

// requestRow returns the row of a request.
func requestRow(q admin.Request, now time.Time) Row {
	r := rowOf(KindRequest, q.Record, q.Notes, q.Silent)
	r.Lease, r.State = "", string(q.State)
	r.Request = &Request{Action: q.Action, Letter: q.Letter, Asked: q.Asked, Key: q.Key, age: now.Sub(q.Asked)}
	if q.Asked.IsZero() {
		r.Request.age = now.Sub(q.Updated)
	}
	if !q.Of.Empty() {
		r.Request.Range = q.Of.String()
	}
	return r
}
