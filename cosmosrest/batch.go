package cosmosrest

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/cosmosrest/internal/auth"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/docstore"
	"github.com/millrace/changefeed/internal/rawjson"
	"github.com/millrace/changefeed/internal/service"
)

// Batches: several operations in one request, atomic in one logical partition, or, as a
// bulk, each by itself (bulk.go). The JSON array is walked over and not decoded, because
// item bodies are passed on as they are.

// step is an operation of a batch, parsed.
type step struct {
	write  docstore.Write
	action string
	key    string // as sent; of a bulk
	keyed  bool
}

// kinds are the operations by name, and the action that each is to be allowed.
var kinds = map[string]struct {
	op     changefeed.WriteOp
	action string
}{
	"Create":  {changefeed.WriteCreate, auth.Create},
	"Upsert":  {changefeed.WriteUpsert, auth.Upsert},
	"Replace": {changefeed.WriteReplace, auth.Replace},
	"Patch":   {changefeed.WritePatch, auth.Replace},
	"Delete":  {changefeed.WriteDelete, auth.Delete},
	"Read":    {changefeed.WriteRead, auth.ReadItem},
}

// writeBatch carries out several operations: all or none, or each by itself. All rights are
// checked before the first is carried out.
func writeBatch(c *call) error {
	body, err := c.in.Body(wire.MaxBatch)
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
	if c.in.Flag(wire.HeaderAtomic) {
		return writeAtomic(c, cont, steps)
	}
	return writeBulk(c, cont, steps)
}

// parseBatch parses the operations. A body that begins with a byte beyond ASCII is
// HybridRow, in which .NET's batches come.
func parseBatch(body []byte) ([]step, error) {
	if len(body) > 0 && body[0] >= 0x80 {
		return nil, wire.BadRequest("body of the batch is binary: want a JSON array of operations")
	}
	texts, ok := splitBatch(body)
	switch {
	case !ok:
		return nil, wire.BadRequest("body of the batch is not JSON: want a JSON array of operations")
	case len(texts) == 0:
		return nil, wire.BadRequest("body of the batch has no operations: want a JSON array of 1 to %d", wire.MaxBatchOps)
	}
	steps := make([]step, min(len(texts), wire.MaxBatchOps))
	for i := range texts {
		if i == wire.MaxBatchOps {
			return nil, wire.BadRequest("batch request has more than %d operations", wire.MaxBatchOps)
		}
		if err := steps[i].parse(&texts[i]); err != nil {
			return nil, wire.BadRequest("operation %d of the batch: %v", i, err)
		}
	}
	return steps, nil
}

// operationText is an operation as the client sent it.
type operationText struct {
	kind, id, key, ifMatch, body []byte
}

// splitBatch takes a batch apart, and checks all of it on the way: a text that is wrong
// at its end must not be carried out in part. Of operations that are too many it returns
// one.
func splitBatch(body []byte) (texts []operationText, ok bool) {
	s := rawjson.Strict(body)
	if s.Peek() != '[' {
		s.Value()
		return nil, s.End()
	}
	for i := range s.Array() {
		var o operationText
		if s.Peek() == '{' {
			o.scan(&s, body)
		}
		if i <= wire.MaxBatchOps {
			texts = append(texts, o)
		}
	}
	return texts, s.End()
}

// scan reads the members of an operation. Unknown members are passed over, because SDKs send
// some that only a newer service knows.
func (o *operationText) scan(s *rawjson.Scanner, body []byte) {
	for _, key := range s.Object() {
		value := s.Value().Of(body)
		switch string(key.Name()) {
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
}

// parse understands one operation.
func (s *step) parse(o *operationText) error {
	kind, ok := kinds[string(rawjson.Key(o.kind).Name())]
	if !ok || o.kind[0] != '"' {
		return wire.BadRequest("operationType is %s: want Create, Upsert, Replace, Patch, Delete or Read", shown(o.kind))
	}
	s.write.Op, s.action = kind.op, kind.action
	if s.key, s.keyed = rawjson.Text(o.key), o.key != nil; s.keyed && s.key == "" {
		return wire.BadRequest(`partitionKey is %s: want a string with JSON in it, such as "[\"London\"]"`, shown(o.key))
	}
	return s.complete(o)
}

// shown is a member's text for a message, cut if it is long.
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

// complete sets the members that the kind of operation needs. An operation has its condition in
// ifMatch, because a batch has one header for all.
func (s *step) complete(o *operationText) (err error) {
	op, match := s.write.Op, rawjson.Text(o.ifMatch)
	created := op == changefeed.WriteCreate || op == changefeed.WriteUpsert
	if !created {
		if s.write.ID = rawjson.Text(o.id); s.write.ID == "" {
			return wire.BadRequest("id is %s: want that of the item", shown(o.id))
		}
	}
	switch op {
	case changefeed.WriteDelete, changefeed.WriteRead:
	default:
		if len(o.body) == 0 || o.body[0] != '{' && o.body[0] != '[' {
			return wire.BadRequest("resourceBody is %s: want an item, or the operations of a patch", shown(o.body))
		}
	}
	switch op {
	case changefeed.WriteCreate:
		s.write.Body, s.write.Checked = o.body, true
	case changefeed.WriteUpsert:
		s.write.Body, s.write.Checked, s.write.If = o.body, true, unlessOther(match, "")
	case changefeed.WriteReplace:
		s.write.Body, s.write.Checked, s.write.IfMatch = o.body, true, wire.Quoted(match)
	case changefeed.WritePatch:
		s.write.IfMatch = wire.Quoted(match)
		s.write.Patch, s.write.If, err = parsePatch(o.body)
	default:
		s.write.IfMatch = wire.Quoted(match)
	}
	return err
}

// outcome is the result of an operation, as its part of the answer.
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
	return outcome{status: statusOf(s.write.Op, r), charge: r.Charge, etag: r.ETag, body: r.Body}
}

// refused is the outcome of an operation that was refused. It costs the least charge, because a
// refusal that cost nothing could be repeated for ever.
func refused(err error) outcome {
	if one, ok := errors.AsType[*changefeed.WriteError](err); ok {
		err = one.Err
	}
	e := errorOf(err)
	return outcome{status: e.Status, sub: e.Sub, charge: service.MinCharge, message: e.Message, after: e.After}
}

// writeAtomic carries out all operations or none, in one logical partition. If one fails,
// it has its own status and all others 424: the client sees at once which it was.
func writeAtomic(c *call, cont *docstore.Container, steps []step) error {
	key, err := c.in.Key()
	if err != nil {
		return err
	}
	if key == "" {
		return wire.BadRequest("PartitionKey value must be supplied for this operation: want the header x-ms-documentdb-partitionkey")
	}
	p, err := c.logical(cont, key)
	if err != nil {
		return err
	}
	if err := p.readable(&c.in, steps); err != nil {
		return err
	}
	writes := make([]docstore.Write, len(steps))
	for i := range steps {
		writes[i] = steps[i].write
	}
	done, err := p.Commit(c.ctx, writes)
	outcomes := make([]outcome, len(steps))
	if err != nil {
		one, ok := errors.AsType[*changefeed.WriteError](err)
		if !ok { // of the store, and of no single write
			c.spend(cont, done.Partition.ID, done.Charge)
			c.out.SetSession(done.Partition.ID, done.Newest)
			return err
		}
		for i := range outcomes {
			outcomes[i] = dependent
		}
		outcomes[one.Index] = refused(err)
	}
	for i, r := range done.Results {
		outcomes[i] = steps[i].done(r)
	}
	c.spend(cont, done.Partition.ID, total(outcomes))
	c.out.SetSession(done.Partition.ID, done.Newest)
	for i, r := range done.Results {
		if writes[i].Op != changefeed.WriteRead {
			c.out.SetLSN(r.LSN)
		}
	}
	return replyBatch(c, steps, outcomes)
}

// dependent is the outcome of an operation that was not tried because of another.
var dependent = outcome{status: http.StatusFailedDependency}

// readable refuses reads that the client's session cannot have: it has seen a newer state.
func (p *logical) readable(in *wire.Request, steps []step) error {
	if slices.ContainsFunc(steps, func(s step) bool { return s.write.Op == changefeed.WriteRead }) {
		return in.Consistent(p.part, p.newest)
	}
	return nil
}

// total is the charge of all outcomes.
func total(outcomes []outcome) (ru float64) {
	for i := range outcomes {
		ru += outcomes[i].charge
	}
	return ru
}

// replyBatch answers with all outcomes: 200, or 207 if any failed. An answer to writes is
// sent also under load, because a client that were refused would write again.
func replyBatch(c *call, steps []step, outcomes []outcome) error {
	status, size := http.StatusOK, 0
	for i := range outcomes {
		o := &outcomes[i]
		if o.status >= http.StatusBadRequest {
			status = http.StatusMultiStatus
		}
		if c.in.Minimal() && steps[i].write.Op != changefeed.WriteRead {
			o.body = nil
		}
		size += len(o.body) + len(o.message) + 128 // for numbers and names
	}
	b := append(make([]byte, 0, size), '[')
	for i := range outcomes {
		if i > 0 {
			b = append(b, ',')
		}
		b = outcomes[i].append(b)
	}
	c.out.SetCount(len(outcomes))
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
		b = rawjson.AppendString(b, o.etag)
	}
	if o.after > 0 {
		b = append(b, `,"retryAfterMilliseconds":`...)
		b = strconv.AppendInt(b, max(o.after.Milliseconds(), 1), 10)
	}
	if o.message != "" {
		b = append(b, `,"message":`...)
		b = rawjson.AppendString(b, o.message)
	}
	if len(o.body) > 0 {
		b = append(b, `,"resourceBody":`...)
		b = append(b, o.body...)
	}
	return append(b, '}')
}
