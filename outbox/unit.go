package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/internal/service"
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
}

var (
	// ErrMixedKeys: the objects of a unit of work are of several logical partitions.
	ErrMixedKeys = errors.New("objects of several partition keys")
	// ErrUnknown: whether an earlier try of the same commit was stored cannot be found out any
	// more, because somebody has written its objects since, and it has no events or these
	// have expired. Nothing was written now. Load the objects and see.
	ErrUnknown = errors.New("whether an earlier try was stored cannot be known any more")
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
	store   changefeed.Committer
	opts    Options
	entries []*entry
	once    *envelope // what remembers the message that is being handled
	attempt *attempt  // whose outcome is unknown
	later   []func()  // calls since it was sent, to be made when its outcome is known
}

// entry is an object that is tracked. What it has when the unit commits is written, not what it had when it was tracked.
type entry struct {
	tracked
	from   Document
	state  state
	before *entry // of another Doc that was tracked for the same object: its events count, too
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
)

// NewUnit begins a unit of work on a container that is partitioned by /partitionKey.
func NewUnit(store changefeed.Committer, o Options) *Unit {
	if o.EventTTL == 0 {
		o.EventTTL = DefaultEventTTL
	}
	return &Unit{store: store, opts: o}
}

// Create tracks a new object: a document with its id is an ErrConflict.
func (u *Unit) Create(d Document) { u.track(d, created) }

// Replace tracks an object that has changed. Where the Doc has an ETag the document must
// still have it, else it is an ErrPrecondition.
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

// Commit writes the objects and their events, all or none.
//
// With success the ETags and numbers of events are in the documents, the events are no longer
// recorded, and the unit is empty. An ErrNotFound, ErrConflict or ErrPrecondition of package
// changefeed says that nothing was written, as do ErrTooLarge, ErrMixedKeys and ErrDuplicate,
// and in a first try ErrThrottled; there is also ErrUnknown. After any other error, that of an ended ctx as well, the outcome may
// be unknown: then Commit sends the same again and finds out, before it writes what was
// tracked or recorded since.
func (u *Unit) Commit(ctx context.Context) error {
	if u.attempt != nil {
		if err := u.try(ctx); err != nil {
			return err
		}
	}
	made, err := u.newAttempt(ctx)
	if err != nil {
		return fmt.Errorf("commit unit of work: %w", err)
	}
	if len(made.writes) == 0 {
		u.entries = nil
		return nil
	}
	u.attempt = made
	return u.try(ctx)
}

// try sends what is to be sent until its outcome is known.
func (u *Unit) try(ctx context.Context) error {
	u.pending(false)
	known, err := u.attempt.send(ctx, u.store)
	if known {
		u.pending(err != nil)
		u.close(err == nil)
	}
	if err != nil {
		return fmt.Errorf("commit unit of work: %w", err)
	}
	return nil
}

// pending says of the new objects of an attempt whether they are still new: while it may be stored, and
// afterwards, what happens to them is an event.
func (u *Unit) pending(isNew bool) {
	for _, o := range u.attempt.objects {
		if o.entry.events != nil && o.isNew {
			o.entry.events.isNew = isNew
		}
	}
}

// close ends an attempt, and tracks what had to wait for its end.
func (u *Unit) close(stored bool) {
	if stored {
		for _, o := range u.attempt.objects {
			*o.entry.seq = o.seq
			for _, r := range o.recorders() {
				r.drop(o.events)
			}
		}
		u.entries, u.once = nil, nil
	}
	objects := u.attempt.objects
	u.attempt = nil
	for _, o := range objects { // what has happened to it since is still to be written
		if stored && o.state != deleted && o.entry.events != nil && len(o.entry.events.events) > 0 {
			u.track(o.from, replaced)
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
	a := &attempt{unit: newID(), begun: time.Now(), ttl: seconds(u.opts.EventTTL)}
	if u.once != nil {
		if err := a.remember(u.once); err != nil {
			return nil, err
		}
	}
	for _, e := range u.entries {
		e.tracked = e.from.tracked()
		if err := a.object(e); err != nil {
			return nil, err
		}
	}
	trace := ""
	if u.opts.TraceParent != nil {
		trace = u.opts.TraceParent(ctx)
	}
	for _, o := range a.objects {
		if err := a.eventsOf(o, trace); err != nil {
			return nil, err
		}
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
