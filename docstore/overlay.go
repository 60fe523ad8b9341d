package docstore

import (
	"bytes"
	"hash/maphash"
	"slices"

	"github.com/millrace/changefeed/docstore/internal/engine"
)

// overlay contains the keys that a group has changed so far, on top of the engine's state. A write sees the changes
// of earlier writes in its group. If a transaction is refused, its changes are rolled back.
type overlay struct {
	eng     *engine.Engine
	recent  *recent
	changes []change
	latest  map[uint64]int // place of a key (see the method placeOf) to its last change
	hash    func(key []byte) uint64
}

func newOverlay(eng *engine.Engine, r *recent) overlay {
	return overlay{eng: eng, recent: r, latest: map[uint64]int{}, hash: placeOf}
}

var placeSeed = maphash.MakeSeed()

func placeOf(key []byte) uint64 { return maphash.Bytes(placeSeed, key) }

// placeOf returns the place of a key in latest, and the key's last change, or -1 if there is none. The place is the
// first place, from the hash of the key onward, that belongs to the key or is free. A map with keys as strings would
// need a copy of each key.
func (o *overlay) placeOf(key []byte) (place uint64, last int) {
	for place = o.hash(key); ; place++ {
		i, ok := o.latest[place]
		if !ok {
			return place, -1
		}
		if bytes.Equal(o.changes[i].key, key) {
			return place, i
		}
	}
}

// change is a key to set or, if drop is set, to remove.
type change struct {
	key, value []byte
	body       []byte // rest of the value, kept separately because it is large
	drop       bool
	over       bool // a later change of the same key replaces this change
	size       int  // of the removed value; 0 if unknown
	before     int  // the previous change of the same key, or -1
}

// get returns the value of a key, including the group's changes so far.
func (o *overlay) get(key []byte) ([]byte, bool, error) {
	if _, i := o.placeOf(key); i >= 0 {
		ch := &o.changes[i]
		return append(slices.Clip(ch.value), ch.body...), !ch.drop, nil
	}
	if slot, ok := o.recent.slots[string(key)]; ok {
		return slot.value, true, nil
	}
	return o.eng.Get(nil, key)
}

func (o *overlay) set(key, value []byte) { o.applyChange(change{key: key, value: value}) }

// setEntry sets a version in a log, and returns the size of its value.
func (o *overlay) setEntry(key []byte, e *entry) int {
	head := e.head(nil)
	o.applyChange(change{key: key, value: head, body: e.body})
	return len(head) + len(e.body)
}

// drop removes a key; size is the size of its value, or 0 if unknown.
func (o *overlay) drop(key []byte, size int) { o.applyChange(change{key: key, drop: true, size: size}) }

// applyChange adds a change. An earlier change of the same key stays in the list, because rollback goes back to that
// change.
func (o *overlay) applyChange(ch change) {
	place, last := o.placeOf(ch.key)
	if ch.before = last; last >= 0 {
		o.changes[last].over = true
	}
	o.latest[place] = len(o.changes)
	o.changes = append(o.changes, ch)
}

// rollback takes back all changes from the mark onward. rollback goes backwards, because a transaction may have
// changed a key twice, and because a key whose place was taken is stored after the key that took the place.
func (o *overlay) rollback(mark int) {
	for i := len(o.changes) - 1; i >= mark; i-- {
		ch := &o.changes[i]
		place, _ := o.placeOf(ch.key)
		if ch.before >= 0 {
			o.latest[place] = ch.before
			o.changes[ch.before].over = false
		} else {
			delete(o.latest, place)
		}
	}
	o.changes = o.changes[:mark]
}

// fill puts the last change of each key into a batch, sorted by key: the engine finds a key's place fast if the
// previous key's place is near.
func (o *overlay) fill(b engine.Batch) {
	last := make([]*change, 0, len(o.latest))
	for i := range o.changes {
		if ch := &o.changes[i]; !ch.over {
			last = append(last, ch)
		}
	}
	slices.SortFunc(last, func(a, b *change) int { return bytes.Compare(a.key, b.key) })
	for _, ch := range last {
		switch {
		case !ch.drop:
			b.Set(ch.key, ch.value, ch.body...)
		case ch.size > 0:
			b.DropSized(ch.key, ch.size)
		default:
			b.Drop(ch.key)
		}
	}
}
