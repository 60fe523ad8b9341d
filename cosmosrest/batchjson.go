package cosmosrest

import (
	"cmp"
	"strconv"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// Batches in JSON: an array of operations, answered by an array of results. The array is scanned and not decoded,
// because item bodies are passed on unchanged.

// operationNames maps the names of operations to operations.
var operationNames = map[string]feed.WriteOp{
	"Create":  feed.WriteCreate,
	"Upsert":  feed.WriteUpsert,
	"Replace": feed.WriteReplace,
	"Patch":   feed.WritePatch,
	"Delete":  feed.WriteDelete,
	"Read":    feed.WriteRead,
}

// readJSON reads the operations of a batch. If there are too many, the result exceeds the limit by 1.
func readJSON(body []byte) ([]batchOp, error) {
	texts, ok := splitBatch(wire.EscapeBreaks(body))
	if !ok {
		return nil, wire.BadRequest("body of the batch is not JSON: want an array of operations, or HybridRow")
	}
	ops := make([]batchOp, len(texts))
	for i := range texts {
		ops[i] = texts[i].parseMembers()
	}
	return ops, nil
}

// operationText is an operation as the client sent it.
type operationText struct {
	kind, id, key, ifMatch, ifNoneMatch, minimal, body []byte
}

// splitBatch splits a batch into operations and checks its whole text, because a text with a fault at its end must
// not be carried out in part. If there are too many operations, the result exceeds the limit by 1.
func splitBatch(body []byte) (texts []operationText, ok bool) {
	s := rawjson.Strict(body)
	if s.Peek() != '[' {
		s.Value()
		return nil, s.End()
	}
	for i := range s.Array() {
		var o operationText
		if s.Peek() == '{' {
			o.scanMembers(&s, body)
		}
		if i <= wire.MaxBatchOps {
			texts = append(texts, o)
		}
	}
	return texts, s.End()
}

// scanMembers reads the members of an operation. scanMembers skips unknown members, because SDKs send members that
// only a newer service knows.
func (o *operationText) scanMembers(s *rawjson.Scanner, body []byte) {
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
		case "ifNoneMatch":
			o.ifNoneMatch = value
		case "minimalReturnPreference":
			o.minimal = value
		case "resourceBody":
			o.body = value
		}
	}
}

// parseMembers reads the members of an operation. An operation of an unknown kind counts as
// a read, which needs the least rights.
func (o *operationText) parseMembers() batchOp {
	var wrong error
	kind, ok := operationNames[string(rawjson.Key(o.kind).Name())]
	if !ok || o.kind[0] != '"' {
		kind = feed.WriteRead
		wrong = wire.BadRequest("operationType is %s: want Create, Upsert, Replace, Patch, Delete or Read",
			shown(o.kind))
	}
	key := rawjson.Text(o.key)
	if o.key != nil && key == "" {
		wrong = cmp.Or[error](wrong,
			wire.BadRequest(`partitionKey is %s: want a string with JSON in it, such as "[\"London\"]"`, shown(o.key)))
	}
	wrong = cmp.Or(wrong, o.checkOptional())
	return batchOp{
		op: kind, id: rawjson.Text(o.id), key: key, keyed: o.key != nil,
		ifMatch: rawjson.Text(o.ifMatch), ifNoneMatch: rawjson.Text(o.ifNoneMatch),
		body: o.body, checked: true, minimal: string(o.minimal) == "true",
		wrong: wrong,
	}
}

// checkOptional refuses an optional member of a wrong type: an operation whose condition is ignored would be carried
// out without a condition. null counts as missing, because some SDKs write all members of an operation.
func (o *operationText) checkOptional() error {
	for _, m := range []struct {
		name  string
		value []byte
	}{{"id", o.id}, {"ifMatch", o.ifMatch}, {"ifNoneMatch", o.ifNoneMatch}} {
		if m.value != nil && m.value[0] != '"' && string(m.value) != "null" {
			return wire.BadRequest("%s is %s: want a string", m.name, shown(m.value))
		}
	}
	switch string(o.minimal) {
	case "", "true", "false", "null":
		return nil
	}
	return wire.BadRequest("minimalReturnPreference is %s: want true or false", shown(o.minimal))
}

// sendJSON sends the answer to a batch in JSON.
func sendJSON(c *call, status int, outcomes []outcome) error {
	return c.sendDocuments(status, writeJSON(outcomes))
}

// writeJSON returns the answer to a batch in JSON.
func writeJSON(outcomes []outcome) []byte {
	b := append(make([]byte, 0, room(outcomes)), '[')
	for i := range outcomes {
		if i > 0 {
			b = append(b, ',')
		}
		b = outcomes[i].appendJSON(b)
	}
	return append(b, ']')
}

// appendJSON appends the JSON of an outcome.
func (o *outcome) appendJSON(b []byte) []byte {
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
