package docstore

import (
	"bytes"
	"slices"
)

// overlay is the keys that a group has changed so far, over the engine's state: a write
// sees those of the group before it, and those of a refused transaction are taken back.
type overlay struct {
	eng     *engine
	recent  *recent
	changes []change
	latest  map[string]int // key to its last change
}

func newOverlay(eng *engine, r *recent) overlay {
	return overlay{eng: eng, recent: r, latest: map[string]int{}}
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
	if i, ok := o.latest[string(key)]; ok {
		ch := &o.changes[i]
		return append(slices.Clip(ch.value), ch.body...), !ch.drop, nil
	}
	if value, ok := o.recent.slots[string(key)]; ok {
		return value, true, nil
	}
	return o.eng.get(nil, key)
}

func (o *overlay) set(key, value []byte) { o.apply(change{key: key, value: value}) }

// setEntry sets a version in a log, and returns the size of its value.
func (o *overlay) setEntry(key []byte, e *entry) int {
	head := e.head(nil)
	o.apply(change{key: key, value: head, body: e.body})
	return len(head) + len(e.body)
}

// drop removes a key, whose value has this size where that is known.
func (o *overlay) drop(key []byte, size int) { o.apply(change{key: key, drop: true, size: size}) }

// apply adds a change after an earlier one of the same key, which stays: rollback goes
// back to it.
func (o *overlay) apply(ch change) {
	ch.before = -1
	if i, ok := o.latest[string(ch.key)]; ok {
		ch.before = i
		o.changes[i].over = true
	}
	o.latest[string(ch.key)] = len(o.changes)
	o.changes = append(o.changes, ch)
}

// rollback takes back all changes from the mark on.
// The way is backwards, because a transaction may have changed a key twice.
func (o *overlay) rollback(mark int) {
	for i := len(o.changes) - 1; i >= mark; i-- {
		ch := &o.changes[i]
		if ch.before >= 0 {
			o.latest[string(ch.key)] = ch.before
			o.changes[ch.before].over = false
		} else {
			delete(o.latest, string(ch.key))
		}
	}
	o.changes = o.changes[:mark]
}

// fill puts the last change of each key into a batch, in the order of the keys: the
// engine finds the place of a key fast if it is near that of the key before.
func (o *overlay) fill(b batch) {
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
			b.set(ch.key, ch.value, ch.body...)
		case ch.size > 0:
			b.dropSized(ch.key, ch.size)
		default:
			b.drop(ch.key)
		}
	}
}
