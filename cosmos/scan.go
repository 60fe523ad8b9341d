package cosmos

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/millrace/changefeed"
)

// scanner walks over JSON without decoding it and finds where values begin and end. It
// takes the text to be JSON, and goes no further than this: it never reads beyond the
// end, and at a byte that cannot be JSON it stops with bad set. Pages are large, and
// answers of a service need no second validation.
type scanner struct {
	text []byte
	at   int
	bad  bool
}

// errJSON is a text that is not JSON, or not of the expected form.
var errJSON = errors.New("malformed JSON")

// member is a member of an object.
type member struct {
	name, value []byte // the name without quotes and escapes
	comma       int    // place of the comma before, -1 for the first member
	from, to    int    // place of name and value
}

// peek returns the next byte that is no space, 0 at the end.
func (s *scanner) peek() byte {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case ' ', '\n', '\t', '\r':
		default:
			return c
		}
	}
	return 0
}

// take steps over a byte that must come next.
func (s *scanner) take(c byte) bool {
	if s.bad || s.peek() != c {
		s.bad = true
		return false
	}
	s.at++
	return true
}

// object calls visit for the members of the object that comes next.
func (s *scanner) object(visit func(m member)) {
	comma := -1
	s.list('{', '}', func() {
		m := member{comma: comma, from: s.at}
		m.name = s.str()
		if len(m.name) < 2 || !s.take(':') {
			s.bad = true
			return
		}
		m.name = plainName(m.name)
		m.value = s.value()
		m.to, comma = s.at, -1
		if s.peek() == ',' {
			comma = s.at
		}
		if !s.bad {
			visit(m)
		}
	})
}

// array calls visit at each element of the array that comes next; visit steps over it.
func (s *scanner) array(visit func()) { s.list('[', ']', visit) }

func (s *scanner) list(first, last byte, visit func()) {
	if !s.take(first) {
		return
	}
	if s.peek() == last {
		s.at++
		return
	}
	for {
		if s.peek(); s.at == len(s.text) {
			s.bad = true
		}
		if s.bad {
			return
		}
		visit()
		if s.bad || s.peek() != ',' {
			break
		}
		s.at++
	}
	s.take(last)
}

// value steps over the value that comes next and returns its text.
func (s *scanner) value() []byte {
	switch c := s.peek(); {
	case c == '"':
		return s.str()
	case c == '{' || c == '[':
		return s.nested()
	}
	from := s.at
	for s.at < len(s.text) && !isEnd(s.text[s.at]) {
		s.at++
	}
	s.bad = s.bad || s.at == from
	return s.text[from:s.at]
}

// isEnd reports whether a byte ends a number or a word.
func isEnd(c byte) bool {
	switch c {
	case ',', '}', ']', ' ', '\n', '\t', '\r', ':', '"', '{', '[':
		return true
	}
	return false
}

// str steps over a string.
func (s *scanner) str() []byte {
	from := s.at
	if !s.take('"') {
		return nil
	}
	for {
		i := bytes.IndexByte(s.text[s.at:], '"')
		if i < 0 {
			s.at, s.bad = len(s.text), true
			return nil
		}
		s.at += i + 1
		if !isEscaped(s.text[from+1 : s.at-1]) {
			return s.text[from:s.at]
		}
	}
}

// isEscaped reports whether the byte after a text is escaped: whether the text ends
// with an odd number of backslashes.
func isEscaped(before []byte) bool {
	n := len(before)
	for n > 0 && before[n-1] == '\\' {
		n--
	}
	return (len(before)-n)%2 == 1
}

// nested steps over an object or array.
func (s *scanner) nested() []byte {
	from, depth := s.at, 0
	for s.at < len(s.text) && !s.bad {
		switch s.text[s.at] {
		case '"':
			s.str()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if s.at++; depth == 0 {
			return s.text[from:s.at]
		}
	}
	s.bad = true
	return nil
}

// plainName returns a name without quotes and escapes. The service escapes no name that
// can do without, but a user's document may.
func plainName(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	return []byte(unquote(quoted))
}

// unquote decodes a string; any other value gives "".
func unquote(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	inner := raw[1 : len(raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	if quotes := bytes.Count(inner, []byte(`\"`)); quotes == bytes.Count(inner, []byte(`\`)) { // an ETag
		return string(bytes.ReplaceAll(inner, []byte(`\"`), []byte(`"`)))
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return ""
	}
	return text
}

// integer decodes a whole number; any other value gives 0.
func integer(raw []byte) int64 {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		f, _ := strconv.ParseFloat(string(raw), 64) // 12.0, or no number
		return int64(f)
	}
	return n
}

// lookup finds a value by the rest of its path. Of several members with one name the
// last counts, as in docstore and in the server.
func lookup(value []byte, path keyPath) []byte {
	for _, segment := range path {
		var found []byte
		if len(value) == 0 || value[0] != '{' {
			return nil
		}
		s := scanner{text: value}
		s.object(func(m member) {
			if string(m.name) == segment {
				found = m.value
			}
		})
		value = found
	}
	return value
}

// keyOf makes a partition key of the values at the partition key paths, in the text
// that [changefeed.Key] writes. A value that is no scalar cannot be a key, and counts
// as undefined.
func keyOf(values [][]byte) changefeed.PartitionKey {
	var short [128]byte
	key := append(short[:0], '[')
	for i, raw := range values {
		if i > 0 {
			key = append(key, ',')
		}
		key = appendComponent(key, raw)
	}
	return changefeed.PartitionKey(append(key, ']'))
}

// exactDigits is how many digits of a whole number every float64 keeps.
const exactDigits = 15

func appendComponent(key, raw []byte) []byte {
	switch {
	case len(raw) == 0 || raw[0] == '{' || raw[0] == '[':
		return append(key, "{}"...)
	case isPlain(raw):
		return append(key, raw...)
	}
	return appendDecoded(key, raw)
}

// appendDecoded writes a scalar as Key does.
func appendDecoded(key, raw []byte) []byte {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return append(key, "{}"...)
	}
	text := changefeed.Key(v)
	return append(key, text[1:len(text)-1]...)
}

// isPlain reports whether a scalar is already written as Key writes it, which saves
// decoding.
func isPlain(raw []byte) bool {
	switch raw[0] {
	case '"':
		return !bytes.ContainsFunc(raw[1:len(raw)-1], func(r rune) bool { return r < ' ' || r > '~' || r == '\\' })
	case 't', 'f', 'n':
		return true
	}
	return len(raw) <= exactDigits && !bytes.ContainsAny(raw, ".eE-")
}
