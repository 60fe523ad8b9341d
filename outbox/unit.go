package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// EventType is the type of an event's document.
const EventType = "domainEvent"

// inboxType is the type of the documents to remember messages.
const inboxType = "inbox"

// DefaultEventTTL is how long events are kept, published or not.
const DefaultEventTTL = 10 * 24 * time.Hour

// Options configure a [Unit]. The zero value works.
type Options struct {
	// EventTTL is the time to live of events, in whole seconds; 10 days by default. If no relay has published an event
	// by then, the event is lost, so a [Relay] warns before. If you set a negative EventTTL, events live for ever: then
	// let [RelayOptions.ExpireAfter] remove them.
	//
	// The container needs a default time to live, for example -1, because otherwise the service expires nothing.
	EventTTL time.Duration

	// TraceParent returns the W3C trace context to store with the events, such as the function of package outboxotel;
	// none by default.
	TraceParent func(ctx context.Context) string

	// TraceState returns the tracestate of TraceParent; none by default.
	TraceState func(ctx context.Context) string
}

// traceContext is the W3C trace context of a commit.
type traceContext struct{ parent, state string }

// traceOf calls the functions. A tracestate without a traceparent has no meaning.
func (o Options) traceOf(ctx context.Context) (t traceContext) {
	if o.TraceParent != nil {
		t.parent = o.TraceParent(ctx)
	}
	if o.TraceState != nil && t.parent != "" {
		t.state = o.TraceState(ctx)
	}
	return t
}

var (
	// ErrMixedKeys: the objects of a unit of work belong to several logical partitions.
	ErrMixedKeys = errors.New("objects of several partition keys")
	// ErrDuplicate: the message of [Unit.Once] was handled before.
	ErrDuplicate = errors.New("message was handled before")
)

// Unit is a unit of work: objects of one logical partition and their recorded events, committed as one atomic batch. A
// Unit is not for concurrent use. Make a new Unit for each piece of work: after a refused Commit, the Unit still
// contains its objects.
//
// Each document contains the random number of the unit. So you can repeat a Commit whose answer was lost: the committed
// documents are recognized, and nothing is stored twice.
type Unit struct {
	store   feed.Committer
	opts    Options
	entries []*entry
	once    *envelope // the document that remembers the handled message
	attempt *attempt  // the attempt with an unknown outcome
	outcome error     // of the last attempt whose outcome is known, or can never be known
	later   []func()  // calls since the attempt was sent, postponed until its outcome is known
}

// entry is a tracked object. Commit writes the object's state at the commit, not the state when it was tracked.
type entry struct {
	tracked
	from   Document
	state  state
	before *entry // another Doc that was tracked for the same object before, whose events count too
}

// versions returns the tracked documents of an object, the last first.
func (e *entry) versions() (all []tracked) {
	for ; e != nil; e = e.before {
		all = append(all, e.tracked)
	}
	return all
}

// documents returns the tracked documents of an object, the first first.
func (e *entry) documents() (all []Document) {
	for ; e != nil; e = e.before {
		all = append(all, e.from)
	}
	slices.Reverse(all)
	return all
}

// recorders returns the recorders with the events of an object, usually a single recorder.
func (e *entry) recorders() (all []*Recorder) {
	if e.before != nil {
		all = e.before.recorders()
	}
	if e.events != nil && !slices.Contains(all, e.events) {
		all = append(all, e.events)
	}
	return all
}

// state says how the unit changes an object.
type state uint8

const (
	unmodified state = iota
	created
	replaced
	deleted
	gone // deleted by an earlier attempt: only its events remain to be written
)

// NewUnit begins a unit of work on a container partitioned by /partitionKey.
func NewUnit(store feed.Committer, o Options) *Unit {
	if o.EventTTL == 0 {
		o.EventTTL = DefaultEventTTL
	}
	return &Unit{store: store, opts: o}
}

// Create tracks a new object: if a document with its id exists, Commit fails with a [feed.ErrConflict].
func (u *Unit) Create(d Document) { u.track(d, created) }

// Replace tracks a changed object. If the Doc has an ETag and the document no longer has the same, Commit fails with a
// [feed.ErrPrecondition].
func (u *Unit) Replace(d Document) { u.track(d, replaced) }

// Delete tracks an object to be removed from the container, under its ETag as for Replace. Its events are stored
// nevertheless.
func (u *Unit) Delete(d Document) { u.track(d, deleted) }

// Keep tracks an unmodified object. Commit writes the object only if there are recorded events.
func (u *Unit) Keep(d Document) { u.track(d, unmodified) }

// track keeps an object with its latest state: an object tracked twice is written once.
func (u *Unit) track(d Document, s state) {
	if u.attempt != nil {
		u.later = append(u.later, func() { u.track(d, s) })
		return
	}
	t := d.tracked()
	i := slices.IndexFunc(u.entries, func(e *entry) bool { return e.id == t.id && e.key == t.key })
	if i < 0 {
		u.entries = append(u.entries, &entry{tracked: t, from: d, state: s})
		return
	}
	before := u.entries[i].state
	switch {
	case before == created && s == deleted: // the object never existed
		u.entries = slices.Delete(u.entries, i, i+1)
		return
	case before == created && s != created:
		s = created
	case before == deleted && s == created:
		s = replaced
	case before == gone && s == unmodified:
		s = gone
	case s == unmodified:
		s = before
	}
	u.entries[i] = &entry{tracked: t, from: d, state: s, before: u.entries[i]}
}

// Once makes the unit the effect of a message: the unit is committed at most once for the id of the message. If the
// unit was committed before, Commit returns ErrDuplicate. The partition key is that of the unit's objects. The record
// of the message is kept for a time to live, 10 days if ttl is 0: choose the time in which the broker may redeliver the
// message.
func (u *Unit) Once(partitionKey, messageID string, ttl time.Duration) {
	if u.attempt != nil {
		u.later = append(u.later, func() { u.Once(partitionKey, messageID, ttl) })
		return
	}
	u.once = &envelope{
		ID: "inbox-" + digest(messageID), PartitionKey: partitionKey, Type: inboxType,
		TTL: seconds(cmp.Or(ttl, DefaultEventTTL)),
	}
}

// Commit writes the objects and their events, all or none. It has three outcomes.
//
// Stored: nil. The documents have their ETags and numbers of events, the events are no longer recorded, and the unit is
// empty.
//
// Not stored: a [*NotStoredError] with the reason. The unit is unchanged.
//
// Unknown: an [*UnknownError], which is an [ErrUnknown]. Call [Unit.Settle], which sends the same unit until the unit
// is certainly stored or not stored. If you call Commit again instead, Commit sends the same unit once, and then writes
// the objects and events tracked or recorded since.
//
//	err := u.Commit(ctx)
//	if errors.Is(err, outbox.ErrUnknown) {
//		err = u.Settle(ctx)
//	}
//	switch {
//	case err == nil: // stored
//	case errors.Is(err, outbox.ErrUnknown): // ctx has ended: say so to the caller, who may ask again
//	case errors.Is(err, feed.ErrPrecondition): // not stored: load again, decide again
//	}
//
// If another writer has written an object after the commit and before Commit finds out that the unit is stored, the Doc
// receives an ETag no document has, so your next Replace fails with a [feed.ErrPrecondition].
func (u *Unit) Commit(ctx context.Context) error {
	if u.attempt != nil {
		if err := u.sendOnce(ctx); err != nil {
			return err
		}
	}
	if unknown, ok := errors.AsType[*UnknownError](u.outcome); ok { // a second attempt would be another unit
		return unknown
	}
	made, err := u.newAttempt(ctx)
	if err != nil {
		u.outcome = &NotStoredError{err}
		return u.outcome
	}
	if len(made.writes) == 0 {
		u.entries, u.outcome = nil, nil
		return nil
	}
	u.attempt = made
	return u.sendOnce(ctx)
}

// sendOnce sends the attempt once.
func (u *Unit) sendOnce(ctx context.Context) error {
	u.markNew(false)
	err := u.attempt.commitWrites(ctx, u.store)
	unknown, ok := errors.AsType[*UnknownError](err)
	if ok && !unknown.IsFinal {
		return err
	}
	u.outcome = err
	u.markNew(err != nil)
	u.closeAttempt(err == nil)
	return err
}

// markNew marks the new objects of an attempt as new or not: while the attempt may be stored, and afterwards, further
// changes of the objects are events.
func (u *Unit) markNew(isNew bool) {
	for _, o := range u.attempt.objects {
		for _, r := range o.news {
			r.isNew = isNew
		}
	}
}

// closeAttempt ends an attempt, and makes the calls postponed to the end.
func (u *Unit) closeAttempt(stored bool) {
	if stored {
		for _, o := range u.attempt.objects {
			*o.entry.seq = o.seq
			for _, version := range o.versions() {
				if *version.etag == "" && o.write >= 0 && o.state != deleted {
					*version.etag = writtenSince
				}
			}
			for _, r := range o.recorders() {
				r.dropCommitted(o.events)
			}
		}
		u.entries, u.once = nil, nil
	}
	objects := u.attempt.objects
	u.attempt = nil
	for _, o := range objects { // later events of the object remain to be written
		hasEvents := slices.ContainsFunc(o.recorders(), func(r *Recorder) bool { return len(r.events) > 0 })
		if !stored || !hasEvents {
			continue
		}
		next := replaced
		if o.state == deleted || o.state == gone {
			next = gone
		}
		for _, d := range o.documents() {
			u.track(d, next)
		}
	}
	later := u.later
	u.later = nil
	for _, call := range later {
		call()
	}
}

// newAttempt makes the writes of the unit, and checks the limits before they are sent.
func (u *Unit) newAttempt(ctx context.Context) (*attempt, error) {
	a := &attempt{unit: newID(), begun: time.Now(), ttl: seconds(u.opts.EventTTL), event: -1}
	if u.once != nil {
		if err := a.addMemory(u.once); err != nil {
			return nil, err
		}
	}
	for _, e := range u.entries {
		e.tracked = e.from.tracked()
		if err := a.addObject(e); err != nil {
			return nil, err
		}
	}
	if err := a.addEvents(u.opts.traceOf(ctx)); err != nil {
		return nil, err
	}
	switch {
	case len(a.writes) > service.MaxBatch:
		return nil, fmt.Errorf("%w: %d documents, want at most %d", ErrTooLarge, len(a.writes), service.MaxBatch)
	case a.size > service.MaxBatchSize:
		return nil, fmt.Errorf("%w: %d bytes, want at most %d", ErrTooLarge, a.size, service.MaxBatchSize)
	}
	return a, nil
}

// seconds converts a time to live for the service: whole seconds, at least 1 and at most the largest int32; -1 is for
// ever.
func seconds(d time.Duration) int {
	if d < 0 {
		return -1
	}
	n := d / time.Second
	if d%time.Second > 0 {
		n++
	}
	return int(min(max(1, n), math.MaxInt32))
}
