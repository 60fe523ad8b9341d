package cosmosrest

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/rawjson"
)

const (
	headerAtomic   = "X-Ms-Cosmos-Batch-Atomic"
	headerContinue = "X-Ms-Cosmos-Batch-Continue-On-Error"

	maxBatchOps  = 100
	maxBatchBody = 2<<20 + 64<<10 // bytes: the items, and what is around them
)

// step is an operation that was understood.
type step struct {
	write  changefeed.Write
	cond   docstore.Condition
	action string
	key    string // as sent; of a bulk
	keyed  bool
}

// stepKinds are the operations by name.
var stepKinds = map[string]step{
	"Create":  {write: changefeed.Write{Op: changefeed.WriteCreate}, action: actionCreate},
	"Upsert":  {write: changefeed.Write{Op: changefeed.WriteUpsert}, action: actionUpsert},
	"Replace": {write: changefeed.Write{Op: changefeed.WriteReplace}, action: actionReplace},
	"Patch":   {write: changefeed.Write{Op: changefeed.WritePatch}, action: actionReplace},
	"Delete":  {write: changefeed.Write{Op: changefeed.WriteDelete}, action: actionDelete},
	"Read":    {write: changefeed.Write{Op: changefeed.WriteRead}, action: actionReadItem},
}

// batch carries out several operations: all or none, or each by itself.
func (c *call) batch() error {
	body, err := c.body(maxBatchBody)
	if err != nil {
		return err
	}
	steps, err := parseBatch(body)
	if err != nil {
		return err
	}
	for i := range steps {
		if err := c.allow(steps[i].action); err != nil {
			return err
		}
	}
	cont, err := c.container()
	if err != nil {
		return err
	}
	if c.flag(headerAtomic) {
		return c.atomic(cont, steps)
	}
	return c.bulk(cont, steps)
}

func parseBatch(body []byte) ([]step, error) {
	switch {
	case len(body) > 0 && body[0] >= 0x80:
		return nil, badRequest("body of the batch is binary: want a JSON array of operations")
	case !rawjson.Valid(body):
		return nil, badRequest("body of the batch is not JSON: want a JSON array of operations")
	}
	var steps []step
	for text := range rawjson.Elements(body) {
		s, err := parseStep(text)
		if err != nil {
			return nil, badRequest("operation %d of the batch: %v", len(steps), err)
		}
		if steps = append(steps, s); len(steps) > maxBatchOps {
			return nil, badRequest("batch request has more than %d operations", maxBatchOps)
		}
	}
	if len(steps) == 0 {
		return nil, badRequest("body of the batch has no operations: want a JSON array of 1 to %d", maxBatchOps)
	}
	return steps, nil
}

// operation is one of a batch, as it is sent.
type operation struct {
	kind, id, key, ifMatch, body []byte
}

// parseStep understands one operation.
func parseStep(text []byte) (step, error) {
	var o operation
	for name, value := range rawjson.Members(text) {
		switch name {
		case "operationType":
			o.kind = value
		case "id":
			o.id = value
		case "partitionKey":
			o.key = value
		case "ifMatch":
			o.ifMatch = value
		case "resourceBody":
			o.body = value
		}
	}
	s, ok := stepKinds[rawjson.Text(o.kind)]
	if !ok {
		return s, badRequest("operationType is %s: want Create, Upsert, Replace, Patch, Delete or Read", shown(o.kind))
	}
	if s.key, s.keyed = rawjson.Text(o.key), o.key != nil; s.keyed && s.key == "" {
		return s, badRequest(`partitionKey is %s: want a string with JSON in it, such as "[\"London\"]"`, shown(o.key))
	}
	return s, s.fill(&o)
}

// shown is a member as a message has it.
func shown(value []byte) string {
	const longest = 64
	switch {
	case value == nil:
		return "missing"
	case len(value) > longest:
		return string(value[:longest]) + "..."
	}
	return string(value)
}

// fill takes over what the operation of its kind has.
func (s *step) fill(o *operation) (err error) {
	op, match := s.write.Op, rawjson.Text(o.ifMatch)
	created := op == changefeed.WriteCreate || op == changefeed.WriteUpsert
	if !created {
		if s.write.ID = rawjson.Text(o.id); s.write.ID == "" {
			return badRequest("id is %s: want that of the item", shown(o.id))
		}
	}
	switch op {
	case changefeed.WriteDelete, changefeed.WriteRead:
	default:
		if len(o.body) == 0 || o.body[0] != '{' && o.body[0] != '[' {
			return badRequest("resourceBody is %s: want an item, or the operations of a patch", shown(o.body))
		}
	}
	switch op {
	case changefeed.WriteCreate:
		s.write.Body = o.body
	case changefeed.WriteUpsert:
		s.write.Body, s.cond = o.body, unlessOther(match, "")
	case changefeed.WriteReplace:
		s.write.Body, s.write.IfMatch = o.body, quoted(match)
	case changefeed.WritePatch:
		s.write.IfMatch = quoted(match)
		s.write.Patch, s.cond, err = parsePatch(o.body)
	default:
		s.write.IfMatch = quoted(match)
	}
	return err
}

// outcome is what came of one operation.
type outcome struct {
	status, sub int
	charge      float64
	etag        string
	body        []byte
	message     string
	after       time.Duration
}

// done is the outcome of an operation that was carried out.
func (s *step) done(r changefeed.Result) outcome {
	op := s.write.Op
	return outcome{status: statusOf(op, r), charge: chargeOf(op, len(r.Body)), etag: r.ETag, body: r.Body}
}

// refused is the outcome of one that was not.
func refused(err error) outcome {
	if one, ok := errors.AsType[*changefeed.WriteError](err); ok {
		err = one.Err
	}
	f := faultOf(err)
	return outcome{status: f.status, sub: f.sub, charge: minCharge, message: f.message, after: f.after}
}

// atomic carries out all operations or none, in one logical partition.
func (c *call) atomic(cont *docstore.Container, steps []step) error {
	key, err := c.partitionKey()
	if err != nil {
		return err
	}
	if key == "" {
		return badRequest("PartitionKey value must be supplied for this operation: want the header x-ms-documentdb-partitionkey")
	}
	p, err := c.spot(cont, key)
	if err != nil {
		return err
	}
	if err := c.readable(p, steps); err != nil {
		return err
	}
	writes := make([]changefeed.Write, len(steps))
	conds := map[int]docstore.Condition{}
	for i := range steps {
		writes[i] = steps[i].write
		if steps[i].cond != nil {
			conds[i] = steps[i].cond
		}
	}
	results, err := cont.CommitIf(c.ctx, key, writes, conds)
	outcomes := make([]outcome, len(steps))
	if err != nil {
		one, ok := errors.AsType[*changefeed.WriteError](err)
		if !ok {
			c.done(p, minCharge)
			return err
		}
		for i := range outcomes {
			outcomes[i] = dependent
		}
		outcomes[one.Index] = refused(err)
	}
	for i, r := range results {
		outcomes[i] = steps[i].done(r)
	}
	c.done(p, total(outcomes))
	for i, r := range results {
		if writes[i].Op != changefeed.WriteRead {
			c.wrote(r)
		}
	}
	return c.replyBatch(steps, outcomes)
}

// dependent is the outcome of an operation that was not tried because of another one.
var dependent = outcome{status: http.StatusFailedDependency}

// readable refuses reads that the session could not have.
func (c *call) readable(p spot, steps []step) error {
	if slices.ContainsFunc(steps, func(s step) bool { return s.write.Op == changefeed.WriteRead }) {
		return c.consistent(p.part, p.cont.Newest(p.epk))
	}
	return nil
}

func total(outcomes []outcome) (ru float64) {
	for i := range outcomes {
		ru += outcomes[i].charge
	}
	return ru
}

// replyBatch answers with all outcomes: 200, or 207 when there is one that failed.
func (c *call) replyBatch(steps []step, outcomes []outcome) error {
	status, size := http.StatusOK, 0
	for i := range outcomes {
		o := &outcomes[i]
		if o.status >= http.StatusBadRequest {
			status = http.StatusMultiStatus
		}
		if c.minimal() && steps[i].write.Op != changefeed.WriteRead {
			o.body = nil
		}
		size += len(o.body) + len(o.message) + 128
	}
	b := append(make([]byte, 0, size), '[')
	for i := range outcomes {
		if i > 0 {
			b = append(b, ',')
		}
		b = outcomes[i].append(b)
	}
	c.set(answerItemCount, strconv.Itoa(len(outcomes)))
	c.written = true
	return c.reply(status, append(b, ']'))
}

// append appends the JSON of an outcome.
func (o *outcome) append(b []byte) []byte {
	b = append(b, `{"statusCode":`...)
	b = strconv.AppendInt(b, int64(o.status), 10)
	if o.sub != 0 {
		b = append(b, `,"subStatusCode":`...)
		b = strconv.AppendInt(b, int64(o.sub), 10)
	}
	b = append(b, `,"requestCharge":`...)
	b = strconv.AppendFloat(b, o.charge, 'f', -1, 64)
	if o.etag != "" {
		b = append(b, `,"eTag":`...)
		b = strconv.AppendQuote(b, o.etag) // ASCII
	}
	if o.after > 0 {
		b = append(b, `,"retryAfterMilliseconds":`...)
		b = strconv.AppendInt(b, max(o.after.Milliseconds(), 1), 10)
	}
	if o.message != "" {
		b = append(b, `,"message":`...)
		b = appendJSON(b, o.message)
	}
	if len(o.body) > 0 {
		b = append(b, `,"resourceBody":`...)
		b = append(b, o.body...)
	}
	return append(b, '}')
}

// appendJSON appends a JSON string.
func appendJSON(b []byte, s string) []byte {
	text, _ := json.Marshal(s) // always marshals
	return append(b, text...)
}
