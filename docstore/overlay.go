package docstore

import (
	"bytes"
	"hash/maphash"
	"slices"

	"github.com/millrace/changefeed/docstore/internal/engine"
)

// overlay is the keys that a group has changed so far, over the engine's state: a write
// sees those of the group before it, and those of a refused transaction are taken back.
type overlay struct {
	eng     *engine.Engine
	recent  *recent
	changes []change
	latest  map[uint64]int // place of a key (see find) to its last change
	hash    func(key []byte) uint64
}

func newOverlay(eng *engine.Engine, r *recent) overlay {
	return overlay{eng: eng, recent: r, latest: map[uint64]int{}, hash: placeOf}
}

var placeSeed = maphash.MakeSeed()

func placeOf(key []byte) uint64 { return maphash.Bytes(placeSeed, key) }

// placeOf returns the place of a key in latest, and its last change; -1 for none. The place is the
// first from the hash of the key on that has the key or is free: a map by keys would need a
// copy of each.
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

// change is one key to set or, with drop, to remove.
type change struct {
	key, value []byte
	body       []byte // the rest of the value, which is large and therefore not joined to it
	drop       bool
	over       bool // a later change of the same key is in its place
	size       int  // of the value dropped, where known
	before     int  // the change of the same key before this one, or -1
}

// get is the value of a key as the group has it so far.
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

// drop removes a key, whose value has this size where that is known.
func (o *overlay) drop(key []byte, size int) { o.applyChange(change{key: key, drop: true, size: size}) }

// applyChange adds a change after an earlier one of the same key, which stays: rollback goes
// back to it.
func (o *overlay) applyChange(ch change) {
	place, last := o.placeOf(ch.key)
	if ch.before = last; last >= 0 {
		o.changes[last].over = true
	}
	o.latest[place] = len(o.changes)
	o.changes = append(o.changes, ch)
}

// rollback takes back all changes from the mark on.
// The way is backwards, because a transaction may have changed a key twice, and because a key
// whose place was not free stands after the one that had it.
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

// fill puts the last change of each key into a batch, in the order of the keys: the
// engine finds the place of a key fast if it is near that of the key before.
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
