package outbox

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// attempt is a unit of work as sent: the same bytes until the outcome is known. So a second try cannot differ from the
// first.
type attempt struct {
	unit   string
	key    string
	writes []feed.Write
	size   int
	once   bool // the first write remembers a message
	unsure bool // the attempt was sent, with an unknown outcome
	begun  time.Time
	ttl    int           // of the events, in seconds; negative is for ever
	proof  time.Duration // how long after begun a document that identifies the unit exists for sure

	objects []object
	event   int // index of the first event among the writes, -1 if there is none
}

// object is an object of the attempt: the attempt writes the object, or only events of the object.
type object struct {
	*entry
	write  int // index of the write, -1 if only events are written
	seq    uint64
	events []*recorded
	news   []*Recorder // the recorders that were new
}

// addMemory adds the record of the handled message.
func (a *attempt) addMemory(message *envelope) error {
	a.once = true
	a.proof = provesFor(message.TTL, math.MaxInt64)
	return a.addWrite(*message, feed.WriteCreate, "")
}

// addObject adds the write of an object.
func (a *attempt) addObject(e *entry) error {
	if e.id == "" || e.key == "" || e.typ == "" {
		return fmt.Errorf("%w: object with ID %q, PartitionKey %q and Type %q: want none of them empty",
			feed.ErrBadRequest, e.id, e.key, e.typ)
	}
	if e.typ == EventType || e.typ == inboxType {
		return fmt.Errorf("%w: object %q has Type %q, which is that of other documents", feed.ErrBadRequest, e.id,
			e.typ)
	}
	o := object{entry: e, write: -1, seq: *e.seq}
	op, ifMatch := feed.WriteReplace, *e.etag
	for _, version := range e.versions() {
		o.seq, ifMatch = max(o.seq, *version.seq), cmp.Or(ifMatch, *version.etag)
	}
	for _, r := range e.recorders() {
		o.events = append(o.events, r.events...)
		if r.isNew {
			o.news = append(o.news, r)
		}
	}
	slices.SortStableFunc(o.events, func(a, b *recorded) int { return cmp.Compare(a.place, b.place) })
	o.seq += uint64(len(o.events))
	switch {
	case len(o.events) == 0 && (e.state == unmodified || e.state == gone):
		return nil
	case e.state == gone:
		a.objects = append(a.objects, o)
		return nil
	case e.state == created:
		op, ifMatch = feed.WriteCreate, ""
	case e.state == deleted:
		op = feed.WriteDelete
	}
	o.write = len(a.writes)
	a.objects = append(a.objects, o)
	stored := envelope{ID: e.id, PartitionKey: e.key, Type: e.typ, TTL: e.ttl, Seq: o.seq}
	if stored.TTL == 0 {
		stored.TTL = -1
	}
	if op != feed.WriteDelete {
		data, err := marshal(e.data)
		if err != nil {
			return fmt.Errorf("%s %q: %w", e.typ, e.id, err)
		}
		if string(data) == "null" {
			return fmt.Errorf("%w: %s %q: its Data is nil", feed.ErrBadRequest, e.typ, e.id)
		}
		stored.Data = data
	}
	return a.addWrite(stored, op, ifMatch)
}

// raised is an event of an object, with its number among the object's events.
type raised struct {
	*recorded
	of  *object
	seq uint64
}

// addEvents adds the events of all objects in the order in which they were recorded. The numbers of an object's events
// continue after the earlier events.
func (a *attempt) addEvents(trace traceContext) error {
	var all []raised
	for i := range a.objects {
		o := &a.objects[i]
		for k, e := range o.events {
			all = append(all, raised{e, o, o.seq - uint64(len(o.events)-k-1)})
		}
	}
	if len(all) == 0 {
		return nil
	}
	a.event, a.proof = len(a.writes), max(a.proof, provesFor(a.ttl, eventProves))
	slices.SortStableFunc(all, func(a, b raised) int { return cmp.Compare(a.place, b.place) })
	for i, e := range all {
		id := newID()
		data, err := payload(e.recorded, id)
		if err != nil {
			return fmt.Errorf("event %s of %s %q: %w", e.EventName(), e.of.typ, e.of.id, err)
		}
		stored := envelope{
			ID: id, PartitionKey: e.of.key, Type: EventType, Data: data, TTL: a.ttl, Seq: e.seq,
			Object: e.of.id, ObjectType: e.of.typ, UnitSeq: i + 1, TraceParent: trace.parent, TraceState: trace.state,
		}
		if err := a.addWrite(stored, feed.WriteCreate, ""); err != nil {
			return err
		}
	}
	return nil
}

// addWrite adds a write.
func (a *attempt) addWrite(stored envelope, op feed.WriteOp, ifMatch string) error {
	if a.key == "" {
		a.key = stored.PartitionKey
	}
	if stored.PartitionKey != a.key {
		return fmt.Errorf("%w: %s %q has %q, and others %q", ErrMixedKeys, stored.Type, stored.ID, stored.PartitionKey,
			a.key)
	}
	w := feed.Write{Op: op, ID: stored.ID, IfMatch: ifMatch}
	if op != feed.WriteDelete {
		stored.Unit = a.unit
		body, err := marshal(stored)
		if err != nil {
			return fmt.Errorf("%s %q: %w", stored.Type, stored.ID, err)
		}
		w.Body = body
	}
	a.writes, a.size = append(a.writes, w), a.size+len(w.Body)
	return nil
}

// commitWrites commits the writes. The error is a *NotStoredError or an *UnknownError.
func (a *attempt) commitWrites(ctx context.Context, store feed.Committer) error {
	if ctx.Err() != nil {
		return a.outcomeOf(context.Cause(ctx))
	}
	results, err := store.Commit(ctx, feed.Key(a.key), a.writes)
	switch {
	case err == nil:
		a.takeETags(results)
		return nil
	case errors.Is(err, feed.ErrConflict), errors.Is(err, feed.ErrNotFound):
		return a.judgeRefusal(ctx, store, err)
	case errors.Is(err, feed.ErrThrottled), errors.Is(err, feed.ErrBadRequest), errors.Is(err, feed.ErrForbidden):
		return a.outcomeOf(err) // the answer says nothing about an earlier try
	}
	a.unsure = true
	return a.outcomeOf(err)
}

// outcomeOf returns the outcome after a try that has written nothing, or may have.
func (a *attempt) outcomeOf(err error) error {
	if a.unsure {
		return &UnknownError{Err: err}
	}
	return &NotStoredError{err}
}

// judgeRefusal finds out whether a refusal concerns the unit, or only its second try.
func (a *attempt) judgeRefusal(ctx context.Context, store feed.Committer, refused error) error {
	stored, err := a.isStored(ctx, store)
	if stored && err == nil {
		err = a.readETags(ctx, store)
	}
	switch {
	case err != nil:
		a.unsure = true
		return &UnknownError{Err: fmt.Errorf("read whether it was stored before it was refused (%v): %w", refused, err)}
	case stored:
		return nil
	}
	return a.nameRefusal(refused)
}

// takeETags notes the ETags of a stored batch. A document without an ETag receives writtenSince afterwards.
func (a *attempt) takeETags(results []feed.Result) {
	for _, o := range a.objects {
		if o.write >= 0 && o.write < len(results) && o.state != deleted {
			*o.etag = results[o.write].ETag
		}
	}
}

// writtenSince is an ETag that no document has. A stored object receives writtenSince if another writer has written the
// object since, so that the stored version is unknown: under an empty ETag the next write would overwrite the change of
// that writer.
const writtenSince = `"written-since"`

// nameRefusal returns the reason of a refusal as the outcome.
func (a *attempt) nameRefusal(err error) error {
	at, ok := errors.AsType[*feed.WriteError](err)
	switch {
	case a.unsure && !a.isKnown():
		return &UnknownError{Err: err, IsFinal: true}
	case ok && at.Index == 0 && a.once && errors.Is(err, feed.ErrConflict):
		return &NotStoredError{ErrDuplicate}
	}
	return &NotStoredError{err}
}

// isKnown reports whether an earlier try would certainly have left a trace. The record of a message, and an event until
// it expires, are certain traces, because no writer writes them again. An object is a trace only until the next write.
func (a *attempt) isKnown() bool { return time.Since(a.begun) < a.proof }

// eventProves is how long an event exists for sure, whatever the time to live: a relay may let a published event expire
// after this time (RelayOptions.ExpireAfter).
const eventProves = LeastExpireAfter

// provesFor returns how long a document with a time to live in seconds exists for sure, bounded by most. The store
// counts from a time rounded to a second.
func provesFor(ttl int, most time.Duration) time.Duration {
	if ttl < 0 {
		return most
	}
	return min(time.Duration(ttl)*time.Second-time.Second, most)
}

// isStored reports whether an earlier try has stored the writes although its answer was lost here or below the store:
// then a document has the number of this unit. If the unit has only deletes and none of its documents exists, the unit
// counts as stored.
func (a *attempt) isStored(ctx context.Context, store feed.Committer) (bool, error) {
	there := false
	for _, w := range a.ownTraces() {
		found, err := a.readDocument(ctx, store, w.ID)
		switch {
		case errors.Is(err, feed.ErrNotFound):
			continue
		case err != nil:
			return false, err
		case found.Unit == a.unit && w.Op != feed.WriteDelete:
			return true, nil
		}
		there = true
	}
	return a.unsure && !there && a.hasOnly(feed.WriteDelete), nil
}

// ownTraces returns the writes which reveal an earlier try, the surest first: an event, or the record of a message, and
// then the objects.
func (a *attempt) ownTraces() []feed.Write {
	if a.event < 0 {
		return a.writes
	}
	return append([]feed.Write{a.writes[a.event]}, a.writes[:a.event]...)
}

func (a *attempt) hasOnly(op feed.WriteOp) bool {
	return !slices.ContainsFunc(a.writes, func(w feed.Write) bool { return w.Op != op })
}

// readETags reads the ETags of the objects stored by an earlier try. If another writer has written an object since, the
// old ETag stays, or an empty ETag becomes writtenSince, so that the next write of the object is refused.
func (a *attempt) readETags(ctx context.Context, store feed.Committer) error {
	for _, o := range a.objects {
		if o.write < 0 || o.state == deleted {
			continue
		}
		found, err := a.readDocument(ctx, store, o.id)
		if err = ignore(err, feed.ErrNotFound); err != nil {
			return err
		}
		if found.Unit == a.unit {
			*o.etag = found.ETag
		}
	}
	return nil
}

func (a *attempt) readDocument(ctx context.Context, store feed.Committer, id string) (found envelope, err error) {
	results, err := store.Commit(ctx, feed.Key(a.key), []feed.Write{{Op: feed.WriteRead, ID: id}})
	if err != nil {
		return found, err
	}
	return found, json.Unmarshal(results[0].Body, &found)
}

func ignore(err, which error) error {
	if errors.Is(err, which) {
		return nil
	}
	return err
}

// newID draws a random UUID, which programs in other languages can parse.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // Read never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// digest makes an id that the service accepts from any text.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// marshal returns the JSON of a value, with unescaped <, > and &.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// payload returns the data of an event: the members of every event, then the event's own members.
func payload(e *recorded, id string) ([]byte, error) {
	own, err := marshal(e.Event)
	switch {
	case err != nil:
		return nil, err
	case e.EventName() == "":
		return nil, fmt.Errorf("%w: its name is empty", feed.ErrBadRequest)
	case own[0] != '{':
		return nil, fmt.Errorf("%w: it is %.40s: want a JSON object", feed.ErrBadRequest, own)
	}
	for _, name := range []string{"id", "action"} {
		if rawjson.Lookup(own, name) != nil {
			return nil, fmt.Errorf("%w: it has a member %q of its own, which every event has already",
				feed.ErrBadRequest, name)
		}
	}
	head := rawjson.AppendString([]byte(`{"id":`), id)
	head = rawjson.AppendString(append(head, `,"action":`...), e.EventName())
	if rawjson.Lookup(own, "createdAt") == nil {
		head = rawjson.AppendString(append(head, `,"createdAt":`...), e.at.UTC().Format(time.RFC3339Nano))
	}
	if len(own) > len("{}") {
		head = append(head, ',')
	}
	return append(head, own[1:]...), nil
}
