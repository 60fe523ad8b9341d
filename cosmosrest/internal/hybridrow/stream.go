package hybridrow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
)

// Version is the first byte of every row, and therefore of a body. No text begins with this byte.
const Version = 0x81

// Ids of schemas, which follow the version.
const (
	segmentSchema   = 2147473648
	recordSchema    = 2147473649
	operationSchema = 2145473648
	resultSchema    = 2145473649
)

const (
	rowHead     = 1 + 4           // bytes of version and schema
	segmentHead = rowHead + 1 + 4 // with the presence byte and the length of the header
	recordHead  = rowHead + 4 + 4 // with the length of the row and its checksum
	fixedSize   = rowHead + 1 + 8 // of the other rows, with the presence byte and two integers
)

const hasLength = 1 // bit of the presence byte of a segment header

// records yields the rows of all records of a stream. An error comes last.
//
//	body     segment header, then records; another segment may follow
//	segment  version 1, schema 4, presence 1, length 4 of the header
//	record   version 1, schema 4, length 4 and CRC-32 4 of the row, row
func records(body []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		rest, err := segment(body)
		for err == nil && len(rest) > 0 {
			var row []byte
			if schemaOf(rest) == segmentSchema { // a body may have several segments
				rest, err = segment(rest)
				continue
			}
			if row, rest, err = record(rest); err == nil && !yield(row, nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// segment skips a segment header. The header may contain further fields, which are comments for people.
func segment(b []byte) (rest []byte, err error) {
	if err := expect(b, segmentSchema, segmentHead, "segment header"); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(b[rowHead+1:])
	if b[rowHead]&hasLength == 0 {
		return nil, errors.New("segment header has no length")
	}
	if n < segmentHead || uint64(n) > uint64(len(b)) {
		return nil, fmt.Errorf("segment header says that it has %d bytes: want %d to %d", int32(n), segmentHead, len(b))
	}
	return b[n:], nil
}

// record reads the row of a record, and verifies its checksum.
func record(b []byte) (row, rest []byte, err error) {
	if err := expect(b, recordSchema, recordHead, "record header"); err != nil {
		return nil, nil, err
	}
	n, sum := binary.LittleEndian.Uint32(b[rowHead:]), binary.LittleEndian.Uint32(b[rowHead+4:])
	b = b[recordHead:]
	if uint64(n) > uint64(len(b)) {
		return nil, nil, fmt.Errorf("record header says that its row has %d bytes: %d are left", int32(n), len(b))
	}
	row = b[:n:n]
	if got := crc32.ChecksumIEEE(row); got != sum {
		return nil, nil, fmt.Errorf("row has the CRC-32 %08x: want %08x, that of its record header", got, sum)
	}
	return row, b[n:], nil
}

// expect checks that a row of a schema begins here, and that at least so many bytes follow.
func expect(b []byte, schema uint32, size int, name string) error {
	switch {
	case len(b) == 0:
		return fmt.Errorf("%s is missing", name)
	case b[0] != Version:
		return fmt.Errorf("%s begins with the byte %02x: want %02x, the version", name, b[0], Version)
	case len(b) >= rowHead && schemaOf(b) != schema:
		return fmt.Errorf("%s has the schema %d: want %d", name, int32(schemaOf(b)), schema)
	case len(b) < size:
		return fmt.Errorf("%s ends after %d bytes: want %d", name, len(b), size)
	}
	return nil
}

// schemaOf returns the schema of the row that begins here, or 0 if no row begins here.
func schemaOf(b []byte) uint32 {
	if len(b) < rowHead {
		return 0
	}
	return binary.LittleEndian.Uint32(b[1:])
}
