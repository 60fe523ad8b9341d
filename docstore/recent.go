package docstore

// maxRecent bounds what [recent] holds, in bytes: slots of some 40,000 documents.
const maxRecent = 8 << 20

// recent has the slots of documents that were written lately. Every write of a document
// begins with a look at its slot, and in the engine that look costs as much as all else
// that the committer does for the write; documents that are written again soon, such as
// leases and counters, are found here. It belongs to the committer, which is the only one
// that changes slots, so it needs no lock and is never out of date.
type recent struct {
	slots map[string]*recentSlot
	size  int
}

// recentSlot stands behind a pointer, so that a slot is replaced without another copy of its key.
type recentSlot struct{ value []byte }

// noteGroup takes over the slots that a group has written.
func (r *recent) noteGroup(g *group) {
	if len(g.ranges) > 0 || r.slots == nil { // a container has gone, or the store was opened
		r.slots, r.size = map[string]*recentSlot{}, 0
	}
	for i := range g.changes {
		if ch := &g.changes[i]; ch.key[0] == tableDoc && !ch.over {
			r.put(ch)
		}
	}
	for key := range r.slots { // in no order, so any slot may go
		if r.size <= maxRecent {
			break
		}
		r.drop(key)
	}
}

// put notes the slot that a change leaves.
func (r *recent) put(ch *change) {
	if ch.drop {
		r.drop(string(ch.key))
		return
	}
	old, ok := r.slots[string(ch.key)]
	if ok {
		r.size += len(ch.value) - len(old.value)
		old.value = ch.value
		return
	}
	r.slots[string(ch.key)] = &recentSlot{ch.value}
	r.size += slotCost(len(ch.key), len(ch.value))
}

func (r *recent) drop(key string) {
	if old, ok := r.slots[key]; ok {
		r.size -= slotCost(len(key), len(old.value))
		delete(r.slots, key)
	}
}

// slotCost is about how many bytes a slot takes, by the lengths of its key and its value.
func slotCost(key, value int) int {
	const entry = 64 // of the map
	return key + value + entry
}
