package sql

import (
	"bytes"
	"unicode/utf8"
)

// Functions that look for several strings in a string, and from its end.

// containsFunctions are the functions by name. CS means case-sensitive, CI the opposite.
var containsFunctions = map[string]*function{
	"CONTAINS_ALL_CS": containsEach(false, true),
	"CONTAINS_ALL_CI": containsEach(true, true),
	"CONTAINS_ANY_CS": containsEach(false, false),
	"CONTAINS_ANY_CI": containsEach(true, false),
	"LASTINDEXOF":     {2, 3, false, lastIndexOf},
}

// containsEach makes CONTAINS_ALL or CONTAINS_ANY: calls of CONTAINS, joined by AND or OR. An argument that is not a
// string makes its call undefined, so the result is undefined unless another call decides.
func containsEach(foldCase, all bool) *function {
	return &function{2, -1, true, func(f *frame, args []value) value {
		if args[0].kind != str {
			return value{}
		}
		text, unknown := args[0].bytes(), false
		if foldCase {
			text = bytes.ToLower(text)
		}
		for _, v := range args[1:] {
			if v.kind != str {
				unknown = true
				continue
			}
			if !f.spendWork(len(text)) {
				return value{}
			}
			wanted := v.bytes()
			if foldCase {
				wanted = bytes.ToLower(wanted)
			}
			if bytes.Contains(text, wanted) != all {
				return boolValue(!all)
			}
		}
		if unknown {
			return value{}
		}
		return boolValue(all)
	}}
}

// lastIndexOf is LASTINDEXOF(text, wanted, from): the last place of wanted that ends at the character from or before
// it. Without from, the whole text is searched.
func lastIndexOf(_ *frame, args []value) value {
	if !areText(args[:2]...) {
		return value{}
	}
	text := args[0].bytes()
	if len(args) > 2 {
		from, ok := args[2].length()
		if !ok {
			return value{}
		}
		text = slice(text, 0, from+1)
	}
	i := bytes.LastIndex(text, args[1].bytes())
	if i < 0 {
		return numberValue(-1)
	}
	return numberValue(float64(utf8.RuneCount(text[:i])))
}
