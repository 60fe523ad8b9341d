package cosmosrest

import (
	"github.com/millrace/changefeed/cosmosrest/internal/hybridrow"
	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// Batches in HybridRow. The .NET SDK sends all its batches in this format.

// readRows reads the operations of a batch. If there are too many, the result exceeds the limit by 1.
func readRows(body []byte) (ops []batchOp, err error) {
	for o, err := range hybridrow.Operations(body) {
		if err != nil {
			return nil, wire.BadRequest("body of the batch is no HybridRow of operations: %v", err)
		}
		ops = append(ops, batchOp{
			op: o.Op, id: string(o.ID), key: string(o.PartitionKey), keyed: o.PartitionKey != nil,
			ifMatch: string(o.IfMatch), ifNoneMatch: string(o.IfNoneMatch), body: o.Body, minimal: o.Minimal,
			wrong: takesRow(&o),
		})
		if len(ops) > wire.MaxBatchOps {
			break
		}
	}
	return ops, nil
}

// takesRow refuses members that the SDK writes only for internal layers of Cosmos, and encodings that this server
// cannot read. An effective partition key is ignored, because the partition key is given too.
func takesRow(o *hybridrow.Operation) error {
	switch {
	case o.BinaryID != nil:
		return wire.BadRequest("binaryId is not served: want the id")
	case o.TimeToLive != nil:
		return wire.BadRequest("timeToLiveInSeconds is not served: want the ttl in the item")
	case len(o.Body) > 0 && o.Body[0] == hybridrow.BinaryJSON:
		return wire.BadRequest("resourceBody is binary JSON: want text, as without " +
			"AZURE_COSMOS_BINARY_ENCODING_ENABLED")
	}
	return nil
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
