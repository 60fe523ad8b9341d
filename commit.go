package changefeed

import (
	"context"
	"encoding/json"
	"fmt"
)

// Committer writes items: one atomic batch in one logical partition, as the service's
// transactional batch. Stores prove it with changefeedtest.TestCommitter.
type Committer interface {
	// Commit applies all writes or none, in order, with one LSN. The error of a
	// refused write is a [*WriteError] that tells which. At most 100 writes and 2 MB.
	// A key that is none, or not that of an item, is an [ErrBadRequest]. After any other
	// error than these, also that of an ended ctx, the batch may have been applied.
	Commit(ctx context.Context, key PartitionKey, writes []Write) ([]Result, error)
}

// WriteOp is what a [Write] does.
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

// Result is what one write did.
type Result struct {
	ETag    string
	LSN     int64
	Charge  float64         // request units
	Created bool            // the item did not exist before
	Body    json.RawMessage // the item with its system properties; nil after a delete
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
