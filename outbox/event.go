package outbox

import (
	"slices"
	"sync/atomic"
	"time"
)

// Event is something that has happened to an object. It is stored as JSON, so it is a JSON
// object; it is marshalled when its unit of work commits, so one that refers to its object
// carries the final state of it. It gets the members id, action and createdAt: of these it may
// have a createdAt of its own, which is kept.
type Event interface {
	// EventName is the action, as in ContactNameUpdatedEvent.
	EventName() string
}

// Aggregate is an object that records its events: one that embeds a [Recorder].
type Aggregate interface {
	recorder() *Recorder
}

// Recorder keeps the events of an object until a unit of work has committed them. Embed it:
//
//	type Contact struct {
//		outbox.Recorder
//		Name string `json:"name"`
//	}
//
//	func (c *Contact) Rename(to string) {
//		c.Name = to
//		c.Record(Renamed{Name: to})
//	}
//
// A Recorder is found only if Data itself is the object that embeds it, or a pointer to that. The events of a Recorder
// in a named field, or of a child in a field, are not stored: record on the object that is the Doc's Data.
//
// The zero value has no events, as an object has that was read. A Recorder is not for
// concurrent use, and has no part in the JSON of its object.
type Recorder struct {
	events []*recorded
	isNew  bool // its created event says all that happens until it is committed
}

type recorded struct {
	Event
	at    time.Time
	place int64 // among all events that this process has recorded
}

// recordings counts the events that this process has recorded, of whatever object: a unit of work stores its events in the
// order in which they were recorded.
var recordings atomic.Int64

func newRecorded(e Event) *recorded { return &recorded{e, time.Now(), recordings.Add(1)} }

// RecordCreated records the first event of a new object. Until that is committed it is the
// only one: [Recorder.Record] and [Recorder.RecordAlso] add nothing, since the created event
// carries the state that the object has at the commit.
func (r *Recorder) RecordCreated(e Event) {
	r.events, r.isNew = []*recorded{newRecorded(e)}, true
}

// Record records an event. An earlier one of the same name is replaced in its place.
func (r *Recorder) Record(e Event) {
	same := func(earlier *recorded) bool { return earlier.EventName() == e.EventName() }
	if i := slices.IndexFunc(r.events, same); i >= 0 && !r.isNew {
		r.events[i] = &recorded{e, time.Now(), r.events[i].place}
		return
	}
	r.RecordAlso(e)
}

// RecordAlso records an event and keeps earlier ones of the same name.
func (r *Recorder) RecordAlso(e Event) {
	if !r.isNew {
		r.events = append(r.events, newRecorded(e))
	}
}

// Forget removes the events with a name.
func (r *Recorder) Forget(name string) {
	r.events = slices.DeleteFunc(r.events, func(e *recorded) bool { return e.EventName() == name })
}

// ForgetAll removes all events. A new object is then as one that was read.
func (r *Recorder) ForgetAll() { r.events, r.isNew = nil, false }

// Recorded are the events that are not committed yet, in the order of their first occurrence.
func (r *Recorder) Recorded() []Event {
	events := make([]Event, len(r.events))
	for i, e := range r.events {
		events[i] = e.Event
	}
	return events
}

// IsNew reports whether the object is one whose created event is not committed yet.
func (r *Recorder) IsNew() bool { return r.isNew }

// dropCommitted removes events that are committed.
func (r *Recorder) dropCommitted(committed []*recorded) {
	r.events = slices.DeleteFunc(r.events, func(e *recorded) bool { return slices.Contains(committed, e) })
}

func (r *Recorder) recorder() *Recorder { return r }
