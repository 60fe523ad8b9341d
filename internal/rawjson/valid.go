package rawjson

import (
	"encoding/binary"
	"math/bits"
)

const maxDepth = 10_000 // nested objects and arrays, as in encoding/json: recursion costs stack

// Valid reports whether a text is JSON.
func Valid(text []byte) bool {
	s := scanner{text: text}
	s.space()
	if !s.value(0) {
		return false
	}
	s.space()
	return s.pos == len(text)
}

// scanner steps over text that may be wrong. Its methods report whether they found what
// they are named after; after false the position is meaningless.
type scanner struct {
	text []byte
	pos  int
}

func (s *scanner) space() {
	for s.pos < len(s.text) {
		switch s.text[s.pos] {
		case ' ', '\t', '\r', '\n':
			s.pos++
		default:
			return
		}
	}
}

// skip steps over c, if c is the next byte.
func (s *scanner) skip(c byte) bool {
	if s.pos < len(s.text) && s.text[s.pos] == c {
		s.pos++
		return true
	}
	return false
}

func (s *scanner) value(depth int) bool {
	if s.pos == len(s.text) {
		return false
	}
	switch s.text[s.pos] {
	case '"':
		return s.str()
	case '{':
		return depth < maxDepth && s.list('}', depth, (*scanner).member)
	case '[':
		return depth < maxDepth && s.list(']', depth, (*scanner).value)
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	}
	return s.number()
}

// list steps over an object or array.
func (s *scanner) list(end byte, depth int, item func(*scanner, int) bool) bool {
	s.pos++
	if s.space(); s.skip(end) {
		return true
	}
	for {
		s.space()
		if !item(s, depth+1) {
			return false
		}
		if s.space(); s.skip(end) {
			return true
		}
		if !s.skip(',') {
			return false
		}
	}
}

func (s *scanner) member(depth int) bool {
	if s.pos == len(s.text) || s.text[s.pos] != '"' || !s.str() {
		return false
	}
	if s.space(); !s.skip(':') {
		return false
	}
	s.space()
	return s.value(depth)
}

func (s *scanner) word(w string) bool {
	if len(s.text)-s.pos < len(w) || string(s.text[s.pos:s.pos+len(w)]) != w {
		return false
	}
	s.pos += len(w)
	return true
}

func (s *scanner) number() bool {
	s.skip('-')
	if !s.skip('0') && !s.digits() {
		return false
	}
	if s.skip('.') && !s.digits() {
		return false
	}
	if s.skip('e') || s.skip('E') {
		if !s.skip('+') {
			s.skip('-')
		}
		return s.digits()
	}
	return true
}

func (s *scanner) digits() bool {
	from := s.pos
	for s.pos < len(s.text) && '0' <= s.text[s.pos] && s.text[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > from
}

// str steps over a string, from its opening quote.
func (s *scanner) str() bool {
	s.pos++
	for {
		s.pos = plain(s.text, s.pos)
		if s.pos == len(s.text) {
			return false
		}
		switch s.text[s.pos] {
		case '"':
			s.pos++
			return true
		case '\\':
			if !s.escape() {
				return false
			}
		default:
			return false
		}
	}
}

func (s *scanner) escape() bool {
	if s.pos++; s.pos == len(s.text) {
		return false
	}
	c := s.text[s.pos]
	s.pos++
	switch c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	case 'u':
		for range 4 {
			if s.pos == len(s.text) || !isHex(s.text[s.pos]) {
				return false
			}
			s.pos++
		}
		return true
	}
	return false
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// plain returns the position of the first byte from pos on that ends a string or is
// special in strings: a quote, a backslash or a control character.
//
// Eight bytes are tested at once, because strings are most of a document: for each of
// the three tests, the first byte that passes, if any, has its top bit set in a word of
// marks. Marks after that byte may be wrong, because subtraction borrows from byte to
// byte.
func plain(text []byte, pos int) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; pos+8 <= len(text); pos += 8 {
		w := binary.LittleEndian.Uint64(text[pos:])
		quote, slash := w^('"'*ones), w^('\\'*ones)
		marks := (w-' '*ones)&^w | (quote-ones)&^quote | (slash-ones)&^slash
		if marks &= tops; marks != 0 {
			return pos + bits.TrailingZeros64(marks)/8
		}
	}
	for pos < len(text) && text[pos] >= ' ' && text[pos] != '"' && text[pos] != '\\' {
		pos++
	}
	return pos
}
