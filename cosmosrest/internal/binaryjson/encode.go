package binaryjson

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"
	"strings"

	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// moved is the number of levels whose containers are moved if their length needs more than a byte. Deeper containers
// begin with room for the longest length, so the moves of a body together take at most a time proportional to its size.
const moved = 16

// encoder writes a body.
type encoder struct {
	text []byte
	pos  int
	out  []byte
	open []int // the place of the marker of each open container
}

// Append appends the body of a JSON text. The text must be JSON, as rawjson.Check accepts it; of any other text the
// result says nothing.
func Append(dst, text []byte) []byte {
	var room [moved]int
	e := encoder{text: text, out: append(dst, preamble), open: room[:0]}
	for e.pos < len(text) {
		e.appendNext()
	}
	return e.out
}

// appendNext appends a scalar, or the begin or end of a container.
func (e *encoder) appendNext() {
	switch c := e.text[e.pos]; c {
	case '"':
		e.appendString()
	case ' ', '\t', '\r', '\n', ',', ':':
		e.pos++
	case '{':
		e.begin(markObject1)
	case '[':
		e.begin(markArray1)
	case '}', ']':
		e.end()
	case 't':
		e.appendWord("true", markTrue)
	case 'f':
		e.appendWord("false", markFalse)
	case 'n':
		e.appendWord("null", markNull)
	default:
		e.appendNumber()
	}
}

func (e *encoder) appendWord(word string, marker byte) {
	e.pos += len(word)
	e.out = append(e.out, marker)
}

// begin begins a container with the marker for a length of one byte.
func (e *encoder) begin(marker byte) {
	e.pos++
	e.open = append(e.open, len(e.out))
	if len(e.open) <= moved {
		e.out = append(e.out, marker, 0)
		return
	}
	e.out = append(e.out, marker+markArray4-markArray1, 0, 0, 0, 0)
}

// end ends a container: its length is known now.
func (e *encoder) end() {
	e.pos++
	levels := len(e.open)
	if levels == 0 {
		return // not JSON
	}
	at := e.open[levels-1]
	e.open = e.open[:levels-1]
	if levels > moved {
		binary.LittleEndian.PutUint32(e.out[at+1:], uint32(len(e.out)-at-1-4))
		return
	}
	const head = 2 // bytes of marker and length
	switch size := len(e.out) - at - head; {
	case size == 0:
		e.out[at] -= markArray1 - markArrayEmpty
		e.out = e.out[:at+1]
	case size <= math.MaxUint8:
		e.out[at+1] = byte(size)
	case size <= math.MaxUint16:
		e.shift(at+head, 1)
		e.out[at] += markArray2 - markArray1
		binary.LittleEndian.PutUint16(e.out[at+1:], uint16(size))
	default:
		e.shift(at+head, 3)
		e.out[at] += markArray4 - markArray1
		binary.LittleEndian.PutUint32(e.out[at+1:], uint32(size))
	}
}

// shift moves the end of the output, from a place on, by some bytes.
func (e *encoder) shift(from, by int) {
	var room [4]byte
	e.out = append(e.out, room[:by]...)
	copy(e.out[from+by:], e.out[from:len(e.out)-by])
}

// appendString appends a string without its escapes.
func (e *encoder) appendString() {
	from := e.pos + 1
	n := bytes.IndexByte(e.text[from:], '"')
	for n > 0 && escaped(e.text[from:from+n]) {
		next := bytes.IndexByte(e.text[from+n+1:], '"')
		if next < 0 {
			n = -1
			break
		}
		n += 1 + next
	}
	if n < 0 {
		e.pos = len(e.text) // not JSON
		return
	}
	e.pos = from + n + 1
	e.out = appendText(e.out, rawjson.Unquote(e.text[from-1:e.pos]))
}

// escaped reports whether the quote after a part of a string belongs to an escape.
func escaped(part []byte) bool {
	slashes := 0
	for slashes < len(part) && part[len(part)-1-slashes] == '\\' {
		slashes++
	}
	return slashes%2 == 1
}

// appendText appends a text as a string.
func appendText(dst, text []byte) []byte {
	if marker := markerOf(text); marker != 0 {
		return append(dst, marker)
	}
	switch n := len(text); {
	case n < shortest:
		dst = append(dst, markShortString+byte(n))
	case n <= math.MaxUint8:
		dst = append(dst, markString1, byte(n))
	case n <= math.MaxUint16:
		dst = binary.LittleEndian.AppendUint16(append(dst, markString2), uint16(n))
	default:
		dst = binary.LittleEndian.AppendUint32(append(dst, markString4), uint32(n))
	}
	return append(dst, text...)
}

// decimal is a number of few digits, digits / 10^point, which a float64 can hold without rounding before the division.
type decimal struct {
	digits   int64
	point    int // digits behind the point
	negative bool
}

// appendNumber appends the number that begins here.
func (e *encoder) appendNumber() {
	from := e.pos
	for e.pos++; e.pos < len(e.text) && inNumber(e.text[e.pos]); {
		e.pos++
	}
	number := e.text[from:e.pos]
	d, ok := parseDecimal(number)
	switch {
	case ok && d.point == 0:
		e.out = appendInt(e.out, d.digits)
	case ok:
		e.out = appendDouble(e.out, float64(d.digits)/powers[d.point])
	default:
		e.out = appendLongNumber(e.out, string(number))
	}
}

func inNumber(c byte) bool {
	return '0' <= c && c <= '9' || c == '.' || c == 'e' || c == 'E' || c == '-' || c == '+'
}

// powers are the powers of ten by which a decimal may be divided.
var powers = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// parseDecimal parses an integer of so few digits that it is in the range of an int64, or a number with a point of so
// few digits that a float64 holds them as an integer. Most numbers are one of these.
func parseDecimal(number []byte) (d decimal, ok bool) {
	const (
		mostInteger = 18 // digits
		mostDecimal = 15
	)
	most := mostInteger
	count, fraction := 0, false
	for i, c := range number {
		switch {
		case '0' <= c && c <= '9':
			if count++; count > most {
				return d, false
			}
			d.digits = d.digits*10 + int64(c-'0')
			if fraction {
				d.point++
			}
		case c == '.' && !fraction && count <= mostDecimal:
			fraction, most = true, mostDecimal
		case c == '-' && i == 0:
			d.negative = true
		default:
			return d, false
		}
	}
	if d.negative {
		d.digits = -d.digits
	}
	return d, count > 0
}

// appendLongNumber appends any other number.
func appendLongNumber(dst []byte, number string) []byte {
	if !strings.ContainsAny(number, ".eE") {
		if i, err := strconv.ParseInt(number, 10, 64); err == nil {
			return appendInt(dst, i)
		}
		if u, err := strconv.ParseUint(number, 10, 64); err == nil {
			return binary.LittleEndian.AppendUint64(append(dst, markUint64), u)
		}
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil { // out of range
		f = math.Copysign(math.MaxFloat64, f)
	}
	return appendDouble(dst, f)
}

// appendDouble appends a number with a point or an exponent.
func appendDouble(dst []byte, f float64) []byte {
	const exact = 1 << 53
	if f == math.Trunc(f) && math.Abs(f) <= exact {
		return appendInt(dst, int64(f))
	}
	return binary.LittleEndian.AppendUint64(append(dst, markNumberDouble), math.Float64bits(f))
}

// appendInt appends an integer in its shortest form.
func appendInt(dst []byte, i int64) []byte {
	switch {
	case 0 <= i && i < literals:
		return append(dst, byte(i))
	case 0 <= i && i <= math.MaxUint8:
		return append(dst, markNumberUint8, byte(i))
	case int64(int16(i)) == i:
		return binary.LittleEndian.AppendUint16(append(dst, markNumberInt16), uint16(i))
	case int64(int32(i)) == i:
		return binary.LittleEndian.AppendUint32(append(dst, markNumberInt32), uint32(i))
	}
	return binary.LittleEndian.AppendUint64(append(dst, markNumberInt64), uint64(i))
}
