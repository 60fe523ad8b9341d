package outbox

import (
	"slices"
	"sync/atomic"
	"time"
)

// Event is an event of an object. An Event is stored as JSON and must be a JSON object. The unit of work marshals the
// Event at the commit, so an Event with a reference to the object contains the final state of the object. The stored
// event has the members id, action and createdAt. If your Event has a member createdAt of its own, that value is kept;
// id and action must be absent.
type Event interface {
	// EventName returns the action, as in ContactNameUpdatedEvent.
	EventName() string
}

// Aggregate is an object with an embedded [Recorder], which records events of the object.
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
// A Unit finds a Recorder only if Data itself is the object that embeds the Recorder, or a pointer to that object.
// Events of a Recorder in a named field, or of a child in a field, are not stored: record events on the object that is
// the Doc's Data.
//
// The zero value has no events, like an object that was read. A Recorder is not for concurrent use, and does not appear
// in the JSON of the object.
type Recorder struct {
	events []*recorded
	isNew  bool // the created event covers all later events until the commit
}

type recorded struct {
	Event
	at    time.Time
	place int64 // order among all recorded events of this process
}

// recordings counts the recorded events of this process, for all objects, because a unit of work stores its events in
// the order in which they were recorded.
var recordings atomic.Int64

func newRecorded(e Event) *recorded { return &recorded{e, time.Now(), recordings.Add(1)} }

// RecordCreated records the first event of a new object. Until this event is committed, no other event is added:
// [Recorder.Record] and [Recorder.RecordAlso] do nothing, because the created event contains the object's state at the
// commit.
func (r *Recorder) RecordCreated(e Event) {
	r.events, r.isNew = []*recorded{newRecorded(e)}, true
}

// Record records an event. If an earlier event has the same name, the new event takes the place of the earlier event.
func (r *Recorder) Record(e Event) {
	same := func(earlier *recorded) bool { return earlier.EventName() == e.EventName() }
	if i := slices.IndexFunc(r.events, same); i >= 0 && !r.isNew {
		r.events[i] = &recorded{e, time.Now(), r.events[i].place}
		return
	}
	r.RecordAlso(e)
}

// RecordAlso records an event and keeps earlier events of the same name.
func (r *Recorder) RecordAlso(e Event) {
	if !r.isNew {
		r.events = append(r.events, newRecorded(e))
	}
}

// Forget removes the events with a name.
func (r *Recorder) Forget(name string) {
	r.events = slices.DeleteFunc(r.events, func(e *recorded) bool { return e.EventName() == name })
}

// ForgetAll removes all events. A new object is then treated like an object that was read.
func (r *Recorder) ForgetAll() { r.events, r.isNew = nil, false }

// Recorded returns the events that are not committed yet, in the order of their first occurrence.
func (r *Recorder) Recorded() []Event {
	events := make([]Event, len(r.events))
	for i, e := range r.events {
		events[i] = e.Event
	}
	return events
}

// IsNew reports whether the object has a created event that is not committed yet.
func (r *Recorder) IsNew() bool { return r.isNew }

// dropCommitted removes committed events.
func (r *Recorder) dropCommitted(committed []*recorded) {
	r.events = slices.DeleteFunc(r.events, func(e *recorded) bool { return slices.Contains(committed, e) })
}

func (r *Recorder) recorder() *Recorder { return r }
