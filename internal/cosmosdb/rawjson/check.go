package rawjson

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

const maxDepth = 10_000 // levels of objects and arrays, as in encoding/json: recursion needs stack

// Check reports whether a text is JSON in UTF-8, and the number of levels of objects and arrays.
func Check(text []byte) (levels int, ok bool) {
	s := Strict(text)
	s.Value()
	return s.levels, s.End()
}

// checkValue checks and skips the value that begins with c.
func (s *Scanner) checkValue(c byte) {
	switch c {
	case '"':
		s.checkString()
	case '{':
		s.checkObject()
	case '[':
		s.checkArray()
	case 't':
		s.checkWord("true")
	case 'f':
		s.checkWord("false")
	case 'n':
		s.checkWord("null")
	default:
		s.bad = s.bad || !s.checkNumber()
	}
}

// checkObject checks and skips an object. The depth is limited, because recursion needs stack.
func (s *Scanner) checkObject() {
	if s.depth == maxDepth {
		s.bad = true
		return
	}
	for ok := s.beginNested('{', '}'); ok; ok = s.nextItem('}') {
		if s.readKey(); s.bad {
			return
		}
		s.checkValue(s.Peek())
	}
}

func (s *Scanner) checkArray() {
	if s.depth == maxDepth {
		s.bad = true
		return
	}
	for ok := s.beginNested('[', ']'); ok; ok = s.nextItem(']') {
		s.checkValue(s.Peek())
	}
}

func (s *Scanner) checkWord(w string) {
	if len(s.text)-s.pos < len(w) || string(s.text[s.pos:s.pos+len(w)]) != w {
		s.bad = true
		return
	}
	s.pos += len(w)
}

// checkNumber checks and skips a number. JSON's grammar is stricter than strconv's: no plus sign, no leading zero, and
// digits on both sides of the point.
func (s *Scanner) checkNumber() bool {
	s.takeByte('-')
	if !s.takeByte('0') && !s.takeDigits() {
		return false
	}
	if s.takeByte('.') && !s.takeDigits() {
		return false
	}
	if s.takeByte('e') || s.takeByte('E') {
		if !s.takeByte('+') {
			s.takeByte('-')
		}
		return s.takeDigits()
	}
	return true
}

// takeByte skips c if c is the next byte, and reports whether c was skipped.
func (s *Scanner) takeByte(c byte) bool {
	if s.pos < len(s.text) && s.text[s.pos] == c {
		s.pos++
		return true
	}
	return false
}

func (s *Scanner) takeDigits() bool {
	from := s.pos
	for s.pos < len(s.text) && '0' <= s.text[s.pos] && s.text[s.pos] <= '9' {
		s.pos++
	}
	return s.pos > from
}

// checkString checks and skips a string, from its opening quote.
func (s *Scanner) checkString() {
	s.pos++
	for !s.bad {
		if s.pos = plain(s.text, s.pos); s.pos == len(s.text) {
			break
		}
		switch c := s.text[s.pos]; {
		case c == '"':
			s.pos++
			return
		case c == '\\':
			s.bad = !s.checkEscape()
		case c >= utf8.RuneSelf:
			r, n := utf8.DecodeRune(s.text[s.pos:])
			s.bad = r == utf8.RuneError && n == 1
			s.pos += n
		default: // a control character
			s.bad = true
		}
	}
	s.bad = true
}

// checkEscape checks and skips an escape in a string. As in encoding/json, half of a surrogate pair is accepted; such a
// half is read as U+FFFD.
func (s *Scanner) checkEscape() bool {
	if s.pos++; s.pos == len(s.text) {
		return false
	}
	c := s.text[s.pos]
	s.pos++
	switch c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	case 'u':
		_, ok := hex4(s.text[s.pos:])
		s.pos += 4
		return ok
	}
	return false
}

// plain returns the position of the first byte, from pos onward, that ends a string or is special in strings: a
// quote, a backslash, a control character, or a non-ASCII byte.
//
// plain tests eight bytes at once, because strings are most of a document. For each of the four tests, the first byte
// that passes, if any, has its top bit set in a word of marks. Marks after that byte may be wrong, because
// subtraction borrows from byte to byte.
func plain(text []byte, pos int) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; pos+8 <= len(text); pos += 8 {
		w := binary.LittleEndian.Uint64(text[pos:])
		quote, slash := w^('"'*ones), w^('\\'*ones)
		marks := w | (w - ' '*ones) | (quote - ones) | (slash - ones)
		if marks &= tops; marks != 0 {
			return pos + bits.TrailingZeros64(marks)/8
		}
	}
	for pos < len(text) && text[pos] >= ' ' && text[pos] < utf8.RuneSelf && text[pos] != '"' && text[pos] != '\\' {
		pos++
	}
	return pos
}
