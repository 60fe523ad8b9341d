package docstore

// maxRecent is the largest size of [recent], in bytes: the slots of some 40,000 documents.
const maxRecent = 8 << 20

// recent contains the slots of recently written documents. Every write of a document begins with a lookup of its
// slot. In the engine this lookup costs as much as the rest of the committer's work for the write. Documents that are
// written again soon, such as leases and counters, are found in recent. Only the committer changes slots, and recent
// belongs to the committer, so recent needs no lock and is never out of date.
type recent struct {
	slots map[string]*recentSlot
	size  int
}

// recentSlot is a pointer's target, so a slot can be replaced without another copy of its key.
type recentSlot struct{ value []byte }

// noteGroup stores the slots written by a group.
func (r *recent) noteGroup(g *group) {
	if len(g.ranges) > 0 || r.slots == nil { // a container was deleted, or the store has just been opened
		r.slots, r.size = map[string]*recentSlot{}, 0
	}
	for i := range g.changes {
		if ch := &g.changes[i]; ch.key[0] == tableDoc && !ch.over {
			r.put(ch)
		}
	}
	for key := range r.slots { // the order is random, so any slot may be removed
		if r.size <= maxRecent {
			break
		}
		r.drop(key)
	}
}

// put records the slot stored by a change.
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

// slotCost returns about how many bytes a slot takes, from the lengths of its key and value.
func slotCost(key, value int) int {
	const entry = 64 // of the map
	return key + value + entry
}
