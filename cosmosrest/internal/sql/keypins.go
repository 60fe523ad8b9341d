package sql

import (
	"encoding/json"
	"slices"
)

// Pins of a hierarchical partition key: which values of its levels belong together. The filter
// (c.a = 1 AND c.b = 2) OR (c.a = 3 AND c.b = 4) allows two keys, although each level has two values.

// Keys returns the partition keys to which WHERE limits a document, by the paths of the key's levels. A key may lack
// its last levels; the first level that WHERE does not limit ends the key, because only a prefix of the levels
// corresponds to a range of the key space. ok is false if WHERE does not limit the first level, or allows more than
// most keys.
func (b *Bound) Keys(paths [][]string, most int) (keys [][]json.RawMessage, ok bool) {
	where := b.q.plan.filter()
	if where == nil {
		return nil, false
	}
	search := &keySearch{b: b, paths: paths, most: most, budget: maxAlternatives}
	found, ok := search.keysOf(where)
	for _, values := range found {
		var key []json.RawMessage
		for _, v := range values {
			key = append(key, v.plainJSON())
		}
		keys = append(keys, key)
	}
	return keys, ok
}

// maxAlternatives limits the terms of OR that are looked at one by one. In a filter with more, the levels are looked
// at one by one.
const maxAlternatives = 2000

// keySearch is the analysis of a filter for [Bound.Keys].
type keySearch struct {
	b      *Bound
	paths  [][]string
	most   int
	budget int
}

// keysOf returns the keys that a document may have if an expression is true.
func (s *keySearch) keysOf(n node) ([][]value, bool) {
	if chain, ok := n.(logic); ok && len(s.paths) > 1 {
		if keys, ok := s.keysOfAlternatives(chain); ok && len(keys) <= s.most {
			return keys, true
		}
	}
	return s.combinations(n)
}

// keysOfAlternatives returns the keys of each term of an OR. If an OR is a term of an AND, each alternative is
// looked at together with the other terms of the AND.
func (s *keySearch) keysOfAlternatives(chain logic) (keys [][]value, ok bool) {
	var others []node
	alternatives := chain.terms
	if chain.decides == isFalse {
		i := slices.IndexFunc(chain.terms, func(term node) bool {
			inner, ok := term.(logic)
			return ok && inner.decides == isTrue
		})
		if i < 0 {
			return nil, false
		}
		others = slices.Delete(slices.Clone(chain.terms), i, i+1)
		alternatives = chain.terms[i].(logic).terms
	}
	for _, term := range alternatives {
		if s.budget--; s.budget < 0 {
			return nil, false
		}
		if others != nil {
			term = logic{isFalse, append(slices.Clip(others), term)}
		}
		some, ok := s.keysOf(term)
		if !ok {
			return nil, false
		}
		keys = append(keys, some...)
	}
	return keys, true
}

// combinations returns all combinations of the values of the levels.
func (s *keySearch) combinations(n node) ([][]value, bool) {
	keys := [][]value{nil}
	levels := 0
	for _, path := range s.paths {
		values, ok := s.b.pinsOf(n, path)
		if !ok || len(values)*len(keys) > s.most {
			break
		}
		var longer [][]value
		for _, key := range keys {
			for _, v := range values {
				longer = append(longer, append(slices.Clip(key), v))
			}
		}
		keys = longer
		levels++
	}
	if levels == 0 {
		return nil, false
	}
	return keys, true
}
