package binaryjson

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"unicode/utf8"

	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// ErrTooLong is the error for a body whose text exceeds the limit.
var ErrTooLong = errors.New("the text of the body exceeds its limit")

// Error describes the damage of a body.
type Error struct {
	At     int // offset in the body, from its first byte
	Reason string
}

func (e *Error) Error() string { return fmt.Sprintf("at byte %d: %s", e.At, e.Reason) }

// maxLevels is how many objects and arrays may be in each other, as in package rawjson.
const maxLevels = 10_000

// Is reports whether a body is binary JSON and not a text.
func Is(body []byte) bool { return len(body) > 0 && body[0] == preamble }

// decoder writes the text of a body.
type decoder struct {
	body    []byte
	pos     int
	bound   int // end of the innermost container with a length, or of the body
	out     []byte
	scratch []byte // text of a string that is not in the body as it is
	open    []level
}

// decoders is a pool of decoders, which keep their stacks.
var decoders = sync.Pool{New: func() any { return new(decoder) }}

// maxKept is the largest size of a stack, and of a decompressed string, that returns to the pool.
const maxKept = 4096

// free returns the decoder to the pool, without the texts.
func (d *decoder) free() {
	d.body, d.out = nil, nil
	if cap(d.open) <= maxKept && cap(d.scratch) <= maxKept {
		decoders.Put(d)
	}
}

// level is an object or array whose end is still to come.
type level struct {
	at     int // offset of its marker
	bound  int // bound outside
	left   int // how many items are to come; -1 if only the end is known
	sized  bool
	object bool
	first  bool
}

// AppendText appends the text of a body. If the text has more than limit bytes, the error is [ErrTooLong]; any other
// error is an [*Error].
func AppendText(dst, body []byte, limit int) ([]byte, error) {
	if !Is(body) {
		return dst, &Error{0, fmt.Sprintf("want the byte %02X, with which binary JSON begins", preamble)}
	}
	d := decoders.Get().(*decoder)
	defer d.free()
	d.body, d.pos, d.bound, d.out, d.open = body, 1, len(body), dst, d.open[:0]
	limit += len(dst)
	err := d.appendValue()
	for err == nil && len(d.open) > 0 {
		if err = d.appendItem(); len(d.out) > limit {
			err = ErrTooLong
		}
	}
	switch {
	case err != nil:
		return dst, err
	case len(d.out) > limit:
		return dst, ErrTooLong
	case d.pos < len(body):
		return dst, d.damagedAt(d.pos, "want the end of the body, which has %d bytes after its value", len(body)-d.pos)
	}
	return d.out, nil
}

func (d *decoder) damagedAt(at int, format string, args ...any) error {
	return &Error{at, fmt.Sprintf(format, args...)}
}

// appendItem appends the next item or member of the innermost container, or its end.
func (d *decoder) appendItem() error {
	in := &d.open[len(d.open)-1]
	if done, err := d.endsHere(in); done || err != nil {
		return err
	}
	if !in.first {
		d.out = append(d.out, ',')
	}
	in.first = false
	if in.left > 0 {
		in.left--
	}
	if in.object {
		if err := d.appendName(); err != nil {
			return err
		}
	}
	return d.appendValue() // may open a container, so in is not used any more
}

// endsHere ends a container if it ends here.
func (d *decoder) endsHere(in *level) (bool, error) {
	switch {
	case in.sized && d.pos == d.bound && in.left > 0:
		return false, d.damagedAt(in.at, "the count of the container exceeds its items by %d", in.left)
	case in.sized && d.pos < d.bound && in.left == 0:
		return false, d.damagedAt(d.pos, "want the end of the container from byte %d, which has all its items", in.at)
	case in.sized && d.pos < d.bound, !in.sized && in.left > 0:
		return false, nil
	}
	closing := byte(']')
	if in.object {
		closing = '}'
	}
	d.out = append(d.out, closing)
	d.bound = in.bound
	d.open = d.open[:len(d.open)-1]
	return true, nil
}

// appendName appends the name of a member.
func (d *decoder) appendName() error {
	at := d.pos
	marker, err := d.takeByte("the name of a member")
	if err != nil {
		return err
	}
	if !isString(marker) {
		return d.damagedAt(at, "marker %02X as the name of a member: want a string", marker)
	}
	if err := d.appendString(marker, at); err != nil {
		return err
	}
	d.out = append(d.out, ':')
	return nil
}

// appendValue appends a scalar, or opens a container.
func (d *decoder) appendValue() error {
	at := d.pos
	marker, err := d.takeByte("a value")
	switch {
	case err != nil:
		return err
	case marker < markSystem:
		d.out = appendDecimal(d.out, int64(marker))
	case isString(marker):
		return d.appendString(marker, at)
	case marker >= markArrayEmpty && marker < markNumbers1:
		return d.openContainer(marker, at)
	case marker == markNull:
		d.out = append(d.out, "null"...)
	case marker == markFalse:
		d.out = append(d.out, "false"...)
	case marker == markTrue:
		d.out = append(d.out, "true"...)
	case marker == markGUID:
		return d.appendGUID()
	case marker >= markBinary1 && marker <= markBinary4:
		return d.appendBinary(marker)
	case marker >= markNumbers1 && marker <= markNumberRows2:
		return d.appendNumbers(marker)
	case marker == markUint64 || widthOf(marker) > 0:
		return d.appendNumber(marker, at)
	default:
		return d.damagedAt(at, "marker %02X has no value in JSON", marker)
	}
	return nil
}

// openContainer begins an object or array.
func (d *decoder) openContainer(marker byte, at int) error {
	in := level{at: at, bound: d.bound, left: -1, first: true, sized: true}
	opening := byte('[')
	form := marker - markArrayEmpty
	if marker >= markObjectEmpty {
		opening, form, in.object = '{', marker-markObjectEmpty, true
	}
	d.out = append(d.out, opening)
	switch {
	case form == 0:
		in.sized, in.left = false, 0
	case form == 1:
		in.sized, in.left = false, 1
	default:
		width := 1 << ((form - 2) % 3)
		size, err := d.takeLength(width, "the length of a container")
		if err != nil {
			return err
		}
		if form > 4 {
			if in.left, err = d.takeLength(width, "the count of a container"); err != nil {
				return err
			}
		}
		if size > d.bound-d.pos {
			return d.damagedAt(at, "the container has the length %d: want at most the %d bytes that follow", size,
				d.bound-d.pos)
		}
		d.bound = d.pos + size
	}
	if len(d.open) == maxLevels {
		return d.damagedAt(at, "more than %d objects and arrays in each other", maxLevels)
	}
	d.open = append(d.open, in)
	return nil
}

// take returns the next bytes; what says what they are.
func (d *decoder) take(n int, what string) ([]byte, error) {
	if n > d.bound-d.pos {
		return nil, d.damagedAt(d.pos, "%s needs %d bytes: %d follow", what, n, d.bound-d.pos)
	}
	d.pos += n
	return d.body[d.pos-n : d.pos], nil
}

func (d *decoder) takeByte(what string) (byte, error) {
	if d.pos >= d.bound {
		return 0, d.damagedAt(d.pos, "want %s", what)
	}
	d.pos++
	return d.body[d.pos-1], nil
}

// takeLength returns a length of 1, 2 or 4 bytes.
func (d *decoder) takeLength(width int, what string) (int, error) {
	b, err := d.take(width, what)
	if err != nil {
		return 0, err
	}
	return int(littleEndian(b)), nil
}

// littleEndian returns an unsigned integer of 1 to 8 bytes.
func littleEndian(b []byte) uint64 {
	var whole [8]byte
	copy(whole[:], b)
	return binary.LittleEndian.Uint64(whole[:])
}

// appendText appends the text of the string at a byte as a string of JSON.
func (d *decoder) appendText(text []byte, at int) error {
	switch {
	case rawjson.PlainPrefix(text) == len(text):
		d.out = append(append(append(d.out, '"'), text...), '"')
	case utf8.Valid(text):
		d.out = rawjson.AppendString(d.out, text)
	default:
		return d.damagedAt(at, "a string of %d bytes is not UTF-8", len(text))
	}
	return nil
}
