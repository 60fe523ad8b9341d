package cosmosrest

import (
	"cmp"

	"github.com/millrace/changefeed/cosmosrest/internal/binaryjson"
	"github.com/millrace/changefeed/cosmosrest/internal/hybridrow"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// Batches in HybridRow. The .NET SDK sends all its batches in this format.

// readRows reads the operations of a batch. If there are too many, the result exceeds the limit by 1.
func readRows(body []byte) (ops []batchOp, err error) {
	room := wire.MaxBatch // for the texts of binary bodies
	for o, err := range hybridrow.Operations(body) {
		if err != nil {
			return nil, wire.BadRequest("body of the batch is no HybridRow of operations: %v", err)
		}
		op := batchOp{
			op: o.Op, id: string(o.ID), key: string(o.PartitionKey), keyed: o.PartitionKey != nil,
			ifMatch: string(o.IfMatch), ifNoneMatch: string(o.IfNoneMatch), body: o.Body, minimal: o.Minimal,
			wrong: takesRow(&o),
		}
		op.takeBinary(&room)
		ops = append(ops, op)
		if len(ops) > wire.MaxBatchOps {
			break
		}
	}
	return ops, nil
}

// takesRow refuses members that the SDK writes only for internal layers of Cosmos. An effective partition key is
// ignored, because the partition key is given too.
func takesRow(o *hybridrow.Operation) error {
	switch {
	case o.BinaryID != nil:
		return wire.BadRequest("binaryId is not served: want the id")
	case o.TimeToLive != nil:
		return wire.BadRequest("timeToLiveInSeconds is not served: want the ttl in the item")
	}
	return nil
}

// takeBinary replaces a body in binary JSON by its text. room is how many bytes the texts of the batch may still have.
func (o *batchOp) takeBinary(room *int) {
	if !binaryjson.Is(o.body) {
		return
	}
	text, err := textOf(o.body, *room)
	if err != nil {
		o.wrong = cmp.Or(o.wrong, err)
	}
	*room -= len(text)
	o.body, o.checked = text, true
}

// sendRows sends the answer to a batch in HybridRow.
func sendRows(c *call, status int, outcomes []outcome) error {
	if c.binary {
		for i := range outcomes {
			if o := &outcomes[i]; len(o.body) > 0 {
				o.body = binaryjson.Append(make([]byte, 0, len(o.body)), o.body)
			}
		}
	}
	return c.sendReply(status, writeRows(outcomes))
}

// writeRows returns the answer to a batch in HybridRow. In this format, the text of an error is a body.
func writeRows(outcomes []outcome) []byte {
	b := hybridrow.AppendHeader(make([]byte, 0, room(outcomes)))
	for i := range outcomes {
		o := &outcomes[i]
		r := hybridrow.Result{Status: o.status, Charge: &o.charge, Body: o.body}
		if o.sub != 0 {
			r.SubStatus = &o.sub
		}
		if o.etag != "" {
			r.ETag = &o.etag
		}
		if o.message != "" {
			r.Body = []byte(o.message)
		}
		if o.after > 0 {
			r.RetryAfter = new(uint32(max(o.after.Milliseconds(), 1)))
		}
		b = hybridrow.AppendResult(b, &r)
	}
	return b
}
