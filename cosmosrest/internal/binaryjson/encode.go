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

// Append appends the body of a JSON text. The text must be JSON, as rawjson.Check accepts it; of any other text the
// result says nothing.
func Append(dst, text []byte) []byte {
	var room [moved]int
	open := room[:0] // the place of the marker of each open container
	out := append(dst, preamble)
	for pos := 0; pos < len(text); {
		switch c := text[pos]; {
		case c == '"':
			out, pos = appendString(out, text, pos)
		case c == ',' || c == ':' || c <= ' ':
			pos++
		case c == '-' || c <= '9':
			out, pos = appendNumber(out, text, pos)
		case c == '{':
			open = append(open, len(out))
			out = begin(out, markObject1, len(open))
			pos++
		case c == '[':
			open = append(open, len(out))
			out = begin(out, markArray1, len(open))
			pos++
		case (c == '}' || c == ']') && len(open) > 0:
			last := len(open) - 1
			out = end(out, open[last], len(open))
			open = open[:last]
			pos++
		default:
			out, pos = appendWord(out, c, pos)
		}
	}
	return out
}

// appendWord appends true, false or null by its first letter, and returns the place behind the word.
func appendWord(out []byte, letter byte, pos int) ([]byte, int) {
	switch letter {
	case 't':
		return append(out, markTrue), pos + len("true")
	case 'f':
		return append(out, markFalse), pos + len("false")
	}
	return append(out, markNull), pos + len("null")
}

// begin begins a container with the marker for a length of one byte. level counts the open containers, with this one.
func begin(out []byte, marker byte, level int) []byte {
	if level <= moved {
		return append(out, marker, 0)
	}
	return append(out, marker+markArray4-markArray1, 0, 0, 0, 0)
}

// end ends the container whose marker is at a place: its length is known now.
func end(out []byte, at, level int) []byte {
	if level > moved {
		binary.LittleEndian.PutUint32(out[at+1:], uint32(len(out)-at-1-4))
		return out
	}
	const head = 2 // bytes of marker and length
	switch size := len(out) - at - head; {
	case size == 0:
		out[at] -= markArray1 - markArrayEmpty
		out = out[:at+1]
	case size <= math.MaxUint8:
		out[at+1] = byte(size)
	case size <= math.MaxUint16:
		out = shift(out, at+head, 1)
		out[at] += markArray2 - markArray1
		binary.LittleEndian.PutUint16(out[at+1:], uint16(size))
	default:
		out = shift(out, at+head, 3)
		out[at] += markArray4 - markArray1
		binary.LittleEndian.PutUint32(out[at+1:], uint32(size))
	}
	return out
}

// shift moves the end of the output, from a place on, by some bytes.
func shift(out []byte, from, by int) []byte {
	var room [4]byte
	out = append(out, room[:by]...)
	copy(out[from+by:], out[from:len(out)-by])
	return out
}

// appendString appends the string at a place without its escapes, and returns the place behind the string.
func appendString(out, text []byte, pos int) ([]byte, int) {
	from := pos + 1
	if n := rawjson.PlainPrefix(text[from:]); from+n < len(text) && text[from+n] == '"' {
		return appendText(out, text[from:from+n]), from + n + 1
	}
	n := bytes.IndexByte(text[from:], '"')
	for n > 0 && escaped(text[from:from+n]) {
		next := bytes.IndexByte(text[from+n+1:], '"')
		if next < 0 {
			n = -1
			break
		}
		n += 1 + next
	}
	if n < 0 {
		return out, len(text) // not JSON
	}
	return appendText(out, rawjson.Unquote(text[pos:from+n+1])), from + n + 1
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

// appendNumber appends the number at a place, and returns the place behind the number.
func appendNumber(out, text []byte, pos int) ([]byte, int) {
	from := pos
	for pos++; pos < len(text) && inNumber(text[pos]); {
		pos++
	}
	d, ok := parseDecimal(text[from:pos])
	switch {
	case ok && d.point == 0:
		return appendInt(out, d.digits), pos
	case ok:
		return appendDouble(out, float64(d.digits)/powers[d.point]), pos
	}
	return appendLongNumber(out, string(text[from:pos])), pos
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
