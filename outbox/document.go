package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/millrace/changefeed/feed"
)

// Doc is an object in the envelope of its stored document:
//
//	{"id":"…","partitionKey":"…","type":"contact","data":{…},"ttl":-1,"seq":3,"unit":"…","_etag":"…"}
//
// The container is partitioned by /partitionKey.
type Doc[T any] struct {
	ID           string
	PartitionKey string
	Type         string // of the object, as in contact
	Data         T
	TTL          int    // time to live in seconds; 0 is -1, for ever
	ETag         string // of the loaded or committed version; empty if there is none
	Seq          uint64 // how many events the object has had
}

// Document is a [Doc] of any type.
type Document interface {
	tracked() tracked
}

// tracked contains the fields of a document that a unit of work needs.
type tracked struct {
	id, key, typ string
	ttl          int
	etag         *string
	seq          *uint64
	data         any
	events       *Recorder // nil if the object records no events
}

func (d *Doc[T]) tracked() tracked {
	t := tracked{id: d.ID, key: d.PartitionKey, typ: d.Type, ttl: d.TTL, etag: &d.ETag, seq: &d.Seq, data: d.Data}
	if v := reflect.ValueOf(d.Data); v.Kind() == reflect.Pointer && v.IsNil() {
		return t // the write refuses a nil pointer
	}
	for _, data := range []any{&d.Data, d.Data} {
		if a, ok := data.(Aggregate); ok {
			t.events = a.recorder()
			break
		}
	}
	return t
}

// envelope is the stored form of an object or an event.
type envelope struct {
	ID           string          `json:"id"`
	PartitionKey string          `json:"partitionKey"`
	Type         string          `json:"type"`
	Data         json.RawMessage `json:"data,omitempty"`
	TTL          int             `json:"ttl,omitempty"`
	Seq          uint64          `json:"seq,omitempty"`
	Object       string          `json:"object,omitempty"`     // of an event: the id of its object
	ObjectType   string          `json:"objectType,omitempty"` // of an event: the type of its object
	UnitSeq      int             `json:"unitSeq,omitempty"`    // of an event: its number in its unit of work, from 1
	TraceParent  string          `json:"traceparent,omitempty"`
	TraceState   string          `json:"tracestate,omitempty"`
	Unit         string          `json:"unit,omitempty"` // identifies the documents of a unit of work
	ETag         string          `json:"_etag,omitempty"`
}

// Load reads an object. Load returns [feed.ErrNotFound] if the object is missing, and ErrType if the document has
// another type.
func Load[T any](ctx context.Context, from feed.Committer, partitionKey, typ, id string) (*Doc[T], error) {
	results, err := from.Commit(ctx, feed.Key(partitionKey), []feed.Write{{Op: feed.WriteRead, ID: id}})
	if err != nil {
		return nil, fmt.Errorf("load %s %q: %w", typ, id, refusal(err))
	}
	d, err := Decode[T](results[0].Body)
	if err != nil {
		return nil, fmt.Errorf("load %s %q: %w", typ, id, err)
	}
	if d.Type != typ {
		return nil, fmt.Errorf("load %s %q: it is a document of type %q: %w", typ, id, d.Type, ErrType)
	}
	return d, nil
}

// Decode reads a document of a feed or a container.
func Decode[T any](body json.RawMessage) (*Doc[T], error) {
	var e envelope
	if err := json.Unmarshal(body, &e); err != nil {
		return nil, fmt.Errorf("decode document: %w", err)
	}
	d := &Doc[T]{ID: e.ID, PartitionKey: e.PartitionKey, Type: e.Type, TTL: e.TTL, ETag: e.ETag, Seq: e.Seq}
	if len(e.Data) == 0 || string(e.Data) == "null" {
		return nil, fmt.Errorf("decode data of %s %q: it has none", e.Type, e.ID)
	}
	if err := json.Unmarshal(e.Data, &d.Data); err != nil {
		return nil, fmt.Errorf("decode data of %s %q: %w", e.Type, e.ID, err)
	}
	return d, nil
}

// ErrType: the document has another type than requested.
var ErrType = errors.New("document of another type")

// refusal returns the reason why a batch with a single write was refused, without the description of the write.
func refusal(err error) error {
	if refused, ok := errors.AsType[*feed.WriteError](err); ok {
		return refused.Err
	}
	return err
}
