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

// inboxType is the type of what remembers a message.
const inboxType = "inbox"

// DefaultEventTTL is how long events are kept, published or not.
const DefaultEventTTL = 10 * 24 * time.Hour

// Options configure a [Unit]. The zero value works.
type Options struct {
	// EventTTL is the time to live of events, in whole seconds; 10 days by default. An event
	// that no relay has published by then is lost, so a [Relay] warns before. A negative one
	// is for ever: then let [RelayOptions.ExpireAfter] remove them.
	//
	// The container needs a default time to live, -1 for example, or the service expires
	// nothing.
	EventTTL time.Duration

	// TraceParent gives the W3C trace context to store with the events, as that of package
	// outboxotel does; none by default.
	TraceParent func(ctx context.Context) string

	// TraceState gives the tracestate that belongs to TraceParent; none by default.
	TraceState func(ctx context.Context) string
}

// traceContext is the W3C trace context of a commit.
type traceContext struct{ parent, state string }

// traceOf calls the functions. A tracestate without a traceparent means nothing.
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
	// ErrMixedKeys: the objects of a unit of work are of several logical partitions.
	ErrMixedKeys = errors.New("objects of several partition keys")
	// ErrDuplicate: the message of [Unit.Once] was handled before.
	ErrDuplicate = errors.New("message was handled before")
)

// Unit is a unit of work: objects of one logical partition and the events that they have
// recorded, committed as one atomic batch. It is not for concurrent use. Make one for each piece
// of work: after a Commit that was refused it still has what it had.
//
// Each document carries the number of its unit, which is drawn at random. So a Commit whose
// answer is lost can be repeated: what was committed is recognized, and nothing is doubled.
type Unit struct {
	store   feed.Committer
	opts    Options
	entries []*entry
	once    *envelope // what remembers the message that is being handled
	attempt *attempt  // whose outcome is unknown
	outcome error     // of the last attempt whose outcome is known, or can never be known
	later   []func()  // calls since it was sent, to be made when its outcome is known
}

// entry is an object that is tracked. What it has when the unit commits is written, not what it had when it was tracked.
type entry struct {
	tracked
	from   Document
	state  state
	before *entry // of another Doc that was tracked for the same object: its events count, too
}

// versions are the documents that were tracked for an object, the last one first.
func (e *entry) versions() (all []tracked) {
	for ; e != nil; e = e.before {
		all = append(all, e.tracked)
	}
	return all
}

// documents are those that were tracked for an object, the first one first.
func (e *entry) documents() (all []Document) {
	for ; e != nil; e = e.before {
		all = append(all, e.from)
	}
	slices.Reverse(all)
	return all
}

// recorders are those with the events of an object, which is mostly one.
func (e *entry) recorders() (all []*Recorder) {
	if e.before != nil {
		all = e.before.recorders()
	}
	if e.events != nil && !slices.Contains(all, e.events) {
		all = append(all, e.events)
	}
	return all
}

// state is what becomes of an object.
type state uint8

const (
	unmodified state = iota
	created
	replaced
	deleted
	gone // deleted by an earlier attempt: only its events are still to be written
)

// NewUnit begins a unit of work on a container that is partitioned by /partitionKey.
func NewUnit(store feed.Committer, o Options) *Unit {
	if o.EventTTL == 0 {
		o.EventTTL = DefaultEventTTL
	}
	return &Unit{store: store, opts: o}
}

// Create tracks a new object: a document with its id is a [feed.ErrConflict].
func (u *Unit) Create(d Document) { u.track(d, created) }

// Replace tracks an object that has changed. Where the Doc has an ETag the document must
// still have it, else it is a [feed.ErrPrecondition].
func (u *Unit) Replace(d Document) { u.track(d, replaced) }

// Delete tracks an object to be removed from the container, under its ETag as for Replace.
// Its events are stored all the same.
func (u *Unit) Delete(d Document) { u.track(d, deleted) }

// Keep tracks an object that is unmodified. It is not written, unless it has recorded events.
func (u *Unit) Keep(d Document) { u.track(d, unmodified) }

// track keeps an object with its latest state: one that is tracked twice is written once.
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
	case before == created && s == deleted: // it never was
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

// Once makes the unit the effect of a message: it is committed at most once for the id of the
// message, and Commit returns ErrDuplicate when it was before. The key is that of the unit's
// objects. What remembers the message is kept for a time to live, 10 days if it is 0: as long
// as the broker may deliver it again.
func (u *Unit) Once(partitionKey, messageID string, ttl time.Duration) {
	if u.attempt != nil {
		u.later = append(u.later, func() { u.Once(partitionKey, messageID, ttl) })
		return
	}
	u.once = &envelope{ID: "inbox-" + digest(messageID), PartitionKey: partitionKey, Type: inboxType, TTL: seconds(cmp.Or(ttl, DefaultEventTTL))}
}

// Commit writes the objects and their events, all or none. It has three outcomes.
//
// Stored: nil. The documents have their ETags and numbers of events, the events are no longer
// recorded, and the unit is empty.
//
// Not stored: a [*NotStoredError] with the reason. The unit is as it was.
//
// Unknown: an [*UnknownError], which is an [ErrUnknown]. Call [Unit.Settle], which sends the same unit
// until one of the other two outcomes is certain. A further Commit does that once, and then
// writes what was tracked or recorded since.
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
// If an object was written by somebody else between the commit and the moment at which Commit finds
// out that it is stored, the Doc gets an ETag that no document has, so that the next
// Replace is a [feed.ErrPrecondition].
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

// markNew says of the new objects of an attempt whether they are still new: while it may be stored, and
// afterwards, what happens to them is an event.
func (u *Unit) markNew(isNew bool) {
	for _, o := range u.attempt.objects {
		for _, r := range o.news {
			r.isNew = isNew
		}
	}
}

// closeAttempt ends an attempt, and tracks what had to wait for its end.
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
	for _, o := range objects { // what has happened to it since is still to be written
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

// newAttempt turns the unit into writes, and checks the limits before anything is sent.
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

// seconds is a time to live as the service has it: whole seconds, at least one and no more than an int32 has; -1 for ever.
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
