// Package fields reads the fields of a record: numbers of variable length, and texts that
// begin with their length.
package fields

import (
	"encoding/binary"
	"errors"
)

// ErrShort is a record that ends within a field.
var ErrShort = errors.New("record is cut short")

// Reader takes fields off a record. After a field that is cut short it is Short and
// returns zeros, so callers check once, at the end.
type Reader struct {
	Rest  []byte // of the record
	Short bool   // a field was cut short
}

// Uvarint takes off a number that is not negative.
func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.Rest)
	if n <= 0 {
		r.Short = true
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Varint takes off a number.
func (r *Reader) Varint() int64 {
	v, n := binary.Varint(r.Rest)
	if n <= 0 {
		r.Short = true
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Byte takes off a byte. The record must have one.
func (r *Reader) Byte() byte {
	b := r.Rest[0]
	r.Rest = r.Rest[1:]
	return b
}

// Text takes off a text. Its length may be anything in a damaged record, and so is
// compared with what is left before it is used.
func (r *Reader) Text() []byte {
	n := r.Uvarint()
	if r.Short || n > uint64(len(r.Rest)) {
		r.Short = true
		return nil
	}
	s := r.Rest[:n]
	r.Rest = r.Rest[n:]
	return s
}
