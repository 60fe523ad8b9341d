package rawjson

import "iter"

// Members yields the members of an object as name and value; any other value has none.
func Members(object []byte) iter.Seq2[Key, []byte] {
	return func(yield func(Key, []byte) bool) {
		s := Scanner{text: object}
		for ok := s.beginNested('{', '}'); ok; ok = s.nextItem('}') {
			key := s.readKey()
			if value := s.Value(); s.bad || !yield(key, value.Of(object)) {
				return
			}
		}
	}
}

// Elements yields the elements of an array; any other value has none.
func Elements(array []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		s := Scanner{text: array}
		for ok := s.beginNested('[', ']'); ok; ok = s.nextItem(']') {
			if value := s.Value(); s.bad || !yield(value.Of(array)) {
				return
			}
		}
	}
}

// Lookup follows names through objects and returns the value there, or nil. As in the service, paths go only through
// objects, so a value inside an array is not found.
func Lookup(value []byte, path ...string) []byte {
	return LookupAt(value, Span{0, len(value)}, path...).Of(value)
}

// LookupAt is Lookup that starts from a value within a text, and returns the place of the result.
func LookupAt(text []byte, value Span, path ...string) Span {
	for _, name := range path {
		s := Scanner{text: text[:value.To], pos: value.From}
		if value = (Span{}); s.Peek() != '{' {
			return value
		}
		for ok := s.beginNested('{', '}'); ok; ok = s.nextItem('}') {
			key := s.readKey()
			if at := s.Value(); !s.bad && key.Is(name) {
				value = at
			}
		}
	}
	return value
}

// Element returns the n-th element of an array, or nil.
func Element(array []byte, n int) []byte {
	s := Scanner{text: array}
	for ok := n >= 0 && s.beginNested('[', ']'); ok; ok = s.nextItem(']') {
		if value := s.Value(); n == 0 {
			return value.Of(array)
		}
		n--
	}
	return nil
}

// Member is a member of an object.
type Member struct {
	Key   Key
	Value []byte
}

// Distinct returns the effective members of an object: if several members have the same name, only the last, in its
// place.
func Distinct(object []byte) []Member {
	var all []Member
	for key, value := range Members(object) {
		all = append(all, Member{key, value})
	}
	last := make(map[string]int, len(all))
	for i, m := range all {
		last[string(m.Key.Name())] = i
	}
	if len(last) == len(all) {
		return all
	}
	counting := all[:0]
	for i, m := range all {
		if last[string(m.Key.Name())] == i {
			counting = append(counting, m)
		}
	}
	return counting
}

// Without appends an object without the members for which drop returns true. The other members keep their text and
// order.
func Without(dst, object []byte, drop func(name []byte) bool) []byte {
	var kept Runs
	s := Scanner{text: object}
	for from, key := range s.Object() {
		s.Value()
		kept.Add(Span{from, s.pos}, !drop(key.Name()))
	}
	return append(kept.Append(append(dst, '{'), object), '}')
}

// Runs collects the items of an object or array that are kept. Neighbours are joined, so a document whose system
// properties are at the end, as written by the store, is copied as a whole.
type Runs struct {
	done []Span
	last Span
	open bool // last may be extended by the next item
}

// Add adds the next item; stays says whether the item is kept.
func (r *Runs) Add(item Span, stays bool) {
	switch {
	case stays && r.open:
		r.last.To = item.To
	case stays:
		if r.last.To > 0 {
			r.done = append(r.done, r.last)
		}
		r.last = item
	}
	r.open = stays
}

// Size returns how many bytes Append appends.
func (r *Runs) Size() int {
	n := r.last.To - r.last.From
	for _, run := range r.done {
		n += run.To - run.From + len(",")
	}
	return n
}

// Append appends the kept items, with commas between.
func (r *Runs) Append(dst, text []byte) []byte {
	for _, run := range r.done {
		dst = append(append(dst, run.Of(text)...), ',')
	}
	return append(dst, r.last.Of(text)...)
}

// CutMember removes the member at a place from the object at another place, and returns the object. If the member is
// the last of its object, where the service puts the LSN of a change, CutMember overwrites the comma in text with a
// brace. Otherwise CutMember copies the object.
func CutMember(text []byte, object, member Span) []byte {
	comma := member.From - 1
	for comma > object.From && text[comma] != ',' && text[comma] != '{' {
		comma--
	}
	s := Scanner{text: text, pos: member.To}
	switch last := s.Peek() == '}'; {
	case last && text[comma] == ',':
		text[comma] = '}'
		return text[object.From : comma+1 : comma+1]
	case last:
		return []byte("{}")
	case text[comma] == ',':
		return append(append(make([]byte, 0, object.To-object.From), text[object.From:comma]...),
			text[member.To:object.To]...)
	}
	return append(append(make([]byte, 0, object.To-object.From), text[object.From:member.From]...),
		text[s.pos+1:object.To]...)
}
