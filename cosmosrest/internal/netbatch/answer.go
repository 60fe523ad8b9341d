package netbatch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
)

// This reader is written independently of the server's package, byte by byte and without the package's constants.
// With parts of the writer, the reader would not notice the writer's mistakes.

// Result is the result of an operation. Nil fields are absent from the row.
type Result struct {
	Status     int32
	SubStatus  *int32
	ETag       *string
	Body       []byte
	RetryAfter *uint32 // milliseconds
	Charge     *float64
}

// Results reads an answer. Results returns an error if the SDK would treat the answer as broken.
func Results(b []byte) (all []Result, err error) {
	if len(b) < 10 || !bytes.Equal(b[:6], []byte{0x81, 0xf0, 0xd8, 0xff, 0x7f, 1}) {
		return nil, fmt.Errorf("no segment header: % x", b[:min(len(b), 10)])
	}
	n := binary.LittleEndian.Uint32(b[6:])
	if n < 10 || int(n) > len(b) {
		return nil, fmt.Errorf("segment header of %d bytes, in %d", n, len(b))
	}
	for b = b[n:]; len(b) > 0; {
		if len(b) < 13 || !bytes.Equal(b[:5], []byte{0x81, 0xf1, 0xd8, 0xff, 0x7f}) {
			return nil, fmt.Errorf("result %d: no record header", len(all))
		}
		n, sum := int(binary.LittleEndian.Uint32(b[5:])), binary.LittleEndian.Uint32(b[9:])
		if b = b[13:]; n > len(b) || crc32.ChecksumIEEE(b[:n]) != sum {
			return nil, fmt.Errorf("result %d: not the %d bytes that its header says", len(all), n)
		}
		r, err := result(b[:n])
		if err != nil {
			return nil, fmt.Errorf("result %d: %w", len(all), err)
		}
		all, b = append(all, r), b[n:]
	}
	return all, nil
}

// result reads a row.
func result(row []byte) (r Result, err error) {
	defer func() {
		if p := recover(); p != nil { // an index is outside the row
			err = fmt.Errorf("row % x: %v", row, p)
		}
	}()
	// Version and schema, then the presence byte. Only its lower four bits may be set, and the first, for the status,
	// must be set.
	if !bytes.Equal(row[:5], []byte{0x81, 0x71, 0x54, 0xe1, 0x7f}) || row[5]&^15 != 0 || row[5]&1 == 0 {
		return r, fmt.Errorf("the row begins with % x", row[:6])
	}
	r.Status = int32(binary.LittleEndian.Uint32(row[6:]))
	if row[5]&2 != 0 {
		r.SubStatus = new(int32(binary.LittleEndian.Uint32(row[10:])))
	}
	rest := row[14:]
	long := func() []byte {
		n, size := binary.Uvarint(rest)
		value := rest[size : size+int(n)]
		rest = rest[size+int(n):]
		return value
	}
	if row[5]&4 != 0 {
		r.ETag = new(string(long()))
	}
	if row[5]&8 != 0 {
		r.Body = long()
	}
	for len(rest) > 0 {
		if rest, err = r.readSparse(rest); err != nil {
			return r, err
		}
	}
	return r, nil
}

// readSparse reads a sparse field.
func (r *Result) readSparse(b []byte) (rest []byte, err error) {
	switch {
	case b[0] == 11 && b[1] == 5:
		r.RetryAfter = new(binary.LittleEndian.Uint32(b[2:]))
		return b[6:], nil
	case b[0] == 16 && b[1] == 6:
		r.Charge = new(math.Float64frombits(binary.LittleEndian.Uint64(b[2:])))
		return b[10:], nil
	}
	return nil, fmt.Errorf("sparse field % x is none of a result", b)
}
