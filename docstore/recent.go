package docstore

// maxRecent bounds what [recent] holds, in bytes: slots of some 40,000 documents.
const maxRecent = 8 << 20

// recent has the slots of documents that were written lately. Every write of a document
// begins with a look at its slot, and in the engine that look costs as much as all else
// that the committer does for the write; documents that are written again soon, such as
// leases and counters, are found here. It belongs to the committer, which is the only one
// that changes slots, so it needs no lock and is never out of date.
type recent struct {
	slots map[string][]byte
	size  int
}

// note takes over the slots that a group has written.
func (r *recent) note(g *group) {
	if len(g.ranges) > 0 || r.slots == nil { // a container has gone, or the store was opened
		r.slots, r.size = map[string][]byte{}, 0
	}
	for key, i := range g.latest {
		if key[0] != tableDoc {
			continue
		}
		r.drop(key)
		if ch := &g.changes[i]; !ch.drop {
			r.slots[key] = ch.value
			r.size += slotCost(key, ch.value)
		}
	}
	for key := range r.slots { // in no order, so any slot may go
		if r.size <= maxRecent {
			break
		}
		r.drop(key)
	}
}

func (r *recent) drop(key string) {
	if value, ok := r.slots[key]; ok {
		r.size -= slotCost(key, value)
		delete(r.slots, key)
	}
}

// slotCost is about how many bytes a slot takes.
func slotCost(key string, value []byte) int {
	const entry = 64 // of the map
	return len(key) + len(value) + entry
}
