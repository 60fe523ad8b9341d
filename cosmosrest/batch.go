package cosmosrest

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/auth"
	"github.com/millrace/changefeed/cosmosrest/internal/hybridrow"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Batches contain several operations in a single request. A batch is atomic and belongs to a single logical
// partition; in a bulk, the operations are independent (bulk.go). Operations come as JSON (batchjson.go) or as
// HybridRow (batchrow.go), and the answer has the same format.

// batchFormat is a format of batches.
type batchFormat struct {
	read        func(body []byte) ([]batchOp, error)
	send        func(c *call, status int, outcomes []outcome) error
	contentType string // of the answer
}

// formatOf returns the format of a body. No JSON begins with the first byte of HybridRow.
func formatOf(body []byte) batchFormat {
	if len(body) > 0 && body[0] == hybridrow.Version {
		return batchFormat{readRows, sendRows, "application/octet-stream"}
	}
	return batchFormat{readJSON, sendJSON, "application/json"}
}

// batchOp is an operation as the client wrote it, in either format. Members not written by the client are empty.
type batchOp struct {
	op          feed.WriteOp
	id          string
	key         string // partition key of an operation of a bulk
	keyed       bool   // the client wrote the key, which may be empty
	ifMatch     string
	ifNoneMatch string
	body        []byte // the item, or the patch
	checked     bool   // the body is JSON in UTF-8
	minimal     bool   // the client does not need the written item in the answer
	wrong       error  // why this server cannot carry out the operation
}

// step is a parsed operation of a batch.
type step struct {
	write   docstore.Write
	wrong   error // why the operation cannot be carried out
	key     string
	keyed   bool
	known   string // ETag of the version that the client of a read already has
	minimal bool
}

// actions are the data actions needed by the sender for each operation.
var actions = map[feed.WriteOp]string{
	feed.WriteCreate:  auth.Create,
	feed.WriteUpsert:  auth.Upsert,
	feed.WriteReplace: auth.Replace,
	feed.WritePatch:   auth.Replace,
	feed.WriteDelete:  auth.Delete,
	feed.WriteRead:    auth.ReadItem,
}

// writeBatch carries out several operations: all or none, or each independently. writeBatch checks all rights before
// the first operation is carried out.
func writeBatch(c *call) error {
	body, _, err := c.documentBody(wire.MaxBatch)
	if err != nil {
		return err
	}
	format := formatOf(body)
	steps, err := c.readSteps(format, body)
	if err != nil {
		return err
	}
	for i := range steps {
		if err := steps[i].checkRight(c); err != nil {
			return err
		}
	}
	cont, err := c.targetContainer()
	if err != nil {
		return err
	}
	carryOut := writeBulk
	if c.in.Flag(wire.HeaderAtomic) {
		carryOut = writeAtomic
	}
	outcomes, err := carryOut(c, cont, steps)
	if err != nil {
		return err
	}
	return replyBatch(c, format, outcomes)
}

// checkRight refuses an operation if the sender does not have the right. An operation of a bulk may have a key of
// its own, which is another than that of the request.
func (s *step) checkRight(c *call) error {
	action := actions[s.write.Op]
	if !s.keyed || c.in.Flag(wire.HeaderAtomic) || !c.who.HasToken() {
		return c.allowAction(action)
	}
	on := c.targetResource()
	if on.Key = ""; len(s.key) > 0 {
		on.Key = canonicalKey(feed.PartitionKey(s.key))
	}
	if c.who.May(action, func() auth.Resource { return on }) {
		return nil
	}
	return c.who.Refusal(action, on, &c.in)
}

// readSteps reads and parses the operations of a body.
func (c *call) readSteps(format batchFormat, body []byte) ([]step, error) {
	ops, err := format.read(body)
	switch {
	case err != nil:
		return nil, err
	case len(ops) == 0:
		return nil, wire.BadRequest("Batch request has no operations. Want 1 to %d", wire.MaxBatchOps)
	case len(ops) > wire.MaxBatchOps:
		return nil, wire.BadRequest("Batch request has more operations than what is supported. Want at most %d",
			wire.MaxBatchOps)
	}
	steps := make([]step, len(ops))
	for i := range ops {
		s := &steps[i]
		s.write.Op, s.key, s.keyed = ops[i].op, ops[i].key, ops[i].keyed
		s.minimal = s.write.Op != feed.WriteRead && (ops[i].minimal || c.in.Minimal())
		if s.wrong = ops[i].wrong; s.wrong == nil {
			ops[i].body, s.wrong = c.s.storedForm(ops[i].body)
		}
		if s.wrong == nil {
			s.wrong = s.completeMembers(&ops[i])
		}
	}
	return steps, nil
}

// completeMembers sets the members needed by the kind of operation. Each operation has its own conditions, because the
// headers belong to the whole batch.
func (s *step) completeMembers(o *batchOp) (err error) {
	if o.op != feed.WriteCreate && o.op != feed.WriteUpsert { // create and upsert have the id in the body
		if s.write.ID = o.id; s.write.ID == "" {
			return wire.BadRequest("id is empty, missing or no text: want that of the item")
		}
	}
	if o.op != feed.WriteDelete && o.op != feed.WriteRead {
		if first := firstByte(o.body); first != '{' && first != '[' {
			return wire.BadRequest("resourceBody is %s: want an item, or the operations of a patch, as JSON",
				shown(o.body))
		}
	}
	switch o.op {
	// A create ignores conditions: if the item exists, the create is refused anyway.
	case feed.WriteCreate:
		s.write.Body, s.write.Checked = o.body, o.checked
	case feed.WriteUpsert:
		s.write.Body, s.write.Checked, s.write.If = o.body, o.checked, unlessOther(o.ifMatch, o.ifNoneMatch)
	case feed.WriteReplace:
		s.write.Body, s.write.Checked, s.write.IfMatch = o.body, o.checked, wire.Quoted(o.ifMatch)
	case feed.WritePatch:
		s.write.IfMatch = wire.Quoted(o.ifMatch)
		s.write.Patch, s.write.If, err = parsePatch(o.body)
	case feed.WriteRead:
		s.write.IfMatch, s.known = wire.Quoted(o.ifMatch), o.ifNoneMatch
		// In the service, a read with If-Match behaves like a read with If-None-Match if the ETag is the item's.
		if o.ifMatch != "" && o.ifMatch != "*" {
			s.known = o.ifMatch
		}
	default:
		s.write.IfMatch = wire.Quoted(o.ifMatch)
	}
	return err
}

// firstByte returns the first byte of a JSON text after white space, or 0 if there is none.
func firstByte(text []byte) byte {
	s := rawjson.Scan(text, 0)
	return s.Peek()
}

// shown returns a member's text for a message. Long texts are cut.
func shown(value []byte) string {
	const longest = 64
	switch {
	case value == nil:
		return "missing"
	case len(value) > longest:
		return strings.ToValidUTF8(string(value[:longest]), "\ufffd") + "..."
	}
	return strings.ToValidUTF8(string(value), "\ufffd")
}

// outcome is the result of an operation and becomes its part of the answer.
type outcome struct {
	status, sub int
	charge      float64
	etag        string
	body        []byte
	message     string
	after       time.Duration
}

// outcomeOf returns the outcome of an operation carried out. If the client of a read has the item already, the status
// is 304. As in the service, this holds for an ETag in If-Match too, and does not undo the batch.
func (s *step) outcomeOf(r feed.Result) outcome {
	o := outcome{status: statusOf(s.write.Op, r), charge: r.Charge, etag: r.ETag, body: r.Body}
	if s.known != "" && wire.Matches(s.known, r.ETag) {
		o.status, o.charge, o.body = http.StatusNotModified, service.ReadCharge(0), nil
	}
	if s.minimal {
		o.body = nil
	}
	return o
}

// refused returns the outcome of a refused operation. Its charge is the lowest, because a client could repeat a free
// refusal for ever.
func refused(err error) outcome {
	if one, ok := errors.AsType[*feed.WriteError](err); ok {
		err = one.Err
	}
	e := itemError(err)
	return outcome{status: e.Status, sub: e.Sub, charge: service.MinCharge, message: e.Message, after: e.After}
}

// writeAtomic carries out all operations or none, in a single logical partition. If an operation fails, it has its own
// status and all others have 424, so the client sees which operation failed.
func writeAtomic(c *call, cont *docstore.Container, steps []step) ([]outcome, error) {
	writes, stepOf, err := writesOf(steps)
	if err != nil {
		return nil, err
	}
	key, err := c.in.Key()
	if err != nil {
		return nil, err
	}
	if key == "" {
		return nil,
			wire.BadRequest("PartitionKey value must be supplied for this operation: want the header " +
				"x-ms-documentdb-partitionkey")
	}
	p, err := c.findLogical(cont, key)
	if err != nil {
		return nil, err
	}
	if err := p.refusePart(wire.PartKey); err != nil {
		return nil, err
	}
	for i := range steps {
		if err := p.refuseLongKey(c.s, steps[i].write.Op); err != nil {
			return nil, err
		}
	}
	if err := p.checkSession(&c.in, steps); err != nil {
		return nil, err
	}
	done, err := p.Commit(c.ctx, writes)
	outcomes := outcomesOf(steps, stepOf, done.Results)
	if err != nil {
		one, ok := errors.AsType[*feed.WriteError](err)
		if !ok { // an error of the store, not of a single write
			c.chargeRequest(cont, done.Partition.ID, done.Charge)
			c.out.SetSession(done.Partition.ID, done.Newest)
			return nil, err
		}
		outcomes = outcomesOfRefused(len(steps), stepOf[one.Index], refused(err))
	}
	if over := firstBeyond(outcomes, wire.MaxPage); over >= 0 && onlyReads(steps) {
		spent := total(outcomes)
		outcomes = outcomesOfRefused(len(steps), over, outcome{
			status: http.StatusRequestEntityTooLarge, charge: spent,
			message: fmt.Sprintf("the items that the batch reads have more than %d bytes: want fewer reads in "+
				"one batch", wire.MaxPage),
		})
	}
	// A refused batch has a charge and a session token too, because the batch cost the store a lookup, and its client
	// may have to read the state behind the refusal.
	c.chargeRequest(cont, done.Partition.ID, total(outcomes))
	c.out.SetSession(done.Partition.ID, done.Newest)
	for i, r := range done.Results {
		if writes[i].Op != feed.WriteRead {
			c.out.SetLSN(r.LSN)
		}
	}
	return outcomes, nil
}

// writesOf returns the writes of an atomic batch, and the step of each write: a rename has two writes.
func writesOf(steps []step) (writes []docstore.Write, stepOf []int, err error) {
	writes, stepOf = make([]docstore.Write, 0, len(steps)), make([]int, 0, len(steps))
	for i := range steps {
		if err := steps[i].wrong; err != nil {
			return nil, nil, wire.BadRequest("operation %d of the batch: %v", i, err)
		}
		w := steps[i].write
		if old, renames := splitRename(&w); renames {
			writes, stepOf = append(writes, old), append(stepOf, i)
			w.Joined = true
		}
		writes, stepOf = append(writes, w), append(stepOf, i)
	}
	return writes, stepOf, nil
}

// outcomesOf returns the outcomes of steps whose writes were carried out.
func outcomesOf(steps []step, stepOf []int, results []feed.Result) []outcome {
	outcomes := make([]outcome, len(steps))
	for i, r := range results {
		at := stepOf[i]
		spent := outcomes[at].charge // of the first write of a rename
		outcomes[at] = steps[at].outcomeOf(r)
		outcomes[at].charge += spent
	}
	return outcomes
}

// outcomesOfRefused returns the outcomes of a batch refused because of one of its operations.
func outcomesOfRefused(operations, because int, why outcome) []outcome {
	outcomes := slices.Repeat([]outcome{dependent}, operations)
	outcomes[because] = why
	return outcomes
}

// firstBeyond returns the first outcome at which the sum of all bodies exceeds limit bytes, or -1.
func firstBeyond(outcomes []outcome, limit int) int {
	for i := range outcomes {
		if limit -= len(outcomes[i].body); limit < 0 {
			return i
		}
	}
	return -1
}

// onlyReads reports whether all operations are reads. Such a batch can still be refused after being carried out.
func onlyReads(steps []step) bool {
	return !slices.ContainsFunc(steps, func(s step) bool { return s.write.Op != feed.WriteRead })
}

// dependent is the outcome of an operation not tried because another operation failed.
var dependent = outcome{status: http.StatusFailedDependency}

// checkSession refuses reads if the client's session has seen a newer state than the partition has.
func (p *logical) checkSession(in *wire.Request, steps []step) error {
	if slices.ContainsFunc(steps, func(s step) bool { return s.write.Op == feed.WriteRead }) {
		return in.Consistent(p.part, p.newest)
	}
	return nil
}

// total returns the charge of all outcomes together.
func total(outcomes []outcome) (ru float64) {
	for i := range outcomes {
		ru += outcomes[i].charge
	}
	return ru
}

// replyBatch answers with all outcomes. The status is 200, or 207 if an operation did not succeed. An answer to
// writes is sent even under load, because a client without an answer would write again.
func replyBatch(c *call, format batchFormat, outcomes []outcome) error {
	status, sub := http.StatusOK, 0
	for i := range outcomes {
		if outcomes[i].status >= http.StatusMultipleChoices {
			status, sub = http.StatusMultiStatus, cmp.Or(sub, outcomes[i].sub)
		}
	}
	if c.in.Flag(wire.HeaderAtomic) { // a bulk has no sub-status, because each operation has its own
		c.out.SetSubStatus(sub)
	}
	c.out.SetCount(len(outcomes))
	c.out.Set("Content-Type", format.contentType)
	c.written = true
	return format.send(c, status, outcomes)
}

// room returns the number of bytes an answer may need.
func room(outcomes []outcome) (size int) {
	for i := range outcomes {
		size += len(outcomes[i].body) + len(outcomes[i].message) + 128 // for numbers and names
	}
	return size
}
