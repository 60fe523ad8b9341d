package sql

import (
	"bytes"
	"math"
	"slices"
	"strconv"

	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// Values: JSON text decoded only as far as an expression needs.
//
// Equality, order and output have different rules. Equality compares canonical texts. Order compares the types first
// (the service documents undefined < null < false < true < numbers < strings < arrays < objects). Output repeats the
// text that a value came from, so no part is lost.

// kind is the type of a value, in the order of ORDER BY.
type kind uint8

// The kinds of value, in the order of ORDER BY. false and true are separate kinds, so comparing kinds is often enough
// to compare values.
const (
	undefined kind = iota
	null
	isFalse
	isTrue
	number
	str
	array
	object
)

// value is a JSON value, or undefined, which is the zero value. Arrays and objects are always JSON text; a number or
// a string may be text that is not decoded yet.
type value struct {
	kind    kind
	decoded bool // num or text is valid
	num     float64
	text    []byte // of a string
	raw     []byte // the JSON, if already known
}

// boolValue and the next four functions make values.
func boolValue(b bool) value {
	if b {
		return value{kind: isTrue}
	}
	return value{kind: isFalse}
}

// numberValue returns a number. NaN and infinities become undefined, because JSON cannot write them.
func numberValue(f float64) value {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return value{}
	}
	return value{kind: number, decoded: true, num: f}
}

// computedValue returns the result of an operator. Of a number that JSON cannot write, such as 1/0, the number is
// kept in the undefined value, because a query that would return it is refused; see frame.leavesOut.
func computedValue(f float64) value {
	v := numberValue(f)
	v.num = f
	return v
}

func textValue[T string | []byte](text T) value {
	return value{kind: str, decoded: true, text: []byte(text)}
}

func compositeValue(raw []byte) value {
	if raw[0] == '[' {
		return value{kind: array, raw: raw}
	}
	return value{kind: object, raw: raw}
}

// rawValue returns the value of a JSON text without surrounding white space. The first byte shows the kind; the rest
// is not checked, because the store keeps only valid JSON.
func rawValue(b []byte) value {
	if len(b) == 0 {
		return value{}
	}
	switch b[0] {
	case '"':
		return value{kind: str, raw: b}
	case '{':
		return value{kind: object, raw: b}
	case '[':
		return value{kind: array, raw: b}
	case 't':
		return value{kind: isTrue}
	case 'f':
		return value{kind: isFalse}
	case 'n':
		return value{kind: null}
	}
	return value{kind: number, raw: b}
}

// documentValue is rawValue for a text that may have surrounding white space.
func documentValue(doc []byte) value { return rawValue(bytes.Trim(doc, " \t\r\n")) }

// float returns the number. As in the service, a text outside the range of a double is infinite.
func (v value) float() float64 {
	if v.decoded {
		return v.num
	}
	f, err := strconv.ParseFloat(string(v.raw), 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0
	}
	return f
}

// bytes returns the text of a string. bytes makes a copy only if the text has escapes.
func (v value) bytes() []byte {
	if v.decoded {
		return v.text
	}
	return rawjson.Unquote(v.raw)
}

// decode decodes a number or a string once, so repeated use is cheap: for memos and parameters.
func (v value) decode() value {
	switch v.kind {
	case number:
		v.num = v.float()
	case str:
		v.text = v.bytes()
	default:
		return v
	}
	v.decoded = true
	return v
}

func (v value) isBool() bool { return v.kind == isTrue || v.kind == isFalse }

// asWritten reports whether output repeats the value's original text. This is so for strings, arrays and objects, for
// whole numbers of 64 bits, and for numbers outside the range of a double. Any other number is written as a double of
// the service (0.0 is 0, and 1e2 is 100), because clients read counts and keys in this form.
// Whole numbers of 64 bits keep digits for which a double has no room. Numbers within documents, arrays and objects
// keep their text.
func (v value) asWritten() bool {
	if v.kind != number || v.raw == nil {
		return v.raw != nil
	}
	return isInt64(v.raw) && string(v.raw) != "-0" || math.IsInf(v.float(), 0)
}

// isInt64 reports whether a number's text is a whole number of 64 bits, without a fraction or an exponent.
func isInt64(number []byte) bool {
	const sure = 18 // numbers with at most so many digits and a sign always fit in 64 bits
	if bytes.ContainsAny(number, ".eE") {
		return false
	}
	if len(number) <= sure {
		return true
	}
	_, err := strconv.ParseInt(string(number), 10, 64)
	return err == nil
}

// appendJSON appends the value as JSON. For undefined, nothing is appended.
func (v value) appendJSON(dst []byte) []byte {
	if v.asWritten() {
		return append(dst, v.raw...)
	}
	switch v.kind {
	case null:
		return append(dst, "null"...)
	case isTrue:
		return append(dst, "true"...)
	case isFalse:
		return append(dst, "false"...)
	case number:
		return appendDouble(dst, v.float())
	case str:
		return rawjson.AppendString(dst, v.text)
	}
	return dst
}

// appendDouble appends a number as the service writes doubles in rows: whole numbers of 64 bits with all digits, others
// with 15 digits if these are the same number, otherwise with 17.
func appendDouble(dst []byte, f float64) []byte {
	const few, all = 15, 17
	if f == math.Trunc(f) && math.Abs(f) < 1<<63 {
		return rawjson.AppendNumber(dst, f)
	}
	short := strconv.AppendFloat(dst, f, 'g', few, 64)
	if same, err := strconv.ParseFloat(string(short[len(dst):]), 64); err == nil && same == f {
		return short
	}
	return strconv.AppendFloat(dst, f, 'g', all, 64)
}

// plainJSON is [value.appendJSON] with numbers as JavaScript writes them.
func (v value) plainJSON() []byte {
	if v.kind == number && !v.asWritten() {
		return rawjson.AppendNumber(nil, v.float())
	}
	return v.appendJSON(nil)
}

// maxCanonicalDepth limits how deep two values are compared. As in the service, documents have at most 128 levels;
// twice that leaves room for arrays and objects that a query makes from them.
const maxCanonicalDepth = 256

// appendCanonical appends the canonical text of a value. Two values are equal if and only if their canonical texts
// are: members are sorted, and numbers and strings are written in a single way. Values below the depth limit all
// count as equal.
func appendCanonical(dst []byte, v value, depth int) []byte {
	switch {
	case v.kind == undefined:
		return append(dst, '!')
	case depth > maxCanonicalDepth:
		return append(dst, '?')
	case v.kind == number:
		return rawjson.AppendNumber(dst, v.float())
	case v.kind == str:
		return rawjson.AppendString(dst, v.bytes())
	case v.kind == array:
		return appendCanonicalArray(dst, v, depth)
	case v.kind == object:
		return appendCanonicalObject(dst, v, depth)
	}
	return value{kind: v.kind}.appendJSON(dst)
}

// appendCanonicalArray keeps the order of elements, because the order matters.
func appendCanonicalArray(dst []byte, v value, depth int) []byte {
	dst = append(dst, '[')
	for raw := range rawjson.Elements(v.raw) {
		dst = append(appendCanonical(dst, rawValue(raw), depth+1), ',')
	}
	return append(dst, ']')
}

// appendCanonicalObject sorts the members, because their order does not matter.
func appendCanonicalObject(dst []byte, v value, depth int) []byte {
	var members [][]byte
	for _, member := range rawjson.Distinct(v.raw) {
		name := append(rawjson.AppendString(nil, member.Key.Name()), ':')
		members = append(members, appendCanonical(name, rawValue(member.Value), depth+1))
	}
	slices.SortFunc(members, bytes.Compare)
	dst = append(dst, '{')
	dst = append(dst, bytes.Join(members, []byte{','})...)
	return append(dst, '}')
}

// equal reports whether two defined values are equal. equal compares arrays and objects in depth.
func equal(left, right value) bool {
	if left.kind != right.kind {
		return false
	}
	switch left.kind {
	case number:
		return left.float() == right.float()
	case str:
		return bytes.Equal(left.bytes(), right.bytes())
	case array, object:
		return bytes.Equal(appendCanonical(nil, left, 0), appendCanonical(nil, right, 0))
	}
	return true
}

// order compares values for ORDER BY, MIN and MAX: by kind first, strings by their UTF-8 bytes, and arrays and
// objects by a hash, because the service has no other order for them.
func order(left, right value) int {
	if left.kind != right.kind {
		return int(left.kind) - int(right.kind)
	}
	switch left.kind {
	case number:
		x, y := left.float(), right.float()
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
	case str:
		return bytes.Compare(left.bytes(), right.bytes())
	case array, object:
		return bytes.Compare(left.distinct(), right.distinct())
	}
	return 0
}

// distinct returns the hash of an array or object. A key of ORDER BY has this hash already.
func (v value) distinct() []byte {
	if v.decoded {
		return v.text
	}
	return distinctHash(v).bytes()
}
