// Package netbatch simulates the .NET SDK in tests of batches: the package writes requests exactly as the SDK writes
// them, and reads answers as the SDK reads them. Package netbatch shares no code with package hybridrow, its subject.
// Recorded requests of the SDK test both packages.
package netbatch

import (
	"encoding/binary"
	"hash/crc32"
)

// Operation is an operation of a batch. Nil fields are left out.
type Operation struct {
	Type                  int32 // 0 Create, 1 Patch, 2 Read, 4 Delete, 5 Replace, 20 Upsert
	ResourceType          *int32
	PartitionKey          *string // of a bulk
	EffectivePartitionKey []byte
	ID                    *string
	BinaryID              []byte
	Body                  []byte
	IndexingDirective     *string
	IfMatch               *string
	IfNoneMatch           *string
	TimeToLive            *int32
	Minimal               bool
}

// Request writes a request with these operations.
func Request(ops ...Operation) []byte {
	b := []byte{0x81, 0xf0, 0xd8, 0xff, 0x7f, 1, 10, 0, 0, 0}
	for _, op := range ops {
		b = AppendRecord(b, op.encodeRow())
	}
	return b
}

// AppendRecord appends a row with its record header.
func AppendRecord(b, row []byte) []byte {
	b = append(b, 0x81, 0xf1, 0xd8, 0xff, 0x7f)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(row)))
	b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(row))
	return append(b, row...)
}

// encodeRow returns the operation in the order of its schema.
func (op *Operation) encodeRow() []byte {
	row := []byte{0x81, 0x70, 0x54, 0xe1, 0x7f, 1}
	row = binary.LittleEndian.AppendUint32(row, uint32(op.Type))
	resource := uint32(0)
	if op.ResourceType != nil {
		row[5] |= 2
		resource = uint32(*op.ResourceType)
	}
	row = binary.LittleEndian.AppendUint32(row, resource)
	for i, value := range [][]byte{
		octets(op.PartitionKey), op.EffectivePartitionKey, octets(op.ID), op.BinaryID,
		op.Body,
	} {
		if value != nil {
			row[5] |= 4 << i
			row = appendLong(row, value)
		}
	}
	for i, value := range []*string{op.IndexingDirective, op.IfMatch, op.IfNoneMatch} {
		if value != nil {
			row = appendLong(append(row, 20, byte(8+i)), octets(value))
		}
	}
	if op.TimeToLive != nil {
		row = binary.LittleEndian.AppendUint32(append(row, 7, 11), uint32(*op.TimeToLive))
	}
	if op.Minimal {
		row = append(row, 3, 12)
	}
	return row
}

// octets returns the bytes of a text, or nil for nil.
func octets(text *string) []byte {
	if text == nil {
		return nil
	}
	return []byte(*text)
}

// appendLong appends bytes after their length.
func appendLong(b, value []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(value))), value...)
}
