package cosmos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Transactions, as batches of the service. The client checks everything that it can before the request, because the
// service answers an invalid batch with a status for each write: a single status is the reason and the rest are its
// consequences.

const (
	maxWrites  = service.MaxBatch
	maxPatch   = service.MaxPatch
	maxIDBytes = 1023
)

// Commit implements [feed.Committer]. If the reply of a batch is lost, Commit does not send the batch again, because
// the batch may have been applied: the error then wraps no error of package feed, and you find out by reading.
func (c *Container) Commit(ctx context.Context, key feed.PartitionKey, writes []feed.Write) ([]feed.Result, error) {
	results, err := c.commitBatch(ctx, key, writes)
	if err != nil {
		return nil, fmt.Errorf("commit to %q: %w", c.id, err)
	}
	return results, nil
}

// commitBatch checks the writes before it sends them, so that an error names the wrong write.
func (c *Container) commitBatch(ctx context.Context, key feed.PartitionKey, writes []feed.Write) ([]feed.Result,
	error,
) {
	if len(writes) == 0 || len(writes) > maxWrites {
		return nil, badRequest("batch has %d writes: want 1 to %d", len(writes), maxWrites)
	}
	own, err := c.parseKey(key)
	if err != nil {
		return nil, err
	}
	operations := make([]operation, len(writes))
	body := []byte{'['}
	for i, w := range writes {
		op, err := c.operationOf(own.Text(), w)
		if err != nil {
			return nil, op.refusedError(i, w, err)
		}
		if i > 0 {
			body = append(body, ',')
		}
		operations[i], body = op, op.appendJSON(body)
	}
	body = append(body, ']')
	a, err := c.do(ctx, request{
		method: http.MethodPost, at: c.docs, body: body, writes: true, action: actionOf(writes),
		header: fields{
			{headerContentType, jsonType},
			{headerKey, c.keyHeader(own.Text())},
			{headerBatch, "True"},
			{headerBatchAtomic, "True"},
			{headerBatchOrdered, "True"},
		},
	})
	if err != nil {
		return nil, err
	}
	return parseResults(a, operations, writes)
}

// operation is a write in the form of a batch.
type operation struct {
	kind, id, ifMatch string
	body              json.RawMessage

	item string // id of the body, for errors
}

// appendJSON appends the operation as JSON, with the body unchanged; encoding/json would rewrite the body.
func (o operation) appendJSON(dst []byte) []byte {
	dst = rawjson.AppendString(append(dst, `{"operationType":`...), o.kind)
	if o.id != "" {
		dst = rawjson.AppendString(append(dst, `,"id":`...), o.id)
	}
	if o.ifMatch != "" {
		dst = rawjson.AppendString(append(dst, `,"ifMatch":`...), o.ifMatch)
	}
	if o.body != nil {
		dst = append(append(dst, `,"resourceBody":`...), o.body...)
	}
	return append(dst, '}')
}

// refusedError returns the error of the operation with this index, with the id of the item.
func (o operation) refusedError(i int, w feed.Write, err error) error {
	w.ID = cmp.Or(w.ID, o.item)
	return &feed.WriteError{Index: i, Write: w, Err: err}
}

// operationOf returns a write in the form of a batch; for a replace the operation names the item beside its body. After
// an error the operation has the id, for the error's text.
func (c *Container) operationOf(key string, w feed.Write) (operation, error) {
	op := operation{kind: w.Op.String(), id: w.ID, ifMatch: w.IfMatch}
	switch w.Op {
	case feed.WriteUpsert, feed.WriteCreate, feed.WriteReplace:
		id, err := c.checkItem(key, w)
		op.body, op.item = w.Body, id
		if op.id = ""; w.Op == feed.WriteReplace {
			op.id = id
		}
		return op, err
	case feed.WritePatch:
		if len(w.Patch) == 0 || len(w.Patch) > maxPatch {
			return op, badRequest("patch has %d steps: want 1 to %d", len(w.Patch), maxPatch)
		}
		body, err := json.Marshal(map[string]any{"operations": w.Patch})
		if err != nil {
			return op, badRequest("patch: %v", err)
		}
		op.body = body
	case feed.WriteDelete, feed.WriteRead:
	default:
		return op, badRequest("operation is %v: want upsert, create, replace, patch, delete or read", w.Op)
	}
	return op, checkID(w.ID)
}

// checkItem verifies that the body is an item of the batch's logical partition, so that the error can name the write.
func (c *Container) checkItem(key string, w feed.Write) (id string, err error) {
	var it item
	s := rawjson.Strict(w.Body)
	first := s.Peek()
	for _, name := range s.Object() {
		value := s.Value().Of(w.Body)
		if name.Is("id") {
			it.id = value
		}
		for i, p := range c.paths {
			if name.Is(p[0]) {
				it.keys[i] = rawjson.Lookup(value, p[1:]...)
			}
		}
	}
	switch id = rawjson.Text(it.id); {
	// Checked first, because the scanner does not distinguish a number from a broken object: neither is an object.
	case first != '{' && json.Valid(w.Body):
		return "", badRequest("body is %.40s: want an object", w.Body)
	case !s.End():
		return "", notJSON(w.Body)
	case it.id == nil:
		return "", badRequest("document has no id: want a string of 1 to %d bytes", maxIDBytes)
	case it.id[0] != '"':
		return "", badRequest("id is %.40s: want a string", it.id)
	case w.ID != "" && w.ID != id:
		return id, badRequest("id of the body is %q: want %q, that of the write", id, w.ID)
	}
	if own := c.keyOf(&it); string(own) != key {
		return id, badRequest("partition key of item %q is %s: want %s, that of the batch", id, own, key)
	}
	return id, checkID(id)
}

// notJSON describes the fault in a body. Only a refused body pays for the decoder, which knows the place of the fault.
func notJSON(body []byte) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(body, new(json.RawMessage))); ok {
		return badRequest("body is not JSON, at byte %d: %v: want an object", syntax.Offset, syntax)
	}
	return badRequest("body is not JSON: want an object")
}

// checkID refuses an id that no item can have.
func checkID(id string) error {
	if id == "" || len(id) > maxIDBytes || !utf8.ValidString(id) {
		return badRequest("id is %.60q, of %d bytes: want UTF-8 of 1 to %d bytes", id, len(id), maxIDBytes)
	}
	return nil
}

// result is the answer of a batch to one operation.
type result struct {
	StatusCode   int
	SubStatus    int     `json:"subStatusCode"`
	Charge       float64 `json:"requestCharge"`
	ETag         string
	Message      string
	ResourceBody json.RawMessage
}

// parseResults reads the answer of a batch. If a batch is refused, the service answers every write: a write that only
// failed together with the batch has status 424, and the other write is the reason.
func parseResults(a *answer, operations []operation, writes []feed.Write) ([]feed.Result, error) {
	var said []result
	if err := json.Unmarshal(a.body, &said); err != nil {
		return nil, fmt.Errorf("parse results of the batch: %w", err)
	}
	if len(said) != len(writes) {
		return nil, fmt.Errorf("batch of %d writes has %d results", len(writes), len(said))
	}
	for i, r := range said {
		if r.StatusCode >= http.StatusBadRequest && r.StatusCode != http.StatusFailedDependency {
			e := &Error{
				Request: writes[i].Op.String() + " in a batch", Status: r.StatusCode, SubStatus: r.SubStatus,
				Code: http.StatusText(r.StatusCode), Message: firstLine(r.Message),
				ActivityID: a.header.Get(headerActivity),
			}
			e.reason = e.sentinel()
			return nil, operations[i].refusedError(i, writes[i], e)
		}
	}
	// The status 207 says that nothing was applied, but the code below would take every row for a success.
	if a.is(http.StatusMultiStatus) {
		return nil, fmt.Errorf("batch was refused, but none of its writes: %.200s", a.body)
	}
	lsn := commitLSN(a.header)
	results := make([]feed.Result, len(said))
	for i, r := range said {
		results[i] = feed.Result{ETag: r.ETag, LSN: lsn, Charge: r.Charge, Created: r.StatusCode == http.StatusCreated}
		if writes[i].Op != feed.WriteDelete {
			results[i].Body = r.ResourceBody
		}
	}
	return results, nil
}

// commitLSN returns the LSN of a write, from the header lsn or otherwise from the session token, whose LSN is the same
// or newer.
func commitLSN(h http.Header) int64 {
	if lsn, err := strconv.ParseInt(h.Get("lsn"), 10, 64); err == nil {
		return lsn
	}
	_, lsn, _ := service.Session(h.Get(headerSession))
	return lsn
}

// actionOf returns the right that the first write of a batch needs, for the error when the batch is forbidden.
func actionOf(writes []feed.Write) string {
	switch writes[0].Op {
	case feed.WriteCreate:
		return actionCreate
	case feed.WriteReplace, feed.WritePatch:
		return actionReplace
	case feed.WriteDelete:
		return actionDelete
	case feed.WriteRead:
		return actionRead
	}
	return actionUpsert
}
