// Package fields reads the fields of a record: numbers of variable length, and texts that begin with their length.
package fields

import (
	"encoding/binary"
	"errors"
)

// ErrShort means that a record ends within a field.
var ErrShort = errors.New("record is cut short")

// Reader reads the fields of a record one after the other. If a field is cut short, Reader sets Short, and all
// further fields are zero. So callers check for errors once, at the end.
type Reader struct {
	Rest  []byte // the unread rest of the record
	Short bool   // true if a field was cut short
}

// Uvarint reads a number that is not negative.
func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.Rest)
	if n <= 0 {
		r.Short = true
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Varint reads a number.
func (r *Reader) Varint() int64 {
	v, n := binary.Varint(r.Rest)
	if n <= 0 {
		r.Short = true
		return 0
	}
	r.Rest = r.Rest[n:]
	return v
}

// Byte reads a byte. The record must have a byte left.
func (r *Reader) Byte() byte {
	b := r.Rest[0]
	r.Rest = r.Rest[1:]
	return b
}

// Text reads a text. In a damaged record the length may have any value, so Text compares the length with the rest of
// the record first.
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
