package query

import (
	"encoding/json"
	"slices"

	"github.com/millrace/changefeed/feed"
)

// How a query finds its documents depends on the headers and the filter. The ways are tried in this order, because
// each is cheaper than the next: lookups by ids and keys together, the index of a key's logical partition, the index
// of ids, and a scan.

// Above these limits a scan is cheaper than lookups.
const (
	maxPinned = 10_000 // keys that are looked up; more keys are found by a scan
	maxPoints = 10_000 // ids times keys that are looked up
)

// chooseAccess chooses how the query finds its documents.
func (q *Query) chooseAccess() {
	s := q.scan
	s.keys, s.pinned = q.pinnedKeys()
	ids, known := q.bound.IDs()
	slices.Sort(ids)
	ids = slices.Compact(ids)
	switch {
	// If a key lacks its last levels, no document can be looked up, because an id is unique only within a complete
	// key.
	case s.pinned && known && len(ids)*len(s.keys) <= maxPoints && q.areWhole(s.keys):
		s.ids = ids
	case !s.pinned && q.cont.HasIDIndex():
		s.prefix, s.byID = q.bound.IDPrefix()
		if !s.byID && known {
			// The index is read by the prefix. The filter is applied too, so other ids with this prefix only cost
			// time.
			s.prefix = commonPrefix(ids)
			s.byID = s.prefix != ""
		}
	}
}

// commonPrefix returns the common beginning of sorted texts. commonPrefix compares only the first with the last,
// because all others are between them.
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

// pinnedKeys returns the partition keys that a header or the filter allows; ok is false if all keys are allowed. The
// filter may fix only the first levels of a hierarchical key; the keys then lack the last levels.
func (q *Query) pinnedKeys() ([]feed.PartitionKey, bool) {
	if q.sel.Key != "" {
		return []feed.PartitionKey{q.sel.Key}, true
	}
	combined := [][]any{nil}
	levels := 0
	for _, path := range q.cont.KeyPaths() {
		// The first level that the filter does not fix ends the key, because only a prefix of the levels corresponds
		// to a range of the key space.
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

// scalarsOf returns the values that the filter allows for a path; ok is false if the filter does not limit them. An
// array or object is no value of a partition key, so the key of such a document is undefined at the path.
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
		switch values[i].(type) {
		case []any, map[string]any:
			values[i] = feed.Undefined
		}
	}
	return values, true
}

// areWhole reports whether keys have all their levels. Only then can a document be looked up.
func (q *Query) areWhole(keys []feed.PartitionKey) bool {
	return !slices.ContainsFunc(keys, func(key feed.PartitionKey) bool {
		p, err := q.cont.LogicalPartition(key)
		return err != nil || !p.Whole()
	})
}
