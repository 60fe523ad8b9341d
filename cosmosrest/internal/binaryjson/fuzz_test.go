package binaryjson

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// FuzzBinary reads bodies: none causes a panic, each that is read is read as the obvious reader reads it, and comes
// back from being written.
func FuzzBinary(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add(parseHex(f, v.Binary))
	}
	f.Add(Append(nil, []byte(`{"id":"1","n":[1,-2,300,70000,5000000000,1.5,"é\n",null,true,{"a":{}}]}`)))
	f.Fuzz(func(t *testing.T, body []byte) {
		text, err := AppendText(nil, body, limit/4)
		damaged, ok := errors.AsType[*Error](err)
		if errors.Is(err, ErrTooLong) {
			return
		}
		if err != nil && (!ok || damaged.At < 0 || damaged.At > len(body)) {
			t.Fatalf("%v: want a byte of the body, which has %d", err, len(body))
		}
		o := obvious{body: body}
		value, whole := o.read()
		if whole != (err == nil) && !o.deep {
			t.Fatalf("% X: %v, the obvious reader reads it: %v", body, err, whole)
		}
		if err != nil || !whole {
			return
		}
		if _, ok := rawjson.Check(text); !ok {
			t.Fatalf("% X: %q is not JSON", body, text)
		}
		if got := parsed(t, text); !reflect.DeepEqual(got, value) {
			t.Fatalf("% X is %s: want %v", body, text, value)
		}
		if again := textOf(t, Append(nil, text)); !reflect.DeepEqual(parsed(t, again), value) {
			t.Fatalf("% X is %s, written and read %s", body, text, again)
		}
	})
}

// FuzzText writes texts: each that is JSON comes back with the same value.
func FuzzText(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add([]byte(v.JSON))
	}
	f.Add([]byte(` { "a\u0000\"" : [ -0.0 , 1e400, 1e-400, "\ud83d\ude00\ud800", 18446744073709551616 ] } `))
	f.Fuzz(func(t *testing.T, text []byte) {
		levels, ok := rawjson.Check(text)
		if !ok || levels > 1000 || len(text) > limit/8 {
			Append(nil, text) // no panic
			return
		}
		got, err := AppendText(nil, Append(nil, text), 8*limit)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		wantSame(t, got, text)
	})
}

// obvious reads a body in the obvious way: one function for each family of markers, values instead of text, and panics
// instead of errors. It shares no code with the decoder.
type obvious struct {
	body []byte
	deep bool // more levels than this reader wants to have
}

// read returns the value of the body, as parsed has it, and whether the body is whole.
func (o *obvious) read() (value any, whole bool) {
	defer func() {
		if recover() != nil {
			whole = false
		}
	}()
	if o.body[0] != 0x80 {
		return nil, false
	}
	value, end := o.value(1, len(o.body), 0)
	return value, end == len(o.body)
}

// number reads an unsigned integer.
func (o *obvious) number(at, width, end int) int {
	n := 0
	for i, b := range o.body[at : at+width] {
		n |= int(b) << (8 * i)
	}
	if at+width > end {
		panic("beyond the end")
	}
	return n
}

func (o *obvious) value(at, end, depth int) (any, int) {
	if at >= end || depth > 2000 {
		o.deep = depth > 2000
		panic("nothing there, or too deep")
	}
	switch m := int(o.body[at]); {
	case m < 0x20:
		return float64(m), at + 1
	case m < 0xC7:
		return o.text(at, end)
	case m < 0xD0 || m >= 0xD7 && m < 0xDD:
		return o.scalar(m, at+1, end)
	case m == 0xD0:
		return nil, at + 1
	case m == 0xD1 || m == 0xD2:
		return m == 0xD2, at + 1
	case m == 0xD3:
		return o.guid(o.body[at+1 : min(at+17, end)]), at + 17
	case m >= 0xDD && m <= 0xDF:
		width := 1 << (m - 0xDD)
		n := o.number(at+1, width, end)
		from := at + 1 + width
		return base64.StdEncoding.EncodeToString(o.body[:end:end][from : from+n]), from + n
	case m >= 0xE0 && m < 0xF0:
		return o.container(m, at, end, depth)
	case m >= 0xF0 && m < 0xF4:
		return o.numbers(m, at+1, end)
	}
	panic("no value")
}

func (o *obvious) guid(b []byte) string {
	return fmt.Sprintf("%08x-%04x-%04x-%x-%x", binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint16(b[4:]),
		binary.LittleEndian.Uint16(b[6:]), b[8:10], b[10:16])
}

func (o *obvious) scalar(m, at, end int) (any, int) {
	read := func(into any) int {
		width := binary.Size(into)
		if _, err := binary.Decode(o.body[:end:end][at:at+width], binary.LittleEndian, into); err != nil {
			panic(err)
		}
		return at + width
	}
	var f float64
	numbers := map[int]any{
		0xC7: new(uint64), 0xC8: new(uint8), 0xC9: new(int16), 0xCA: new(int32), 0xCB: new(int64), 0xCC: new(float64),
		0xCD: new(float32), 0xCE: new(float64), 0xD7: new(uint8), 0xD8: new(int8), 0xD9: new(int16), 0xDA: new(int32),
		0xDB: new(int64), 0xDC: new(uint32),
	}
	into := numbers[m] // nil for CF
	next := read(into)
	f = reflect.ValueOf(into).Elem().Convert(reflect.TypeFor[float64]()).Float()
	if math.IsNaN(f) || math.IsInf(f, 0) {
		panic("not finite")
	}
	return f + 0, next
}

func (o *obvious) numbers(m, at, end int) (any, int) {
	width := 1 + m%2
	nested := m >= 0xF2
	if nested {
		if int(o.body[:end:end][at]) != m-2 {
			panic("wrong inner marker")
		}
		at++
	}
	item := int(o.body[:end:end][at])
	if item != 0xCD && item != 0xCE && (item < 0xD7 || item > 0xDC) {
		panic("wrong item marker")
	}
	count, rows := o.number(at+1, width, end), 1
	at += 1 + width
	if nested {
		rows = o.number(at, width, end)
		at += width
	}
	all := []any{json.Delim('[')}
	for range rows {
		row := []any{json.Delim('[')}
		for range count {
			var v any
			v, at = o.scalar(item, at, end)
			row = append(row, v)
		}
		if !nested {
			return row, at
		}
		all = append(all, row)
	}
	return all, at
}

func (o *obvious) container(m, at, end, depth int) (any, int) {
	object, form := m >= 0xE8, (m-0xE0)%8
	all, most := []any{json.Delim('[')}, -1
	if object {
		all[0] = json.Delim('{')
	}
	at++
	switch {
	case form < 2:
		most = form
	default:
		width := 1 << ((form - 2) % 3)
		size := o.number(at, width, end)
		at += width
		if form >= 5 {
			most = o.number(at, width, end)
			at += width
		}
		if at+size > end {
			panic("beyond the end")
		}
		end = at + size
	}
	for i := 0; form < 2 && i < most || form >= 2 && at < end; i++ {
		var v any
		name := ""
		if object {
			name, at = o.text(at, end)
		}
		if v, at = o.value(at, end, depth+1); object {
			v = member{name, v}
		}
		all = append(all, v)
	}
	if form >= 5 && len(all)-1 != most {
		panic("wrong count")
	}
	return all, at
}

func (o *obvious) text(at, end int) (string, int) {
	b := o.body[:end:end]
	m := int(b[at])
	at++
	plain := func(from, n int) (string, int) {
		if s := string(b[from : from+n]); utf8.ValidString(s) {
			return s, from + n
		}
		panic("not UTF-8")
	}
	switch {
	case m >= 0x20 && m < 0x40:
		return dictionary[m-0x20], at
	case m >= 0x80 && m < 0xC0:
		return plain(at, m-0x80)
	case m >= 0xC0 && m < 0xC3:
		width := 1 << (m - 0xC0)
		return plain(at+width, o.number(at, width, end))
	case m >= 0xC3 && m < 0xC7:
		width := m - 0xC2
		to := o.number(at, width, end)
		if target := o.body[to]; to == 0 || target >= 0xC3 && target <= 0xC6 {
			panic("a reference to no string")
		}
		s, _ := o.text(to, len(o.body))
		return s, at + width
	case m >= 0x75 && m <= 0x77:
		s := nibbles(b[at:at+16], "0123456789abcdef")
		s = s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
		return []string{s, strings.ToUpper(s), `"` + s + `"`}[m-0x75], at + 16
	case m >= 0x71 && m <= 0x74:
		return o.base64(m, at, end)
	case m >= 0x78 && m <= 0x7A:
		n := o.number(at, 1, end)
		s := nibbles(b[at+1:at+1+(n+1)/2], []string{"0123456789abcdef", "0123456789ABCDEF", " 0123456789:-.TZ"}[m-0x78])
		if n%2 == 1 && b[at+(n+1)/2] > 0xF {
			panic("one character too many")
		}
		return s[:n], at + 1 + (n+1)/2
	case m >= 0x7B && m <= 0x7F:
		return o.packed(m, at, end)
	}
	panic("no string")
}

func nibbles(b []byte, digits string) (s string) {
	for _, c := range b {
		s += string(digits[c&15]) + string(digits[c>>4])
	}
	return s
}

func (o *obvious) base64(m, at, end int) (string, int) {
	width := 1 + (m-0x71)%2
	groups := o.number(at, width, end)
	padding, left := o.number(at+width, 1, end), 0
	if padding > 2 {
		padding = 255 - padding
		left = padding
	}
	if padding > 2 {
		panic("wrong padding")
	}
	from := at + width + 1
	raw := o.body[:end:end][from : from+3*groups-padding]
	encoding := base64.StdEncoding
	if m >= 0x73 {
		encoding = base64.URLEncoding
	}
	s := encoding.EncodeToString(raw)
	return s[:len(s)-left], from + len(raw)
}

func (o *obvious) packed(m, at, end int) (string, int) {
	width, size := min(7, m-0x77), 1+m/0x7F
	n := o.number(at, size, end)
	at += size
	base := 0
	if m < 0x7E {
		base = o.number(at, 1, end)
		at++
	}
	raw := o.body[:end:end][at : at+(n*width+7)/8]
	s := make([]byte, n)
	for i := range n {
		c := base
		for bit := range width {
			place := i*width + bit
			c += int(raw[place/8]>>(place%8)&1) << bit
		}
		if c > 127 {
			panic("not ASCII")
		}
		s[i] = byte(c)
	}
	return string(s), at + len(raw)
}
