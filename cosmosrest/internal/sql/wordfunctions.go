package sql

import (
	"math"
	"slices"
	"strings"
	"unicode"
)

// Full text search, without the service's stemming: words are compared as they are, ignoring case. This is enough to
// try out a program's queries. The terms of a search are in searchterms.go.

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

	// These two are only for the queries of plans.
	"_FULLTEXTWORDCOUNT": {1, 1, false, func(f *frame, a []value) value {
		if !areText(a[0]) {
			return value{}
		}
		return numberValue(wordCount(phrase(a[0])))
	}},
	"_FULLTEXTSCORE": scoreFunction,
}

// scoreFunction is _FullTextScore(text, phrases, documents, words, hits): the score of a text by statistics that a
// client has added up.
var scoreFunction = &function{5, 5, false, func(f *frame, a []value) value {
	if !areText(a[0]) || a[1].kind != array || a[2].kind != number || a[3].kind != number || a[4].kind != array {
		return value{}
	}
	text := phrase(a[0])
	var counts, hits []float64
	for _, v := range f.elementsOf(a[1]) {
		term, ok := v.searchTerm()
		if !ok || !f.spendWork(len(text)) {
			return value{}
		}
		counts = append(counts, term.count(f, text, math.MaxInt32))
	}
	for _, n := range f.elementsOf(a[4]) {
		hits = append(hits, n.float())
	}
	return numberValue(bm25(counts, wordCount(text), a[2].float(), a[3].float(), hits))
}}

// isScore reports whether a node is a call of _FullTextScore.
func isScore(n node) bool {
	scored, ok := n.(call)
	return ok && scored.fn == scoreFunction
}

// wordCount returns the number of words in a result of phrase.
func wordCount(text string) float64 { return float64(len(strings.Fields(text))) }

// phraseCount returns how often a text has a phrase, but at most a number; both are results of phrase. Two occurrences
// may share a blank.
func phraseCount(text, wanted string, most float64) float64 {
	n := 0.0
	for n < most {
		at := strings.Index(text, wanted)
		if at < 0 {
			break
		}
		n++
		text = text[at+len(wanted)-1:]
	}
	return n
}

// search looks for each term in the first argument. judge receives which terms were found, and decides the result.
func search(f *frame, args []value, judge func(found []bool) bool) value {
	if !areText(args[0]) {
		return value{}
	}
	text := phrase(args[0])
	found := make([]bool, len(args)-1)
	for i, v := range args[1:] {
		term, ok := v.searchTerm()
		if !ok || !f.spendWork(len(text)) {
			return value{}
		}
		found[i] = term.count(f, text, 1) > 0
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
