package sql

import (
	"strings"
	"unicode/utf8"

	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// Terms of a full text search: a string, or an object such as {'term': 'bicycle', 'distance': 1}, which a text may
// miss by a few edits.
//
// The service's documentation calls the distance the number of edits, and 2 the largest. It does not say which edits
// count. Here they are those of Levenshtein: a character more, a character less, or another character. So two
// characters in the wrong order are two edits.

// maxEdits is the largest distance, as in the service.
const maxEdits = 2

// searchTerm is a phrase that a search looks for. Each word of the text may differ by some edits from its word.
type searchTerm struct {
	phrase string // as from phrase
	edits  int
}

// searchTerm returns the term that a value describes.
func (v value) searchTerm() (searchTerm, bool) {
	switch v.kind {
	case str:
		return searchTerm{phrase: phrase(v)}, true
	case object:
		words := documentValue(rawjson.Lookup(v.raw, "term")).decode()
		edits, ok := documentValue(rawjson.Lookup(v.raw, "distance")).decode().int()
		if words.kind == str && ok && 0 <= edits && edits <= maxEdits {
			return searchTerm{phrase(words), edits}, true
		}
	}
	return searchTerm{}, false
}

// count returns how often a text has the term, but at most a number; the text is a result of phrase.
func (s searchTerm) count(f *frame, text string, most float64) float64 {
	if s.edits == 0 {
		return phraseCount(text, s.phrase, most)
	}
	wanted, words, n := strings.Fields(s.phrase), strings.Fields(text), 0.0
	for n < most && len(wanted) > 0 && len(words) >= len(wanted) {
		if !s.begins(f, words, wanted) {
			words = words[1:]
			continue
		}
		n++
		words = words[len(wanted):]
	}
	return n
}

// begins reports whether the first words of a text are the wanted words.
func (s searchTerm) begins(f *frame, words, wanted []string) bool {
	for i, word := range wanted {
		if !f.spendWork(len(word)) || !withinEdits(words[i], word, s.edits) {
			return false
		}
	}
	return true
}

// withinEdits reports whether at most some edits turn one word into another. Equal characters at the beginning need
// no edit, so the search has at most three branches for each edit.
func withinEdits(a, b string, edits int) bool {
	for a != "" && b != "" {
		x, n := utf8.DecodeRuneInString(a)
		y, m := utf8.DecodeRuneInString(b)
		if x == y {
			a, b = a[n:], b[m:]
			continue
		}
		return edits > 0 && (withinEdits(a[n:], b, edits-1) || withinEdits(a, b[m:], edits-1) ||
			withinEdits(a[n:], b[m:], edits-1))
	}
	return utf8.RuneCountInString(a+b) <= edits
}

// fixedTerm is an argument of a search that is the same for all documents. Bind refuses such an argument if it is no
// term, because the search would silently find nothing.
type fixedTerm struct {
	node    node
	name    string // of the function
	at, end int    // place in the query
	lists   bool   // an array of terms is allowed
}

// fixedTerms returns the arguments of a search that are the same for all documents. Strings need no check.
func fixedTerms(name string, nodes []node, list []*expr, lists bool) (terms []fixedTerm) {
	for i, n := range nodes {
		if k, ok := n.(constant); ok && k.v.kind == str || !isFixed(n) {
			continue
		}
		terms = append(terms, fixedTerm{n, name, list[i].Pos.Offset, list[i].EndPos.Offset, lists})
	}
	return terms
}

// isFixed reports whether a node has the same value for all documents, also in arrays and objects.
func isFixed(n node) bool {
	switch n := n.(type) {
	case arrayNode:
		for _, item := range n.items {
			if !isFixed(item) {
				return false
			}
		}
		return true
	case objectNode:
		for _, member := range n.members {
			if !isFixed(member.node) {
				return false
			}
		}
		return true
	}
	return isConstant(n)
}

// wantedTerm says what a term is.
const wantedTerm = "want a string, or an object such as {'term': 'bicycle', 'distance': 1} with a distance of at most 2"

// check returns an error if a value is no term. Undefined is allowed, as everywhere: then the call is undefined.
func (t *fixedTerm) check(f *frame) error {
	v := t.node.eval(f)
	if v.kind == undefined {
		return nil
	}
	all := []value{v}
	if t.lists && v.kind == array {
		all = f.elementsOf(v)
	}
	for _, v := range all {
		if _, ok := v.searchTerm(); !ok {
			err := failf(t.at, "An argument of the %s function is %s: %s.", t.name, clip(string(v.appendJSON(nil))),
				wantedTerm)
			err.End = t.end
			return err
		}
	}
	return nil
}
