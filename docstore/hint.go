package docstore

// Looking a document up costs the engine more than all else that the committer does for
// a write. So the caller looks before it queues, in its own goroutine, and the committer
// takes the answer if no group has changed the document since.

const maxRecent = 64 // groups that are remembered

// hint is what the primary index had for a document.
type hint struct {
	value []byte
	found bool
	ok    bool
	seen  int64 // every group below this one had been applied
}

// look asks for a document ahead.
func (db *DB) look(key []byte) (h hint) {
	h.seen = db.applied.Load()
	v, found, err := db.eng.get(nil, key)
	return hint{value: v, found: found, ok: err == nil, seen: h.seen}
}

// recent remembers which group changed a document last. It is the committer's.
type recent struct {
	last   map[string]int64 // by key of the primary index
	groups []map[string]int
	first  int64 // number of groups[0]
}

// add notes the keys that a group changes.
func (r *recent) add(seq int64, keys map[string]int) {
	if r.last == nil {
		r.last, r.first = map[string]int64{}, seq
	}
	for k := range keys {
		if k[0] == tableDoc {
			r.last[k] = seq
		}
	}
	r.groups = append(r.groups, keys)
	if len(r.groups) <= maxRecent {
		return
	}
	for k := range r.groups[0] {
		if k[0] == tableDoc && r.last[k] == r.first {
			delete(r.last, k)
		}
	}
	r.groups[0] = nil
	r.groups = r.groups[1:]
	r.first++
}

// holds tells whether a hint is still true.
func (r *recent) holds(key []byte, h *hint) bool {
	return h.ok && h.seen >= r.first && r.last[string(key)] < h.seen
}
