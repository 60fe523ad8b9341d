package rawjson

import (
	"bytes"
	"encoding/json"
	"iter"
)

// Members yields the members of a valid text that is an object, names without quotes
// and escapes; any other value has none.
func Members(object []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		w := scanner{text: object}
		for w.item('{', '}') {
			name := Text(w.next())
			w.space()
			w.pos++ // the colon
			w.space()
			if !yield(name, w.next()) {
				return
			}
		}
	}
}

// Elements yields the elements of a valid text that is an array; any other value has
// none.
func Elements(array []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		w := scanner{text: array}
		for w.item('[', ']') && yield(w.next()) {
		}
	}
}

// Text returns the string in a valid text; any other value gives the empty string. A
// string without escapes is copied and not decoded, as most are.
func Text(value []byte) string {
	last := len(value) - 1
	switch {
	case last < 1 || value[0] != '"':
		return ""
	case bytes.IndexByte(value, '\\') < 0:
		return string(value[1:last])
	}
	var s string
	_ = json.Unmarshal(value, &s) // valid, as the caller says
	return s
}

// item steps to the next item of an object or array, and reports whether there is one.
func (s *scanner) item(begin, end byte) bool {
	first := s.pos == 0
	s.space()
	if first && !s.skip(begin) || !first && !s.skip(',') {
		return false
	}
	s.space()
	return s.pos < len(s.text) && s.text[s.pos] != end
}

// next steps over a value and returns its text.
func (s *scanner) next() []byte {
	from := s.pos
	s.value(0)
	return s.text[from:s.pos]
}
