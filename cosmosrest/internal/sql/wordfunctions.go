package sql

import (
	"slices"
	"strings"
	"unicode"
)

// Full text search, without the service's stemming and ranking: words are compared as they are, ignoring case. This
// is enough to try out a program's queries.

// wordFunctions are the functions by name.
var wordFunctions = map[string]*function{
	"FULLTEXTCONTAINS": {2, 2, false, func(f *frame, a []value) value {
		return search(f, a, func(found []bool) bool { return found[0] })
	}},
	"FULLTEXTCONTAINSALL": {2, -1, false, func(f *frame, a []value) value {
		return search(f, a, func(found []bool) bool { return !slices.Contains(found, false) })
	}},
	"FULLTEXTCONTAINSANY": {2, -1, false, func(f *frame, a []value) value {
		return search(f, a, func(found []bool) bool { return slices.Contains(found, true) })
	}},
}

// search looks for each phrase in the first argument. judge receives which phrases were found, and decides the
// result.
func search(f *frame, args []value, judge func(found []bool) bool) value {
	if !areText(args...) {
		return value{}
	}
	text := phrase(args[0])
	found := make([]bool, len(args)-1)
	for i, pattern := range args[1:] {
		if !f.spendWork(len(text)) {
			return value{}
		}
		found[i] = strings.Contains(text, phrase(pattern))
	}
	return boolValue(judge(found))
}

// phrase returns the words of a string in lower case, with a blank around each word, so a phrase matches only at word
// boundaries.
func phrase(v value) string {
	words := strings.FieldsFunc(strings.ToLower(string(v.bytes())), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	return " " + strings.Join(words, " ") + " "
}
