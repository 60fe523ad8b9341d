package sql

import (
	"bytes"
	"math"
	"slices"
	"strconv"

	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// Values: JSON text that is decoded no further than an expression needs.
//
// Equality, order and output have rules of their own. Equality is by canonical text, order
// by type first (the service documents undefined < null < false < true < numbers < strings
// < arrays < objects), and output repeats the text that a value came from, so that nothing
// is lost of it.

// kind is the type of a value, in the order of ORDER BY.
type kind uint8

// The kinds of value, in the order of ORDER BY: false and true are kinds of their own, so
// that the order of kinds is the order of values wherever no more is to be compared.
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

// value is a JSON value, or undefined, which is the zero value. Arrays and objects are JSON
// text only; a number or a string may be text that nobody has decoded yet.
type value struct {
	kind    kind
	decoded bool // num or text holds
	num     float64
	text    []byte // of a string
	raw     []byte // the JSON, if there is one already
}

// boolValue and the four after it make values.
func boolValue(b bool) value {
	if b {
		return value{kind: isTrue}
	}
	return value{kind: isFalse}
}

// numberValue is undefined for NaN and the infinities, which JSON cannot write.
func numberValue(f float64) value {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return value{}
	}
	return value{kind: number, decoded: true, num: f}
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

// rawValue is the value of JSON text without white space around it. Its kind is in the
// first byte; the rest is trusted, because the store keeps valid JSON only.
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

// documentValue is rawValue of text that may have white space around it.
func documentValue(doc []byte) value { return rawValue(bytes.Trim(doc, " \t\r\n")) }

// float is the number. Text beyond the range of a double is infinite, as for the service.
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

// bytes is the text of a string, without a copy unless it has escapes.
func (v value) bytes() []byte {
	if v.decoded {
		return v.text
	}
	return rawjson.Unquote(v.raw)
}

// decode makes repeated use of a number or a string cheap: in a memo, and for parameters.
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

// asWritten reports whether the value is repeated in the text that it came from. So are all
// but numbers with a fraction or an exponent that stand alone: the service's numbers are
// doubles, written short (0.0 is 0, and 1e2 is 100), and clients read counts and keys by
// that. Whole numbers of 64 bits keep digits that a double has no room for, and so do the
// numbers within documents, arrays and objects.
func (v value) asWritten() bool {
	if v.kind != number || v.raw == nil {
		return v.raw != nil
	}
	return isInt64(v.raw) && string(v.raw) != "-0" || math.IsInf(v.float(), 0)
}

// isInt64 reports a whole number of 64 bits, without a fraction or an exponent.
func isInt64(number []byte) bool {
	const sure = 18 // digits and a sign that are of 64 bits whichever they are
	if bytes.ContainsAny(number, ".eE") {
		return false
	}
	if len(number) <= sure {
		return true
	}
	_, err := strconv.ParseInt(string(number), 10, 64)
	return err == nil
}

// appendJSON appends the value as JSON. Undefined appends nothing.
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
		if f := v.float(); math.Abs(f) >= 1<<63 { // of more than 64 bits
			return strconv.AppendFloat(dst, f, 'e', -1, 64)
		}
		return rawjson.AppendNumber(dst, v.float())
	case str:
		return rawjson.AppendString(dst, v.text)
	}
	return dst
}

// maxCanonicalDepth bounds how deep two values are compared. Documents have at most 128
// levels, as in the service; twice that leaves room for the arrays and objects that a query
// makes of them.
const maxCanonicalDepth = 256

// appendCanonical appends a text that two values have in common if and only if they are
// equal: members sorted, numbers and strings written in a single way. Below the bound
// everything counts as equal.
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

// appendCanonicalArray keeps the order of elements, which matters.
func appendCanonicalArray(dst []byte, v value, depth int) []byte {
	dst = append(dst, '[')
	for raw := range rawjson.Elements(v.raw) {
		dst = append(appendCanonical(dst, rawValue(raw), depth+1), ',')
	}
	return append(dst, ']')
}

// appendCanonicalObject sorts the members, whose order does not matter.
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

// equal reports whether two defined values are the same, arrays and objects in depth.
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

// order compares for ORDER BY, MIN and MAX: by kind first, strings by their UTF-8 bytes,
// arrays and objects by a hash, because the service has no other order for them.
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

// distinct is the hash of an array or object; a key of ORDER BY has it ready.
func (v value) distinct() []byte {
	if v.decoded {
		return v.text
	}
	return distinctHash(v).bytes()
}
