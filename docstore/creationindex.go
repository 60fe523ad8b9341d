package docstore

import (
	"encoding/binary"
	"fmt"

	"github.com/millrace/changefeed/docstore/internal/fields"
)

// The index of moved documents, for the order of creation; see creation.go.

// number returns the number in the resource id of a document. Resource ids made by older versions contain a hash.
func (s *slot) number(pk, id string) int64 {
	if s.born != 0 {
		return s.born
	}
	return hashedNumber(pk, id)
}

// isMoved reports whether a document's last version is at another place than its creation, so the document is in the
// index of moved documents.
func (s *slot) isMoved() bool { return s.born != birth(s.addr) }

// movedKey returns the key of a document in the index of moved documents. The index is divided by the logs of the
// last versions, so that a reader of a partition reads only the documents of its own logs.
func movedKey(cont, log uint32, number int64, doc []byte) []byte {
	return append(movedFrom(cont, log, number, len(doc)), doc...)
}

// movedFrom returns the beginning of the keys with a number.
func movedFrom(cont, log uint32, number int64, room int) []byte {
	key := binary.BigEndian.AppendUint32(tableKey(tableMoved, cont, 4+8+room), log)
	return binary.BigEndian.AppendUint64(key, uint64(number))
}

// splitMoved splits the tail of a key of movedKey.
func splitMoved(tail []byte) (log uint32, number int64, doc []byte, err error) {
	if len(tail) < 4+8 {
		return 0, 0, nil, fmt.Errorf("key of %d bytes: %w", len(tail), fields.ErrShort)
	}
	return binary.BigEndian.Uint32(tail), int64(binary.BigEndian.Uint64(tail[4:])), tail[4+8:], nil
}

// noteMove changes the index of moved documents when the slot at a key of the primary index changes. A slot that is
// nil does not exist.
func (g *group) noteMove(cont uint32, key []byte, before, after *slot) {
	was, is := before != nil && before.isMoved(), after != nil && after.isMoved()
	if was == is && (!was || before.log == after.log) {
		return
	}
	doc := tailOf(key)
	_, pk, id, _ := splitDoc(doc) // made by docKey
	if was {
		g.drop(movedKey(cont, before.log, before.number(string(pk), string(id)), doc), 0)
	}
	if is {
		g.set(movedKey(cont, after.log, after.number(string(pk), string(id)), doc), nil)
	}
}

// orderAll builds the index of moved documents in a store of an older version. If the build is interrupted, the next
// one begins again, because an older program may have changed the documents meanwhile.
func (ld loader) orderAll() (err error) {
	w := ld.db.eng.NewBatch(0)
	w.DropRange([]byte{tableMoved}, []byte{tableMoved + 1})
	it, err := ld.db.eng.Cursor([]byte{tableDoc}, []byte{tableDoc + 1})
	if err != nil {
		return err
	}
	defer it.CloseInto(&err, "close cursor")
	size, hashed := 0, false
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.Value()
		if err != nil {
			return err
		}
		moved, old, err := movedKeyOf(it.Key(), value)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		hashed = hashed || old
		if moved == nil {
			continue
		}
		w.Set(moved, nil)
		if size += len(moved); size > orderBatch {
			if err := w.Commit(); err != nil {
				return err
			}
			w, size = ld.db.eng.NewBatch(0), 0
		}
	}
	if hashed {
		w.Set(metaKey("hashed"), nil)
		ld.db.hashed = true
	}
	if err := it.Err(); err != nil {
		return err
	}
	return w.Commit()
}

// orderBatch is how many bytes of keys are written at once while the index is built.
const orderBatch = 1 << 20

// movedKeyOf returns the key in the index of moved documents for an entry of the primary index, or nil if the
// document is not moved; hashed reports whether its number is a hash.
func movedKeyOf(key, value []byte) (moved []byte, hashed bool, err error) {
	cont, tail, err := splitKey(key)
	if err != nil {
		return nil, false, err
	}
	s, err := decodeSlot(value)
	if err != nil || !s.isMoved() {
		return nil, false, err
	}
	_, pk, id, err := splitDoc(tail)
	return movedKey(cont, s.log, s.number(string(pk), string(id)), tail), s.born == 0, err
}

// checkMoved verifies that an entry of the index of moved documents has its document.
func (k *checker) checkMoved(tail, _ []byte) error {
	log, number, doc, err := splitMoved(tail)
	if err != nil {
		return err
	}
	s, err := k.slotOf(doc)
	if err != nil {
		return err
	}
	_, pk, id, err := splitDoc(doc)
	if err == nil && (s == nil || !s.isMoved() || s.log != log || s.number(string(pk), string(id)) != number) {
		k.addViolation("index of moved items has %q with number %d in log %d, but the item has not", doc, number, log)
	}
	return err
}

// checkOrder verifies that a moved document is in its index.
func (k *checker) checkOrder(s slot, doc, pk, id []byte) error {
	if !k.db.ordered {
		return nil
	}
	if s.born == 0 && !k.db.hashed {
		k.addViolation("item %q has a hash for a number, and the store says that none has", id)
	}
	if !s.isMoved() {
		return nil
	}
	return k.checkPresent("index of moved items", movedKey(k.cont, s.log, s.number(string(pk), string(id)), doc), nil)
}
