package rawjson

import (
	"bytes"
	"iter"
)

// Span is the place of a part of a text. The zero Span means an absent part, because no value begins and ends at 0.
type Span struct{ From, To int }

// Of returns the part of the text, or nil for the zero Span.
func (s Span) Of(text []byte) []byte {
	if s.To == 0 {
		return nil
	}
	return text[s.From:s.To]
}

// Key is the name of a member as written: with quotes, and possibly with escapes.
type Key []byte

// Name returns the name without quotes and escapes; see [Unquote].
func (k Key) Name() []byte { return Unquote(k) }

// Is reports whether a member has this name, in any spelling.
func (k Key) Is(name string) bool { return string(k.Name()) == name }

// Scanner walks through a text. At a byte that cannot be JSON, a Scanner stops for good.
type Scanner struct {
	text   []byte
	pos    int
	strict bool // check each byte; otherwise skip values by their brackets and quotes
	bad    bool
	depth  int // number of objects and arrays around the position
	levels int // largest depth so far
}

// Scan returns a Scanner beginning at a value in a text which need not be checked, for example a text checked before,
// or one from the service. Skipped values may be invalid inside.
func Scan(text []byte, from int) Scanner { return Scanner{text: text, pos: from} }

// Strict returns a Scanner checking every byte of a text on the way.
func Strict(text []byte) Scanner { return Scanner{text: text, strict: true} }

// Pos returns the position, which is the number of bytes passed so far.
func (s *Scanner) Pos() int { return s.pos }

// Levels returns the largest number of levels of objects and arrays so far.
func (s *Scanner) Levels() int { return s.levels }

// Bad reports whether the scanner has met a byte that cannot be JSON, or the end of the text within a value.
// [Scanner.Pos] is then near this byte.
func (s *Scanner) Bad() bool { return s.bad }

// Fail makes the scanner bad, because the text is JSON but not in the form needed by the caller.
func (s *Scanner) Fail() { s.bad = true }

// End reports whether the text has no fault and only white space is left.
func (s *Scanner) End() bool { return !s.bad && s.Peek() == 0 && s.pos == len(s.text) }

// Peek skips white space and returns the next byte, which shows the kind of the value; 0 at the end.
func (s *Scanner) Peek() byte {
	for ; s.pos < len(s.text); s.pos++ {
		switch c := s.text[s.pos]; c {
		case ' ', '\n', '\t', '\r':
		default:
			return c
		}
	}
	return 0
}

// Object yields the members of the next object: the place where the member begins, and its name. The scanner is then
// before the value. The caller may skip the value with [Scanner.Value] or walk into the value; otherwise Object skips
// the value. If the next value is not an object, the scanner becomes bad.
func (s *Scanner) Object() iter.Seq2[int, Key] {
	return func(yield func(int, Key) bool) {
		for ok := s.beginNested('{', '}'); ok; ok = s.nextItem('}') {
			from := s.pos
			key := s.readKey()
			before := s.pos
			if s.bad || !yield(from, key) {
				return
			}
			if s.pos == before {
				s.Value()
			}
		}
	}
}

// Array yields the elements of the next array by index, in the same way as [Scanner.Object] yields members.
func (s *Scanner) Array() iter.Seq[int] {
	return func(yield func(int) bool) {
		i := 0
		for ok := s.beginNested('[', ']'); ok; ok = s.nextItem(']') {
			before := s.pos
			if !yield(i) {
				return
			}
			if s.pos == before {
				s.Value()
			}
			i++
		}
	}
}

// Value skips the next value and returns its place, or the zero Span if there is no value.
func (s *Scanner) Value() Span {
	c := s.Peek()
	from := s.pos
	if s.strict {
		s.checkValue(c)
	} else {
		s.skipValue(c)
	}
	if s.bad {
		return Span{}
	}
	return Span{from, s.pos}
}

// beginNested enters an object or array, and reports whether there is an item.
func (s *Scanner) beginNested(first, last byte) bool {
	if s.bad || s.Peek() != first {
		return s.fail()
	}
	s.pos++
	s.depth++
	s.levels = max(s.levels, s.depth)
	if s.Peek() != last {
		return s.pos < len(s.text) || s.fail()
	}
	return s.leaveNested()
}

// nextItem moves to the next item, and reports whether there is an item.
func (s *Scanner) nextItem(last byte) bool {
	if s.bad {
		return false
	}
	switch s.Peek() {
	case last:
		return s.leaveNested()
	case ',':
		s.pos++
		s.Peek()
		return s.pos < len(s.text) || s.fail()
	}
	return s.fail()
}

// leaveNested leaves an object or array, and returns false: there is no next item.
func (s *Scanner) leaveNested() bool {
	s.pos++
	s.depth--
	return false
}

// fail records a fault, and returns false: there is no next item.
func (s *Scanner) fail() bool {
	s.bad = true
	return false
}

// readKey reads a name, and skips the colon and white space.
func (s *Scanner) readKey() Key {
	from := s.pos
	switch {
	case s.Peek() != '"':
		s.bad = true
	case s.strict:
		s.checkString()
	default:
		s.skipString()
	}
	to := s.pos
	if s.bad || s.Peek() != ':' {
		s.bad = true
		return nil
	}
	s.pos++
	s.Peek()
	return Key(s.text[from:to])
}

// skipValue skips the value beginning with c.
func (s *Scanner) skipValue(c byte) {
	switch c {
	case '"':
		s.skipString()
	case '{', '[':
		s.skipNested()
	default:
		from := s.pos
		for s.pos < len(s.text) && !isEnd(s.text[s.pos]) {
			s.pos++
		}
		s.bad = s.bad || s.pos == from
	}
}

// isEnd reports whether a byte ends a number or a word.
func isEnd(c byte) bool {
	switch c {
	case ',', '}', ']', ' ', '\n', '\t', '\r', ':', '"', '{', '[':
		return true
	}
	return false
}

// shortString is the length up to which a string is searched byte by byte, because for shorter strings, such as names
// and most values, a call of [bytes.IndexByte] does not pay off.
const shortString = 16

// skipString skips a string, from its opening quote. A quote ends the string unless an odd number of backslashes
// precedes the quote.
func (s *Scanner) skipString() {
	begin := s.pos + 1
	end := begin
	for most := min(begin+shortString, len(s.text)); end < most && s.text[end] != '\\'; end++ {
		if s.text[end] == '"' {
			s.pos = end + 1
			return
		}
	}
	for {
		i := bytes.IndexByte(s.text[end:], '"')
		if i < 0 {
			s.pos, s.bad = len(s.text), true
			return
		}
		end += i
		slashes := end
		for slashes > begin && s.text[slashes-1] == '\\' {
			slashes--
		}
		if end++; (end-1-slashes)%2 == 0 {
			s.pos = end
			return
		}
	}
}

// skipNested skips an object or array without recursion, so depth needs no stack.
func (s *Scanner) skipNested() {
	for depth := 0; s.pos < len(s.text) && !s.bad; s.pos++ {
		switch s.text[s.pos] {
		case '"':
			s.skipString()
			s.pos--
		case '{', '[':
			depth++
			s.levels = max(s.levels, s.depth+depth)
		case '}', ']':
			if depth--; depth == 0 {
				s.pos++
				return
			}
		}
	}
	s.bad = true
}
