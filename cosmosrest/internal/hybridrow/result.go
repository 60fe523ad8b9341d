package hybridrow

import (
	"encoding/binary"
	"hash/crc32"
	"math"
)

// Result is the result of an operation. Nil fields are absent from the row.
type Result struct {
	Status     int  // HTTP status; the SDK treats 0 as an invalid answer
	SubStatus  *int // nil means 0
	ETag       *string
	Body       []byte  // the item, or the text of an error; an empty body is present
	RetryAfter *uint32 // milliseconds
	Charge     *float64
}

// Bits of the presence byte of a result.
const (
	hasStatus = 1 << iota
	hasSubStatus
	hasETag
	hasResultBody
)

// Numbers of the sparse fields of a result in its schema.
const (
	retryAfterMilliseconds = 5
	requestCharge          = 6
)

// AppendHeader appends the header of an answer. The results must follow.
func AppendHeader(b []byte) []byte {
	b = appendHead(b, segmentSchema)
	return binary.LittleEndian.AppendUint32(append(b, hasLength), segmentHead)
}

// AppendResult appends the record of a result.
func AppendResult(b []byte, r *Result) []byte {
	b = appendHead(b, recordSchema)
	header := len(b)
	b = append(b, make([]byte, recordHead-rowHead)...)
	from := len(b)
	b = r.append(b)
	row := b[from:]
	binary.LittleEndian.PutUint32(b[header:], uint32(len(row)))
	binary.LittleEndian.PutUint32(b[header+4:], crc32.ChecksumIEEE(row))
	return b
}

// append appends the row. Sparse fields may come in any order; here they come by number.
func (r *Result) append(b []byte) []byte {
	present, sub := byte(hasStatus), 0
	if r.SubStatus != nil {
		present |= hasSubStatus
		sub = *r.SubStatus
	}
	if r.ETag != nil {
		present |= hasETag
	}
	if r.Body != nil {
		present |= hasResultBody
	}
	b = append(appendHead(b, resultSchema), present)
	b = binary.LittleEndian.AppendUint32(b, uint32(r.Status))
	b = binary.LittleEndian.AppendUint32(b, uint32(sub))
	if r.ETag != nil {
		b = append(binary.AppendUvarint(b, uint64(len(*r.ETag))), *r.ETag...)
	}
	if r.Body != nil {
		b = append(binary.AppendUvarint(b, uint64(len(r.Body))), r.Body...)
	}
	if r.RetryAfter != nil {
		b = binary.LittleEndian.AppendUint32(append(b, typeUint32, retryAfterMilliseconds), *r.RetryAfter)
	}
	if r.Charge != nil {
		b = binary.LittleEndian.AppendUint64(append(b, typeFloat64, requestCharge), math.Float64bits(*r.Charge))
	}
	return b
}

// appendHead appends the version and the schema at the beginning of a row.
func appendHead(b []byte, schema uint32) []byte {
	return binary.LittleEndian.AppendUint32(append(b, Version), schema)
}
