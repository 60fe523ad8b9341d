package wire

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/internal/epk"
)

// Partition keys as they travel, in a header. A scanner of its own reads them, because
// clients written in Go quote strings as Go does, which encoding/json refuses.

// ParseKey reads a partition key: a JSON array with a component for each level, {} for
// undefined. The escapes of Go, \a, \x7f and \U0001f600, are read too.
func ParseKey(text string) (changefeed.PartitionKey, error) {
	if len(text) > maxKeyText {
		return "", BadRequest("partition key has %d bytes: want at most %d", len(text), maxKeyText)
	}
	if _, plain := epk.PlainString(text); plain {
		return changefeed.PartitionKey(text), nil
	}
	s := keyScanner{text: text}
	components, ok := s.array()
	if !ok {
		return "", BadRequest("partition key is %q, which is wrong at byte %d: want a JSON array such as [\"London\"], one component for each path, {} for undefined", text, s.pos)
	}
	return changefeed.Key(components...), nil
}

// keyScanner reads the components of a key.
type keyScanner struct {
	text string
	pos  int // of what is read next, or of what is wrong
}

// array reads the whole key.
func (s *keyScanner) array() (components []any, ok bool) {
	if !s.skip('[') {
		return nil, false
	}
	if s.skip(']') {
		return nil, s.atEnd()
	}
	for {
		v, ok := s.component()
		if !ok {
			return nil, false
		}
		components = append(components, v)
		if s.skip(']') {
			return components, s.atEnd()
		}
		if !s.skip(',') {
			return nil, false
		}
	}
}

// blank steps over white space.
func (s *keyScanner) blank() {
	for s.pos < len(s.text) && strings.IndexByte(" \t\r\n", s.text[s.pos]) >= 0 {
		s.pos++
	}
}

// skip steps over white space and then a byte, if it is there.
func (s *keyScanner) skip(c byte) bool {
	s.blank()
	if s.pos == len(s.text) || s.text[s.pos] != c {
		return false
	}
	s.pos++
	return true
}

// atEnd reports whether nothing but white space follows.
func (s *keyScanner) atEnd() bool {
	s.blank()
	return s.pos == len(s.text)
}

// component reads a scalar, or {} for undefined. Numbers stay text: their digits decide the
// hash.
func (s *keyScanner) component() (any, bool) {
	if s.skip('"') {
		return s.str()
	}
	if s.skip('{') {
		return changefeed.Undefined, s.skip('}')
	}
	end := s.pos
	for end < len(s.text) && strings.IndexByte(" \t\r\n,]", s.text[end]) < 0 {
		end++
	}
	var v any
	switch word := s.text[s.pos:end]; {
	case word == "null":
	case word == "true" || word == "false":
		v = word == "true"
	case word != "" && strings.IndexByte("-0123456789", word[0]) >= 0 && json.Valid([]byte(word)):
		v = json.Number(word)
	default:
		return nil, false
	}
	s.pos = end
	return v, true
}

// str reads a string after its opening quote.
func (s *keyScanner) str() (string, bool) {
	var b strings.Builder
	for s.pos < len(s.text) {
		c := s.text[s.pos]
		switch {
		case c == '"':
			s.pos++
			return b.String(), true
		case c == '\\':
			r, ok := s.escape()
			if !ok {
				return "", false
			}
			b.WriteRune(r) // U+FFFD where r is half of a pair
		case c < utf8.RuneSelf:
			b.WriteByte(c)
			s.pos++
		default:
			r, n := utf8.DecodeRuneInString(s.text[s.pos:])
			if r == utf8.RuneError && n == 1 {
				return "", false
			}
			b.WriteString(s.text[s.pos : s.pos+n])
			s.pos += n
		}
	}
	return "", false
}

// escapes are those of one letter, of JSON and of Go.
var escapes = map[byte]rune{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'a': '\a', 'v': '\v',
}

// escape reads an escape, or two that are a surrogate pair.
func (s *keyScanner) escape() (rune, bool) {
	if s.pos+1 == len(s.text) {
		return 0, false
	}
	letter := s.text[s.pos+1]
	if r, ok := escapes[letter]; ok {
		s.pos += 2
		return r, true
	}
	r, ok := s.hex()
	switch {
	case !ok:
		return 0, false
	case letter == 'x' && r >= utf8.RuneSelf: // a byte that was no UTF-8, and is none in the body
		return utf8.RuneError, true
	case letter == 'u' && utf16.IsSurrogate(r) && strings.HasPrefix(s.text[s.pos:], `\u`):
		mark := s.pos
		low, ok := s.hex()
		if pair := utf16.DecodeRune(r, low); ok && pair != utf8.RuneError {
			return pair, true
		}
		s.pos = mark
	}
	return r, true
}

// hex reads an escape of hexadecimal digits.
func (s *keyScanner) hex() (rune, bool) {
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s.text[s.pos+1]]
	from := s.pos + 2
	if digits == 0 || from+digits > len(s.text) {
		return 0, false
	}
	n, err := strconv.ParseUint(s.text[from:from+digits], 16, 32)
	if err != nil || n > utf8.MaxRune {
		return 0, false
	}
	s.pos = from + digits
	return rune(n), true
}
