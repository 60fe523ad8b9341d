package hybridrow

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// A row comes from anybody who may write, so no length in it is believed: each read is
// checked against the bytes that are left, and after the first mistake every further
// read is empty. So callers look for the mistake once, at the end.

// cursor reads the values of a row one after the other. After a mistake it reads nothing
// more, and has the mistake.
type cursor struct {
	rest []byte
	err  error
}

// fail records a mistake, if it is the first.
func (c *cursor) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// more reports whether the row goes on.
func (c *cursor) more() bool { return c.err == nil && len(c.rest) > 0 }

// take cuts off so many bytes.
func (c *cursor) take(n uint64) []byte {
	if n > uint64(len(c.rest)) {
		c.fail("%d bytes are wanted, and %d are left in the row", n, len(c.rest))
	}
	if c.err != nil {
		return nil
	}
	b := c.rest[:n:n]
	c.rest = c.rest[n:]
	return b
}

// octet cuts off one byte.
func (c *cursor) octet() byte {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

// int32 cuts off an integer of fixed size.
func (c *cursor) int32() int32 {
	if b := c.take(4); b != nil {
		return int32(binary.LittleEndian.Uint32(b))
	}
	return 0
}

// varuint cuts off an integer of as many bytes as it needs.
func (c *cursor) varuint() uint64 {
	n, size := binary.Uvarint(c.rest)
	if size <= 0 {
		c.fail("a number of variable length does not end")
	}
	c.take(uint64(max(size, 0)))
	return n
}

// binary cuts off bytes after their length. It is not nil, even if it is empty.
func (c *cursor) binary() []byte { return c.take(c.varuint()) }

// text is binary for a text, which has to be UTF-8.
func (c *cursor) text() []byte {
	b := c.binary()
	if !utf8.Valid(b) {
		c.fail("%q is no UTF-8", b[:min(len(b), 32)])
	}
	return b
}

// textOf is text, if that is the type of the value.
func (c *cursor) textOf(kind byte) []byte {
	if kind != typeText {
		c.fail("type is %d: want %d, a text", kind, typeText)
	}
	return c.text()
}

// path cuts off the path of a sparse field, and returns the name: that of a field by its
// number, or one that is written out.
func (c *cursor) path(fields []string) string {
	n := c.varuint()
	if n < uint64(len(fields)) {
		return fields[n]
	}
	return string(c.take(n - uint64(len(fields))))
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
	typesOfScopes = 30 // from here on: values that have others in them
)

// sizes are those of the values of fixed size. That of a boolean is in its type.
var sizes = map[byte]uint64{
	typeNull: 0, typeFalse: 0, typeTrue: 0,
	typeInt8: 1, typeInt16: 2, typeInt32: 4, typeInt64: 8,
	typeUint8: 1, typeUint16: 2, typeUint32: 4, typeUint64: 8,
	typeFloat32: 4, typeFloat64: 8, typeFloat128: 16, typeDecimal: 16,
	typeDateTime: 8, typeUnixTime: 8, typeGUID: 16, typeMongoID: 12,
}

// skip passes over a value.
func (c *cursor) skip(kind byte) {
	size, fixed := sizes[kind]
	switch {
	case fixed:
		c.take(size)
	case kind == typeVarint, kind == typeVaruint:
		c.varuint()
	case kind == typeText, kind == typeBinary:
		c.binary()
	case kind >= typesOfScopes:
		c.fail("type %d is an object, an array or none at all: want a single value", kind)
	default:
		c.fail("type %d is none", kind)
	}
}
