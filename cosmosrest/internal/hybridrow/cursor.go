package hybridrow

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// Any client that may write can send a row, so the cursor does not trust the lengths in a row. The cursor checks each
// read against the remaining bytes, and after the first error every further read returns nothing. So callers check
// for the error once, at the end.

// cursor reads the values of a row in order. After an error, cursor reads nothing more, and keeps the error.
type cursor struct {
	rest []byte
	err  error
}

// failOnce records the first error.
func (c *cursor) failOnce(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// hasMore reports whether the row has more bytes.
func (c *cursor) hasMore() bool { return c.err == nil && len(c.rest) > 0 }

// takeBytes reads n bytes.
func (c *cursor) takeBytes(n uint64) []byte {
	if n > uint64(len(c.rest)) {
		c.failOnce("%d bytes are wanted, and %d are left in the row", n, len(c.rest))
	}
	if c.err != nil {
		return nil
	}
	b := c.rest[:n:n]
	c.rest = c.rest[n:]
	return b
}

// takeByte reads a byte.
func (c *cursor) takeByte() byte {
	if b := c.takeBytes(1); b != nil {
		return b[0]
	}
	return 0
}

// takeInt32 reads an integer of fixed size.
func (c *cursor) takeInt32() int32 {
	if b := c.takeBytes(4); b != nil {
		return int32(binary.LittleEndian.Uint32(b))
	}
	return 0
}

// takeVaruint reads an integer of variable length.
func (c *cursor) takeVaruint() uint64 {
	n, size := binary.Uvarint(c.rest)
	if size <= 0 {
		c.failOnce("a number of variable length does not end")
	}
	c.takeBytes(uint64(max(size, 0)))
	return n
}

// binary reads a length and then so many bytes. The result is never nil, even if empty.
func (c *cursor) binary() []byte { return c.takeBytes(c.takeVaruint()) }

// text is binary for a text, which must be UTF-8.
func (c *cursor) text() []byte {
	b := c.binary()
	if !utf8.Valid(b) {
		c.failOnce("%q is no UTF-8", b[:min(len(b), 32)])
	}
	return b
}

// textOf is text, if the value has this type.
func (c *cursor) textOf(kind byte) []byte {
	if kind != typeText {
		c.failOnce("type is %d: want %d, a text", kind, typeText)
	}
	return c.text()
}

// takePath reads the path of a sparse field, and returns the field's name. The path contains the field's number or its
// name.
func (c *cursor) takePath(fields []string) string {
	n := c.takeVaruint()
	if n < uint64(len(fields)) {
		return fields[n]
	}
	return string(c.takeBytes(n - uint64(len(fields))))
}

// Types of primitive values.
const (
	typeNull      = 1
	typeFalse     = 2
	typeTrue      = 3
	typeInt8      = 5
	typeInt16     = 6
	typeInt32     = 7
	typeInt64     = 8
	typeUint8     = 9
	typeUint16    = 10
	typeUint32    = 11
	typeUint64    = 12
	typeVarint    = 13
	typeVaruint   = 14
	typeFloat32   = 15
	typeFloat64   = 16
	typeDecimal   = 17
	typeDateTime  = 18
	typeGUID      = 19
	typeText      = 20
	typeBinary    = 21
	typeFloat128  = 22
	typeUnixTime  = 23
	typeMongoID   = 24
	typesOfScopes = 30 // types from here on contain other values
)

// sizes are the sizes of values of fixed size. A boolean has no bytes, because its type is its value.
var sizes = map[byte]uint64{
	typeNull: 0, typeFalse: 0, typeTrue: 0,
	typeInt8: 1, typeInt16: 2, typeInt32: 4, typeInt64: 8,
	typeUint8: 1, typeUint16: 2, typeUint32: 4, typeUint64: 8,
	typeFloat32: 4, typeFloat64: 8, typeFloat128: 16, typeDecimal: 16,
	typeDateTime: 8, typeUnixTime: 8, typeGUID: 16, typeMongoID: 12,
}

// skipValue skips a value.
func (c *cursor) skipValue(kind byte) {
	size, fixed := sizes[kind]
	switch {
	case fixed:
		c.takeBytes(size)
	case kind == typeVarint, kind == typeVaruint:
		c.takeVaruint()
	case kind == typeText, kind == typeBinary:
		c.binary()
	case kind >= typesOfScopes:
		c.failOnce("type %d is an object, an array or none at all: want a single value", kind)
	default:
		c.failOnce("type %d is none", kind)
	}
}
