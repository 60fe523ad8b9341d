package hybridrow

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/millrace/changefeed/feed"
)

// Operation is an operation of a batch. Absent fields are nil; present fields are not nil, even if they are empty.
// All fields are slices of the body, so do not change the body while you use the operation.
type Operation struct {
	Op                    feed.WriteOp
	PartitionKey          []byte // of an operation of a bulk, as in the header
	EffectivePartitionKey []byte // hash of the key
	ID                    []byte // absent if the body contains the id: Create and Upsert
	BinaryID              []byte
	Body                  []byte // the item or patch, as JSON text or as Cosmos binary JSON
	IndexingDirective     []byte
	IfMatch               []byte
	IfNoneMatch           []byte
	TimeToLive            *int32 // seconds
	Minimal               bool   // the client does not need the written item in the answer
}

// operationFields are the fields of an operation by their number in its schema. The fields up to resourceBody have a
// fixed order; the others are sparse.
var operationFields = []string{
	"", "operationType", "resourceType", "partitionKey", "effectivePartitionKey", "id", "binaryId", "resourceBody",
	"indexingDirective", "ifMatch", "ifNoneMatch", "timeToLiveInSeconds", "minimalReturnPreference",
}

const resourceBody = 7 // number of the last field that is not sparse

// Bits of the presence byte of an operation.
const (
	hasOperationType = 1 << iota
	hasResourceType
	hasPartitionKey
	hasEffectivePartitionKey
	hasID
	hasBinaryID
	hasBody
	hasMore // no field has this bit
)

const document = 2 // the only resource type of batches

// operations are the operation types of a batch.
var operations = map[int32]feed.WriteOp{
	0:  feed.WriteCreate,
	1:  feed.WritePatch,
	2:  feed.WriteRead,
	4:  feed.WriteDelete,
	5:  feed.WriteReplace,
	20: feed.WriteUpsert,
}

// Operations yields the operations of a request. An error comes last. The rest of the body is read only when the next
// operation is requested, so carry out no operation before the end.
func Operations(body []byte) iter.Seq2[Operation, error] {
	return func(yield func(Operation, error) bool) {
		n := 0
		for row, err := range records(body) {
			var op Operation
			if err == nil {
				op, err = readOperation(row)
			}
			if err != nil {
				yield(Operation{}, fmt.Errorf("operation %d: %w", n, err))
				return
			}
			if !yield(op, nil) {
				return
			}
			n++
		}
	}
}

// readOperation reads a row.
//
//	version 1, schema 4, presence 1, operationType 4, resourceType 4,
//	the fields that the presence byte names, sparse fields to the end
//
// Numbers are little-endian, and the two integers take their bytes even if they are absent.
func readOperation(row []byte) (op Operation, err error) {
	if err := expect(row, operationSchema, fixedSize, "row"); err != nil {
		return op, err
	}
	c := cursor{rest: row[rowHead:]}
	present := c.takeByte()
	kind, resource := c.takeInt32(), c.takeInt32()
	known := false
	op.Op, known = operations[kind]
	switch {
	case present&hasMore != 0:
		return op, fmt.Errorf("presence byte is %02x, which has a bit of no field", present)
	case present&hasOperationType == 0:
		return op, errors.New("operationType is missing")
	case !known:
		return op,
			fmt.Errorf("operationType is %d: want 0 (Create), 1 (Patch), 2 (Read), 4 (Delete), 5 (Replace) or "+
				"20 (Upsert)", kind)
	case present&hasResourceType != 0 && resource != document:
		return op, fmt.Errorf("resourceType is %d: want %d, a document", resource, document)
	}
	for _, f := range []struct {
		bit  byte
		name string
		to   *[]byte
		read func(*cursor) []byte
	}{
		{hasPartitionKey, "partitionKey", &op.PartitionKey, (*cursor).text},
		{hasEffectivePartitionKey, "effectivePartitionKey", &op.EffectivePartitionKey, (*cursor).binary},
		{hasID, "id", &op.ID, (*cursor).text},
		{hasBinaryID, "binaryId", &op.BinaryID, (*cursor).binary},
		{hasBody, "resourceBody", &op.Body, (*cursor).binary},
	} {
		if present&f.bit == 0 {
			continue
		}
		if *f.to = f.read(&c); c.err != nil {
			return op, fmt.Errorf("%s: %w", f.name, c.err)
		}
	}
	return op, op.readSparse(&c)
}

// readSparse reads the sparse fields, up to the end of the row. A field must not come twice, because the valid value
// would be unclear.
func (op *Operation) readSparse(c *cursor) error {
	seen := 1<<(resourceBody+1) - 1 // fields that are not sparse
	for c.hasMore() {
		kind := c.takeByte()
		name := c.takePath(operationFields)
		if at := slices.Index(operationFields, name); at > 0 {
			if seen&(1<<at) != 0 {
				c.failOnce("it has come before")
			}
			seen |= 1 << at
		}
		if op.readField(c, kind, name); c.err != nil {
			return fmt.Errorf("sparse field %.64q: %w", name, c.err)
		}
	}
	return nil
}

// readField reads the value of a sparse field. Other fields are skipped.
func (op *Operation) readField(c *cursor, kind byte, name string) {
	switch name {
	case "indexingDirective":
		op.IndexingDirective = c.textOf(kind)
	case "ifMatch":
		op.IfMatch = c.textOf(kind)
	case "ifNoneMatch":
		op.IfNoneMatch = c.textOf(kind)
	case "timeToLiveInSeconds":
		if kind != typeInt32 {
			c.failOnce("type is %d: want %d, an int32", kind, typeInt32)
		}
		seconds := c.takeInt32()
		op.TimeToLive = &seconds
	case "minimalReturnPreference":
		if op.Minimal = kind == typeTrue; !op.Minimal && kind != typeFalse {
			c.failOnce("type is %d: want %d or %d, false or true", kind, typeFalse, typeTrue)
		}
	default:
		c.skipValue(kind)
	}
}
