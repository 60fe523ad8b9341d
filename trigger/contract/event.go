package contract

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/millrace/changefeed/feed"
)

// Events are messages about the processor, for programs whose hello asks for them. Without them a program would have to
// read the texts of a log.

// The kinds of events, all to the program.
const (
	KindReady   Kind = "ready"   // the leases of the unit exist
	KindLease   Kind = "lease"   // the instance has acquired, released or lost a lease
	KindParked  Kind = "parked"  // a change is among the dead letters
	KindOutage  Kind = "outage"  // an outage has begun or ended
	KindProblem Kind = "problem" // something has failed, and the processor goes on
)

// isEvent reports whether a kind is that of an event.
func (k Kind) isEvent() bool {
	switch k {
	case KindReady, KindLease, KindParked, KindOutage, KindProblem:
		return true
	}
	return false
}

// The values of [Event].What.
const (
	Acquired = "acquired" // a lease
	Released = "released" // a lease
	Lost     = "lost"     // a lease: another instance may own it
	Began    = "began"    // an outage
	Ended    = "ended"    // an outage
)

// An Event is an event of the processor. Members that do not belong to its kind are empty.
type Event struct {
	Type   Kind   `json:"type"`
	Missed int    `json:"missed,omitempty"` // events left out before this event, because the program did not read
	Lease  string `json:"lease,omitempty"`  // token: of a lease, a letter or a problem
	What   string `json:"what,omitempty"`   // of a lease or an outage

	Reason string `json:"reason,omitempty"` // of a lease that is released: why

	Letter      string          `json:"letter,omitempty"` // of a parked change: id of the letter
	Item        string          `json:"item,omitempty"`   // its id
	Key         json.RawMessage `json:"key,omitempty"`    // its partition key, an array
	LSN         int64           `json:"lsn,omitempty"`
	Cause       string          `json:"cause,omitempty"` // the last error
	Attempts    int             `json:"attempts,omitempty"`
	Disposition string          `json:"disposition,omitempty"`

	Since *time.Time `json:"since,omitempty"` // of an outage
	Count int        `json:"count,omitempty"` // of an outage: changes that had used up their attempts

	Code    string `json:"code,omitempty"`    // of a problem: the word of [feed.CodeOf], or failed
	Origin  string `json:"origin,omitempty"`  // of a problem: a [feed.Origin]
	Attempt int    `json:"attempt,omitempty"` // of a problem: of the batch that has failed
	Error   string `json:"error,omitempty"`   // of a problem: the text
	Hint    string `json:"hint,omitempty"`    // of a problem: the next step, if known
}

// EventHooks returns hooks that make events. hint returns the next step after an error, or an empty text; hint may be
// nil.
func EventHooks(tell func(Event), hint func(error) string) feed.Hooks {
	return feed.Hooks{
		Ready: func(context.Context) { tell(Event{Type: KindReady}) },
		Acquired: func(_ context.Context, l feed.Lease) {
			tell(Event{Type: KindLease, Lease: l.Token, What: Acquired})
		},
		Released: func(_ context.Context, l feed.Lease, why feed.Reason) {
			what := Released
			if why == feed.ReasonLost || why == feed.ReasonStuck {
				what = Lost
			}
			tell(Event{Type: KindLease, Lease: l.Token, What: what, Reason: string(why)})
		},
		Parked: func(_ context.Context, l feed.DeadLetter) { tell(parkedEvent(l)) },
		Outage: func(_ context.Context, o feed.Outage) {
			e := Event{Type: KindOutage, What: Began, Since: new(o.Since.UTC()), Count: o.Changes}
			if !o.Ended.IsZero() {
				e.What = Ended
			}
			tell(e)
		},
		Error: func(_ context.Context, err *feed.Error) {
			if !errors.Is(err, feed.ErrOutage) { // Outage says it
				tell(problemEvent(err, hint))
			}
		},
	}
}

// parkedEvent returns the event of a parked change.
func parkedEvent(l feed.DeadLetter) Event {
	e := Event{
		Type: KindParked, Letter: l.ID, Lease: l.Lease, Item: l.Change.ID, LSN: l.Change.LSN, Cause: cutText(l.Cause),
		Attempts: l.Attempts, Disposition: string(l.Disposition),
	}
	if key := []byte(l.Change.PartitionKey); json.Valid(key) {
		e.Key = key
	}
	return e
}

// problemEvent returns the event of an error.
func problemEvent(err *feed.Error, hint func(error) string) Event {
	e := Event{
		Type: KindProblem, Lease: err.Lease, Origin: string(err.Origin), Error: cutText(err.Err.Error()),
		Code: feed.CodeOf(err.Err),
	}
	if e.Code == "" {
		e.Code = "failed"
	}
	if failed, ok := errors.AsType[*feed.BatchError](err.Err); ok {
		e.Attempt = failed.Attempt
	}
	if hint != nil {
		e.Hint = hint(err.Err)
	}
	return e
}

// cutText returns the beginning of a text, in valid UTF-8.
func cutText(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxText)], "") }

// maxEvents is how many events wait for a program that does not read. Further ones are left out and counted.
const maxEvents = 1000

// WantsEvents reports whether the hello of the program asks for events.
func (h *Host) WantsEvents() bool { return h.hello.Events }

// Tell sends an event to the program, if the program's hello has asked for events. Tell does not wait for the program.
func (h *Host) Tell(e Event) {
	if !h.hello.Events {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.err != nil:
		return
	case h.untold >= maxEvents:
		h.missed++
		return
	}
	e.Missed, h.missed = h.missed, 0
	h.untold++
	h.lines.sendLine(encode(e), func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.untold--
		return nil
	})
}
