package feed

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/changefeed/internal/keyspace"
)

// Op is the kind of a change.
type Op uint8

const (
	// OpUpsert is a create or a replace: latest-version mode does not say which.
	OpUpsert Op = iota
	// OpCreate is the first version of an item. All versions and deletes only.
	OpCreate
	// OpReplace is a later version of an item. All versions and deletes only.
	OpReplace
	// OpDelete is the end of an item, by a delete or by its time to live. All versions and deletes only.
	OpDelete
)

// String gives the service's word for the operation.
func (o Op) String() string {
	switch o {
	case OpUpsert:
		return "upsert"
	case OpCreate:
		return "create"
	case OpReplace:
		return "replace"
	case OpDelete:
		return "delete"
	}
	return fmt.Sprintf("Op(%d)", uint8(o))
}

// Change is one entry of the change feed.
type Change struct {
	Op           Op
	ID           string
	PartitionKey PartitionKey
	LSN          int64     // log sequence number: changes with one LSN were committed together
	Time         time.Time // commit time by the store's clock; whole seconds from the service
	ETag         string    // quoted, as stored in the item; empty for a delete

	// Body is the item as stored; nil for a delete. A store may have system properties in
	// it, as the service does: then ETag and Time repeat _etag and _ts. ID repeats id, and
	// _lsn is not in it.
	// All readers of the batch share the body, so it must not be modified.
	Body json.RawMessage

	// Previous is the version before this one: all versions and deletes only, and only
	// where the container keeps it.
	Previous json.RawMessage

	PreviousLSN int64 // LSN of the version before this one; 0 for a create and in latest-version mode
	Expired     bool  // a delete by time to live
}

// PartitionKey is the value of an item's partition key in the form that the service
// puts on the wire: a JSON array with one component a path, as in ["London"], [5],
// [null] or, for an item without the property, [{}].
type PartitionKey string

// Undefined is the partition key component of an item that lacks the property.
var Undefined = undefined{}

type undefined struct{}

// NewKey makes a partition key as [Key] does, and returns an [ErrBadRequest] that names the component if one cannot be in a
// key: use it for values that your program has not chosen itself.
func NewKey(components ...any) (PartitionKey, error) {
	if n := len(components); n == 0 || n > maxLevels {
		return "", fmt.Errorf("%w: partition key has %d components, want 1 to %d", ErrBadRequest, n, maxLevels)
	}
	for i, c := range components {
		if why := impossible(c); why != "" {
			return "", fmt.Errorf("%w: component %d of the partition key is %s: want a string, a finite number, a boolean, nil or Undefined", ErrBadRequest, i+1, why)
		}
	}
	return Key(components...), nil
}

// maxLevels is how many levels a hierarchical partition key has at most, by the service's limits.
const maxLevels = 3

// impossible is why a value cannot be in a partition key; empty if it can.
func impossible(component any) string {
	v := reflect.ValueOf(component)
	switch v.Kind() {
	case reflect.Invalid, reflect.Bool:
		return ""
	case reflect.String:
		if !utf8.ValidString(v.String()) {
			return fmt.Sprintf("%+q, which is not UTF-8", v.String())
		}
		return ""
	case reflect.Float32, reflect.Float64:
		if f := v.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Sprint(f)
		}
		return ""
	}
	if component == Undefined || v.CanInt() || v.CanUint() {
		return ""
	}
	return fmt.Sprintf("of type %T", component)
}

// Key makes a partition key of its components: strings, numbers, booleans, nil, or
// [Undefined]. A component of another type makes a key that every store refuses,
// with an error that names it; see [NewKey].
func Key(components ...any) PartitionKey {
	var b strings.Builder
	b.WriteByte('[')
	for i, c := range components {
		if i > 0 {
			b.WriteByte(',')
		}
		if c == Undefined {
			b.WriteString("{}")
		} else {
			b.WriteString(keyspace.Text(c))
		}
	}
	b.WriteByte(']')
	return PartitionKey(b.String())
}

// Batch is the input of a [Handler]: changes of a lease, those of each partition key in order.
type Batch struct {
	LeaseToken string   // the lease that the changes came from
	Range      Range    // its effective partition key range
	Instance   string   // the instance that runs the handler
	Epoch      int64    // number of the owner: each owner of a lease, or of the one that it was split from, has a higher one
	Attempt    int      // 1 more than the handler has received any of the changes before, in an outage too, and before it was parked
	Cut        bool     // it has only a part of a transaction, which failed as a whole: see FailurePolicy.MaxAttempts
	Redriven   bool     // its change was among the dead letters
	Session    string   // session token of the read, for reading your own lease's writes
	Charge     float64  // request charge of the read, in request units; of a page in several batches the first one has it
	Position   Position // after the page that its changes are of; of a redriven change none
	Head       int64    // LSN of the newest change of the partition at the read, 0 when unknown
	Changes    []Change

	confirm func(context.Context) error // nil: the processor checkpoints by itself
}

// Lag is how far the last change was before the head when it was read, in LSNs, which count
// the transactions of the whole partition. It is 0 when the head is not known.
func (b *Batch) Lag() int64 {
	if len(b.Changes) == 0 {
		return 0
	}
	return max(0, b.Head-b.Changes[len(b.Changes)-1].LSN)
}

// Checkpoint stores that this batch is done, and so is every batch before it on this lease that
// its handler has returned nil for; with an Options.Concurrency above 1, every such batch of
// its partition keys. It is for processors with Options.Manual; elsewhere it returns
// [ErrNotManual], because the processor checkpoints by itself when the handler returns nil. It
// may be called before Handle has returned or after that, from any goroutine. What is confirmed
// is done, although the handler returns an error or runs out of time afterwards: it does not come
// again. A batch that is confirmed already is a no-op: progress never moves back. Nothing is
// stored, and there is an error, when the lease is gone or is being split (ErrLeaseLost), or
// the batch comes again in smaller parts because the handler took too long
// (ErrHandlerTimeout).
func (b *Batch) Checkpoint(ctx context.Context) error {
	if b.confirm == nil {
		return ErrNotManual
	}
	return b.confirm(ctx)
}

// IsManual reports whether the batch is for its handler to checkpoint, with [Batch.Checkpoint].
func (b *Batch) IsManual() bool { return b.confirm != nil }

// OnCheckpoint sets what [Batch.Checkpoint] calls. It is for whoever makes batches: a processor, or the test of a handler.
func (b *Batch) OnCheckpoint(confirm func(context.Context) error) { b.confirm = confirm }

// Committer writes items: one atomic batch in one logical partition, as the service's
// transactional batch. Stores prove it with changefeedtest.TestCommitter.
type Committer interface {
	// Commit applies all writes or none, in order, with one LSN. The error of a
	// refused write is a [*WriteError] that names it. At most 100 writes and 2 MB.
	// A key that is none, or not that of an item, is an [ErrBadRequest]. After any other
	// error than these, also that of an ended ctx, the batch may have been applied.
	Commit(ctx context.Context, key PartitionKey, writes []Write) ([]Result, error)
}

// WriteOp is the kind of a [Write].
type WriteOp uint8

const (
	// WriteUpsert creates the item or replaces it.
	WriteUpsert WriteOp = iota
	// WriteCreate refuses an item that exists, with [ErrConflict].
	WriteCreate
	// WriteReplace refuses an item that does not exist, with [ErrNotFound].
	WriteReplace
	// WritePatch changes parts of an item.
	WritePatch
	// WriteDelete removes an item.
	WriteDelete
	// WriteRead reads an item as of this place in the batch.
	WriteRead
)

// String names the operation as the service does.
func (o WriteOp) String() string {
	names := [...]string{"Upsert", "Create", "Replace", "Patch", "Delete", "Read"}
	if int(o) < len(names) {
		return names[o]
	}
	return fmt.Sprintf("WriteOp(%d)", uint8(o))
}

// Write is one operation of a batch.
type Write struct {
	Op      WriteOp
	ID      string          // needed by patch, delete and read; else taken from the body
	Body    json.RawMessage // the item, for create, upsert and replace
	Patch   []PatchOp       // for patch; at most 10
	IfMatch string          // ETag that the item must have, else [ErrPrecondition]; empty is any
}

// PatchOp is one step of a patch.
type PatchOp struct {
	Op    string          `json:"op"`             // add, set, replace, remove, incr or move
	Path  string          `json:"path"`           // JSON pointer
	From  string          `json:"from,omitempty"` // source of a move
	Value json.RawMessage `json:"value,omitempty"`
}

// Result is the outcome of a write.
type Result struct {
	ETag    string
	LSN     int64
	Charge  float64         // request units
	Created bool            // the item did not exist before
	Body    json.RawMessage // the item, with system properties if the store has them; nil after a delete
}

// WriteError is a batch that was refused because of one of its writes.
type WriteError struct {
	Index int
	Write Write
	Err   error
}

// Error names the write.
func (e *WriteError) Error() string {
	return fmt.Sprintf("write %d (%s %q): %v", e.Index, e.Write.Op, e.Write.ID, e.Err)
}

// Unwrap gives the reason.
func (e *WriteError) Unwrap() error { return e.Err }
