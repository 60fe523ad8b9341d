package query

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/millrace/changefeed/feed"
)

// How a query finds its documents depends on the headers and the filter. The ways are tried in this order, because
// each is cheaper than the next: lookups by ids and keys together, the index of a key's logical partition, the index
// of ids, a walk over the keys of all documents for some ids, and a scan.

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
	case !s.pinned && known && len(ids) <= maxPoints:
		s.ids = append([]string{}, ids...) // nil would mean any
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
	found, ok := q.bound.Keys(q.cont.KeyPaths(), maxPinned)
	if !ok {
		return nil, false
	}
	var keys [][]any
	known := map[feed.PartitionKey]bool{}
	for _, raws := range found {
		key := make([]any, len(raws))
		for i, raw := range raws {
			var err error
			if key[i], err = keyValue(raw); err != nil {
				return nil, false
			}
		}
		keys = append(keys, key)
		known[feed.Key(key...)] = true
	}
	return withoutParts(keys, known), true
}

// withoutParts returns the keys in order. A key that begins with another of the keys is left out, because the shorter
// key already covers its documents.
func withoutParts(keys [][]any, known map[feed.PartitionKey]bool) []feed.PartitionKey {
	var out []feed.PartitionKey
	for _, key := range keys {
		covered := false
		for n := 1; n < len(key); n++ {
			covered = covered || known[feed.Key(key[:n]...)]
		}
		if !covered {
			out = append(out, feed.Key(key...))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// keyValue returns a value in the form of [feed.Key]. An array or object is no value of a partition key, so the key of
// such a document is undefined at the path.
func keyValue(raw json.RawMessage) (v any, err error) {
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, fmt.Errorf("read value of a partition key: %w", err)
	}
	switch v.(type) {
	case []any, map[string]any:
		return feed.Undefined, nil
	}
	return v, nil
}

// areWhole reports whether keys have all their levels. Only then can a document be looked up.
func (q *Query) areWhole(keys []feed.PartitionKey) bool {
	return !slices.ContainsFunc(keys, func(key feed.PartitionKey) bool {
		p, err := q.cont.LogicalPartition(key)
		return err != nil || !p.Whole()
	})
}
