package sql

import (
	"bytes"
	"encoding/json"
)

// JSON text looked into without decoding.
//
// Documents stay text. A query finds its values by walking over the text and skips the
// rest, because to decode a document would cost more than all that most queries do with it.
// The store has validated the text before, so there are no errors here; text that is not
// JSON yields no values.

// isBlank reports JSON's white space.
func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func skipBlanks(b []byte, i int) int {
	for i < len(b) && isBlank(b[i]) {
		i++
	}
	return i
}

// skipValue returns the offset after the value at i.
func skipValue(b []byte, i int) int {
	if i >= len(b) {
		return i
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		return skipBrackets(b, i)
	}
	for i < len(b) && b[i] != ',' && b[i] != '}' && b[i] != ']' && !isBlank(b[i]) {
		i++
	}
	return i
}

// skipBrackets returns the offset after the array or object at i. It counts brackets of
// both kinds alike, since they are known to match, and passes over strings, where brackets
// mean nothing.
func skipBrackets(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = skipString(b, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return i
}

// skipString returns the offset after the string whose opening quote is at i. It looks for
// quotes, with the vector instructions behind IndexByte, and then back for backslashes: an
// odd number of them escapes the quote.
func skipString(b []byte, i int) int {
	for j := i + 1; j < len(b); j++ {
		k := bytes.IndexByte(b[j:], '"')
		if k < 0 {
			return len(b)
		}
		j += k
		slashes := 0
		for b[j-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return j + 1
		}
	}
	return len(b)
}

// cursor walks over the members of an object or the elements of an array.
type cursor struct {
	b []byte
	i int // behind the opening bracket, or behind the last value
}

// walk begins with the array or object that b is, without white space around it.
func walk(b []byte) cursor { return cursor{b, 1} }

// next returns the next value and, of an object, its key with quotes. ok is false at the
// end.
func (c *cursor) next(keyed bool) (key, val []byte, ok bool) {
	i := skipBlanks(c.b, c.i)
	if i < len(c.b) && c.b[i] == ',' {
		i = skipBlanks(c.b, i+1)
	}
	if keyed {
		if i >= len(c.b) || c.b[i] != '"' {
			return nil, nil, false
		}
		end := skipString(c.b, i)
		key = c.b[i:end]
		i = skipBlanks(c.b, end)
		if i >= len(c.b) || c.b[i] != ':' {
			return nil, nil, false
		}
		i = skipBlanks(c.b, i+1)
	}
	end := skipValue(c.b, i)
	if end == i {
		return nil, nil, false
	}
	c.i = end
	return key, c.b[i:end], true
}

// member returns the value of a member of an object. Of several members with one name the
// last counts, as it does for the store and for programs that decode the document.
func member(obj []byte, name string) (last []byte, found bool) {
	c := walk(obj)
	for {
		key, val, ok := c.next(true)
		if !ok {
			return last, found
		}
		if keyIs(key, name) {
			last, found = val, true
		}
	}
}

// pair is a member of an object.
type pair struct{ key, val []byte } // the key with its quotes

func (p pair) name() string { return string(unquote(p.key)) }

// pairs are the members of an object that count: of several with one name, the last.
func pairs(obj []byte) []pair {
	var all []pair
	for c := walk(obj); ; {
		key, val, ok := c.next(true)
		if !ok {
			break
		}
		all = append(all, pair{key, val})
	}
	last := make(map[string]int, len(all))
	for i, p := range all {
		last[p.name()] = i
	}
	if len(last) == len(all) {
		return all
	}
	counting := all[:0]
	for i, p := range all {
		if last[p.name()] == i {
			counting = append(counting, p)
		}
	}
	return counting
}

// keyIs reports whether a quoted key is a name. Few keys have escapes, so most are compared
// in place.
func keyIs(key []byte, name string) bool {
	if len(key) < 2 {
		return false
	}
	inner := key[1 : len(key)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner) == name
	}
	return string(unquote(key)) == name
}

// element returns the nth element of an array, counted from 0.
func element(arr []byte, n int) ([]byte, bool) {
	if n < 0 {
		return nil, false
	}
	c := walk(arr)
	for {
		_, val, ok := c.next(false)
		if !ok || n == 0 {
			return val, ok
		}
		n--
	}
}

// unquote returns the text of a JSON string. Invalid escapes, which the store refuses, stay
// as they are.
func unquote(quoted []byte) []byte {
	if len(quoted) < 2 {
		return nil
	}
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	var s string
	if json.Unmarshal(quoted, &s) != nil {
		return inner
	}
	return []byte(s)
}
