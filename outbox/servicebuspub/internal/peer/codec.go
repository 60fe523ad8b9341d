package peer

import (
	"encoding/binary"
	"errors"
	"math"
)

// Values of AMQP are Go values and these types.
type (
	symbol    string
	symbols   []symbol
	list      []any
	dict      []any // keys and values, alternating
	uuid      [16]byte
	timestamp int64 // milliseconds since 1970
	opaque    struct {
		code byte
		data []byte
	} // a number of a type with which this package does not calculate
	described struct{ descriptor, value any }
)

var errMalformed = errors.New("malformed AMQP")

// maxDepth bounds the nesting of values, because a client may send any bytes.
const maxDepth = 16

// decoder reads values from b. After an error the decoder returns zero values.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail() { d.b, d.err = nil, errMalformed }

func (d *decoder) takeBytes(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail()
		return nil
	}
	taken := d.b[:n]
	d.b = d.b[n:]
	return taken
}

// readNumber reads an unsigned number of 0 to 8 bytes.
func (d *decoder) readNumber(bytes uint64) (n uint64) {
	for _, b := range d.takeBytes(bytes) {
		n = n<<8 | uint64(b)
	}
	return n
}

func (d *decoder) readValue(depth int) any {
	code := byte(d.readNumber(1))
	if d.err != nil || depth > maxDepth {
		d.fail()
		return nil
	}
	if code == 0 {
		descriptor := d.readValue(depth + 1)
		return described{descriptor, d.readValue(depth + 1)}
	}
	return d.readPlain(code, depth)
}

// readPlain reads a value of the type that a constructor names. The upper half of the constructor gives the length.
func (d *decoder) readPlain(code byte, depth int) any {
	switch code >> 4 {
	case 0x4, 0x5, 0x6, 0x7, 0x8, 0x9:
		width := [...]uint64{0, 1, 2, 4, 8, 16}[code>>4-4]
		return fixed(code, d.takeBytes(width))
	case 0xa:
		return variable(code, d.takeBytes(d.readNumber(1)))
	case 0xb:
		return variable(code, d.takeBytes(d.readNumber(4)))
	case 0xc:
		return d.readCompound(code == 0xc1, 1, depth)
	case 0xd:
		return d.readCompound(code == 0xd1, 4, depth)
	case 0xe:
		return d.readArray(1, depth)
	case 0xf:
		return d.readArray(4, depth)
	}
	d.fail()
	return nil
}

func fixed(code byte, data []byte) any {
	var n uint64
	for _, b := range data {
		n = n<<8 | uint64(b)
	}
	switch code {
	case 0x40:
		return nil
	case 0x41, 0x42:
		return code == 0x41
	case 0x56:
		return n != 0
	case 0x45:
		return list{}
	case 0x50:
		return uint8(n)
	case 0x60:
		return uint16(n)
	case 0x43, 0x52, 0x70:
		return uint32(n)
	case 0x44, 0x53, 0x80:
		return n
	case 0x54:
		return int32(int8(n))
	case 0x71:
		return int32(n)
	case 0x55:
		return int64(int8(n))
	case 0x81:
		return int64(n)
	case 0x83:
		return timestamp(n)
	case 0x98:
		if len(data) == len(uuid{}) {
			return uuid(data)
		}
	}
	return opaque{code, data}
}

func variable(code byte, data []byte) any {
	switch code & 0xf {
	case 0x1:
		return string(data)
	case 0x3:
		return symbol(data)
	}
	return data
}

func (d *decoder) readCompound(isMap bool, width uint64, depth int) any {
	inner := decoder{b: d.takeBytes(d.readNumber(width))}
	items := list{}
	for count := inner.readNumber(width); count > 0 && inner.err == nil; count-- {
		items = append(items, inner.readValue(depth+1)) // each item takes at least 1 byte
	}
	if inner.err != nil || isMap && len(items)%2 != 0 {
		d.fail()
	}
	if isMap {
		return dict(items)
	}
	return items
}

// readArray reads values that share a constructor; this package needs arrays of symbols only.
func (d *decoder) readArray(width uint64, depth int) any {
	inner := decoder{b: d.takeBytes(d.readNumber(width))}
	count := inner.readNumber(width)
	code := byte(inner.readNumber(1))
	if code == 0 || count > uint64(len(inner.b)) { // no client sends described values, or values without bytes
		inner.fail()
	}
	items := list{}
	for ; count > 0 && inner.err == nil; count-- {
		items = append(items, inner.readPlain(code, depth+1))
	}
	if inner.err != nil {
		d.fail()
	}
	return items
}

// appendValue writes a value, usually in the longest form of the type.
func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, 0x40)
	case bool:
		if v {
			return append(b, 0x41)
		}
		return append(b, 0x42)
	case uint8:
		return append(b, 0x50, v)
	case uint16:
		return binary.BigEndian.AppendUint16(append(b, 0x60), v)
	case uint32:
		return binary.BigEndian.AppendUint32(append(b, 0x70), v)
	case uint64:
		if v < 256 { // clients accept the number of a performative in this form only
			return append(b, 0x53, byte(v))
		}
		return binary.BigEndian.AppendUint64(append(b, 0x80), v)
	case int32:
		return binary.BigEndian.AppendUint32(append(b, 0x71), uint32(v))
	case int64:
		return binary.BigEndian.AppendUint64(append(b, 0x81), uint64(v))
	case timestamp:
		return binary.BigEndian.AppendUint64(append(b, 0x83), uint64(v))
	case uuid:
		return append(append(b, 0x98), v[:]...)
	case opaque:
		return append(append(b, v.code), v.data...)
	case described:
		return appendValue(appendValue(append(b, 0), v.descriptor), v.value)
	case []byte:
		return appendSized(b, 0xb0, v)
	case string:
		return appendSized(b, 0xb1, []byte(v))
	case symbol:
		return appendSized(b, 0xb3, []byte(v))
	}
	return appendCompound(b, v)
}

func appendSized(b []byte, code byte, data []byte) []byte {
	return append(binary.BigEndian.AppendUint32(append(b, code), uint32(len(data))), data...)
}

func appendCompound(b []byte, v any) []byte {
	code, items := byte(0xd0), []any{}
	switch v := v.(type) {
	case list:
		items = v
	case dict:
		code, items = 0xd1, v
	case symbols:
		inner := append(binary.BigEndian.AppendUint32(nil, uint32(len(v))), 0xb3)
		for _, s := range v {
			inner = append(binary.BigEndian.AppendUint32(inner, uint32(len(s))), s...)
		}
		return appendSized(b, 0xf0, inner)
	}
	inner := binary.BigEndian.AppendUint32(nil, uint32(len(items)))
	for _, item := range items {
		inner = appendValue(inner, item)
	}
	return appendSized(b, code, inner)
}

// fieldAt returns a field of a performative; trailing fields may be missing.
func (l list) fieldAt(i int) any {
	if i < len(l) {
		return l[i]
	}
	return nil
}

func (l list) textAt(i int) string {
	switch v := l.fieldAt(i).(type) {
	case string:
		return v
	case symbol:
		return string(v)
	}
	return ""
}

func (l list) uint32At(i int) uint32 {
	switch v := l.fieldAt(i).(type) {
	case uint32:
		return v
	case uint64:
		return uint32(min(v, math.MaxUint32))
	case uint16:
		return uint32(v)
	case uint8:
		return uint32(v)
	}
	return 0
}

func (l list) boolAt(i int) bool {
	b, _ := l.fieldAt(i).(bool)
	return b
}

// fields returns the number and the fields of a described list, such as a performative, a source or an outcome.
func fields(v any) (number uint64, l list) {
	d, _ := v.(described)
	number, _ = d.descriptor.(uint64)
	l, _ = d.value.(list)
	return number, l
}

// valueOf returns the value of a key, which is a string or a symbol.
func (d dict) valueOf(key string) (value any, ok bool) {
	for i := 0; i+1 < len(d); i += 2 {
		switch k := d[i].(type) {
		case string:
			ok = k == key
		case symbol:
			ok = string(k) == key
		}
		if ok {
			return d[i+1], true
		}
	}
	return nil, false
}
