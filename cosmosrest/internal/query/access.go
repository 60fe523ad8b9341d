package query

import (
	"encoding/json"
	"slices"

	"github.com/millrace/changefeed/feed"
)

// The way to a query's documents, chosen by the headers and the filter. In this order,
// because each is cheaper than the next: ids and keys together are looked up, a key is read
// by the index of its logical partition, ids alone by the index of ids, and only the rest
// is scanned.

// Beyond these bounds a scan is cheaper than the lookups.
const (
	maxPinned = 10_000 // keys that are looked up; more are found by a scan
	maxPoints = 10_000 // ids times keys that are looked up
)

// chooseAccess chooses the way.
func (q *Query) chooseAccess() {
	s := q.scan
	s.keys, s.pinned = q.pinnedKeys()
	ids, known := q.bound.IDs()
	slices.Sort(ids)
	ids = slices.Compact(ids)
	switch {
	// With a key whose last levels are open nothing can be looked up: an id is unique
	// in a whole key only.
	case s.pinned && known && len(ids)*len(s.keys) <= maxPoints && q.areWhole(s.keys):
		s.ids = ids
	case !s.pinned && q.cont.HasIDIndex():
		s.prefix, s.byID = q.bound.IDPrefix()
		if !s.byID && known {
			// The index is read for the prefix. The filter is applied all the same, so
			// other ids that begin with it cost time and no more.
			s.prefix = commonPrefix(ids)
			s.byID = s.prefix != ""
		}
	}
}

// commonPrefix is the beginning that all of some sorted texts have in common. It is enough
// to compare the first with the last, because all others lie between them.
func commonPrefix(sorted []string) string {
	if len(sorted) == 0 {
		return ""
	}
	first, last := sorted[0], sorted[len(sorted)-1]
	n := 0
	for n < min(len(first), len(last)) && first[n] == last[n] {
		n++
	}
	return first[:n]
}

// pinnedKeys are the partition keys that a header or the filter leaves, if it leaves fewer than
// all. The filter may pin only the first levels of a hierarchical key; the keys then lack
// the last ones.
func (q *Query) pinnedKeys() ([]feed.PartitionKey, bool) {
	if q.sel.Key != "" {
		return []feed.PartitionKey{q.sel.Key}, true
	}
	combined := [][]any{nil}
	levels := 0
	for _, path := range q.cont.KeyPaths() {
		// The first level that the filter leaves open ends the key, because a prefix of
		// levels has a range of the key space and any other choice of levels has none.
		values, ok := q.scalarsOf(path)
		if !ok || len(values)*len(combined) > maxPinned {
			break
		}
		var longer [][]any
		for _, key := range combined {
			for _, v := range values {
				longer = append(longer, append(slices.Clip(key), v))
			}
		}
		combined = longer
		levels++
	}
	if levels == 0 {
		return nil, false
	}
	var keys []feed.PartitionKey
	for _, key := range combined {
		keys = append(keys, feed.Key(key...))
	}
	slices.Sort(keys)
	return slices.Compact(keys), true
}

// scalarsOf are the values that the filter leaves for a path, if it confines the path.
func (q *Query) scalarsOf(path []string) ([]any, bool) {
	raws, ok := q.bound.Pins(path)
	if !ok {
		return nil, false
	}
	values := make([]any, len(raws))
	for i, raw := range raws {
		if json.Unmarshal(raw, &values[i]) != nil {
			return nil, false
		}
	}
	return values, true
}

// areWhole reports whether keys have all their levels: only then can a document be looked up.
func (q *Query) areWhole(keys []feed.PartitionKey) bool {
	return !slices.ContainsFunc(keys, func(key feed.PartitionKey) bool {
		p, err := q.cont.LogicalPartition(key)
		return err != nil || !p.Whole()
	})
}
