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
	// OpUpsert is a create or a replace: latest-version mode does not distinguish them.
	OpUpsert Op = iota
	// OpCreate is the first version of an item. All versions and deletes only.
	OpCreate
	// OpReplace is a later version of an item. All versions and deletes only.
	OpReplace
	// OpDelete is the delete of an item, by a request or by the time to live. All versions and deletes only.
	OpDelete
)

// String returns the service's word for the operation.
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

// Change is an entry of the change feed.
type Change struct {
	Op           Op
	ID           string
	PartitionKey PartitionKey
	LSN          int64     // log sequence number: changes with the same LSN were committed together
	Time         time.Time // commit time by the store's clock; whole seconds from the service
	ETag         string    // quoted, as stored in the item; empty for a delete

	// Body is the item as stored; nil for a delete. If the store adds system properties, as the service does, then ETag
	// and Time repeat _etag and _ts, ID repeats id, and Body has no _lsn. All readers of the batch share Body, so you
	// must not modify it.
	Body json.RawMessage

	// Previous is the version before this change: all versions and deletes only, and only if the container keeps
	// previous versions.
	Previous json.RawMessage

	PreviousLSN int64 // LSN of the version before; 0 for a create and in latest-version mode
	Expired     bool  // a delete by time to live
}

// PartitionKey is the value of an item's partition key in the form of the service's protocol: a JSON array with one
// component per path, as in ["London"], [5], [null] or, if the item lacks the property, [{}].
type PartitionKey string

// Undefined is the partition key component of an item that lacks the property.
var Undefined = undefined{}

type undefined struct{}

// NewKey makes a partition key as [Key] does. If a component is invalid, NewKey returns an [ErrBadRequest] that names
// the component: use NewKey for values that your program has not chosen itself.
func NewKey(components ...any) (PartitionKey, error) {
	if n := len(components); n == 0 || n > maxLevels {
		return "", fmt.Errorf("%w: partition key has %d components, want 1 to %d", ErrBadRequest, n, maxLevels)
	}
	for i, c := range components {
		if why := impossible(c); why != "" {
			return "",
				fmt.Errorf("%w: component %d of the partition key is %s: want a string, a finite number, a boolean, "+
					"nil or Undefined", ErrBadRequest, i+1, why)
		}
	}
	return Key(components...), nil
}

// maxLevels is the largest number of levels of a hierarchical partition key, by the service's limits.
const maxLevels = 3

// impossible says why a value cannot be in a partition key; empty if it can.
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

// Key makes a partition key from its components: strings, numbers, booleans, nil, or [Undefined]. If a component has
// another type, every store refuses the key, with an error that names the component; see [NewKey].
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
	LeaseToken string // token of the changes' lease
	Range      Range  // effective partition key range of the lease
	Instance   string // the instance that runs the handler
	// number of the owner: each new owner of a lease, or of its children after a split, has a higher number
	Epoch int64
	// 1 plus how often the handler has received any of the changes, also during an outage, and before the change was
	// parked; without calls that ended because the work on the lease ended in order
	Attempt int
	// the batch has only a part of a transaction, which failed as a whole: see FailurePolicy.MaxAttempts
	Cut      bool
	Redriven bool   // the change was among the dead letters
	Session  string // session token of the read, for reading your own lease's writes
	// request charge of the read, in request units; if several batches share a page, the first has the charge
	Charge float64
	// after the newest of the changes, or after their page if the source is no Sequencer; before the transaction of
	// which the batch has a part; zero for a redriven change. With a Concurrency above 1, and while changes fail,
	// earlier changes may be in other batches
	Position Position
	Head     int64 // LSN of the newest change of the partition at the read, 0 if unknown
	Changes  []Change

	confirm func(context.Context) error // nil: the processor checkpoints by itself
	abandon func()                      // nil: the batch cannot be abandoned
}

// Lag returns the distance from the last change to the head at the time of the read, in LSNs, which count the
// transactions of the whole partition. Lag is 0 if the head is unknown.
func (b *Batch) Lag() int64 {
	if len(b.Changes) == 0 {
		return 0
	}
	return max(0, b.Head-b.Changes[len(b.Changes)-1].LSN)
}

// Checkpoint stores that this batch is done, and every earlier batch of this lease for which the handler has returned
// nil; with an Options.Concurrency above 1, every such batch of its partition keys. Checkpoint is for processors with
// Options.Manual. Without Manual, Checkpoint returns [ErrNotManual], because the processor checkpoints by itself when
// the handler returns nil.
//
// You may call Checkpoint before Handle has returned or afterwards, from any goroutine. Confirmed changes are not
// redelivered, even if the handler then returns an error or runs out of time. If the batch is confirmed already,
// Checkpoint does nothing: progress never moves back. Checkpoint stores nothing and returns an error if the lease is
// gone, is being split or has an abandoned batch (ErrLeaseLost), or if the batch is redelivered in smaller parts
// because the handler took too long (ErrHandlerTimeout).
func (b *Batch) Checkpoint(ctx context.Context) error {
	if b.confirm == nil {
		return ErrNotManual
	}
	return b.confirm(ctx)
}

// Abandon says that nobody will confirm this batch, although the handler has returned nil or will return nil: for
// example, the effects were in a memory that is lost. The processor then gives the lease up, with [ReasonUnconfirmed],
// and the next owner, which may be the same instance, receives all unconfirmed changes again. Until then no batch of
// the lease can be confirmed. If the batch is confirmed, or comes again anyway because its handler returns an error,
// Abandon does nothing. You may call Abandon when you may call Checkpoint. It does not wait.
//
// Abandon returns [ErrNotManual] without Options.Manual, and in a program of package trigger/contract: the end of such
// a program abandons all unconfirmed batches.
func (b *Batch) Abandon() error {
	if b.abandon == nil {
		return ErrNotManual
	}
	b.abandon()
	return nil
}

// IsManual reports whether the handler must checkpoint the batch with [Batch.Checkpoint].
func (b *Batch) IsManual() bool { return b.confirm != nil }

// OnCheckpoint sets the function that [Batch.Checkpoint] calls. Only code that makes batches needs OnCheckpoint: a
// processor, or the test of a handler.
func (b *Batch) OnCheckpoint(confirm func(context.Context) error) { b.confirm = confirm }

// OnAbandon sets the function that [Batch.Abandon] calls, for the same code as OnCheckpoint. The function must not
// wait.
func (b *Batch) OnAbandon(abandon func()) { b.abandon = abandon }

// Committer writes items: an atomic batch in one logical partition, like the service's transactional batch. A store
// proves its implementation with changefeedtest.TestCommitter.
type Committer interface {
	// Commit applies all writes or none, in order, with a single LSN. If a write is refused, the error is a
	// [*WriteError] that names the write. A batch has at most 100 writes and 2 MB. If the key is invalid, or is not the
	// key of an item, the error is an [ErrBadRequest]. After any other error, also when ctx has ended, the batch may
	// have been applied.
	Commit(ctx context.Context, key PartitionKey, writes []Write) ([]Result, error)
}

// WriteOp is the kind of a [Write].
type WriteOp uint8

const (
	// WriteUpsert creates or replaces the item.
	WriteUpsert WriteOp = iota
	// WriteCreate creates the item; if the item exists, the write is refused with [ErrConflict].
	WriteCreate
	// WriteReplace replaces the item; if the item is missing, the write is refused with [ErrNotFound].
	WriteReplace
	// WritePatch changes parts of an item.
	WritePatch
	// WriteDelete removes an item.
	WriteDelete
	// WriteRead reads an item in its state at this place in the batch.
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

// Write is an operation of a batch.
type Write struct {
	Op      WriteOp
	ID      string          // needed by patch, delete and read; for other writes, empty means the id in the body
	Body    json.RawMessage // the item, for create, upsert and replace
	Patch   []PatchOp       // for patch; at most 10
	IfMatch string          // ETag that the item must have, otherwise [ErrPrecondition]; empty is any
}

// PatchOp is a step of a patch.
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

// WriteError describes a batch that was refused because of a write.
type WriteError struct {
	Index int
	Write Write
	Err   error
}

// Error names the write.
func (e *WriteError) Error() string {
	return fmt.Sprintf("write %d (%s %q): %v", e.Index, e.Write.Op, e.Write.ID, e.Err)
}

// Unwrap returns the reason.
func (e *WriteError) Unwrap() error { return e.Err }
