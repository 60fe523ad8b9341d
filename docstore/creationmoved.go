package docstore

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/millrace/changefeed/docstore/internal/engine"
)

// How a reader in the order of creation finds moved documents; see creation.go.

// movedQueue is the moved documents that a merge reads next, in the order of their numbers.
type movedQueue struct {
	moved      []movedDoc
	movedAfter int64 // number up to which the index was read
	movedChunk int
	movedEnd   bool
	shown      int // documents that the reader has got

	looked    int // documents that were loaded, and their bytes
	bytes     int
	holdsTurn bool // see takeTurn
	downwards bool // direction of the next pass
}

// checkSlot refuses a document that the index has in a wrong place.
func (l *lookup) checkSlot() error {
	_, pk, id, err := splitDoc(tailOf(l.key))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	want := l.slot.born
	if want == 0 {
		want = hashedNumber(string(pk), string(id))
	}
	if want != l.number || !l.slot.isMoved() {
		return fmt.Errorf("%w: index of moved items has item %q with number %d, whose number is %d (moved: %t)", ErrCorrupt,
			id, l.number, want, l.slot.isMoved())
	}
	return nil
}

// maxMoved is how many moved documents are looked up at once.
const maxMoved = 4096

// movedDoc is a document in the index of moved documents: its number, and its key in the primary index.
type movedDoc struct {
	number int64
	key    []byte
	item   Item
	loaded bool
	gone   bool // the document was loaded and has expired
}

// lookup is a moved document that is being looked up, with its entry in the primary index.
type lookup struct {
	*movedDoc
	slot slot
}

// refillMoved reads a chunk of the index of moved documents. If many of them follow, their bodies are read in a pass.
// Chunks grow slowly, because each lookup is expensive and a reader of a page needs only the page.
func (m *merge) refillMoved(ctx context.Context) error {
	rows := m.passRows()
	if err := m.readMoved(ctx, max(rows, m.movedChunk)); err != nil {
		return err
	}
	m.movedChunk = min(2*m.movedChunk, maxMoved)
	if rows > 0 && m.isPassCheaper(len(m.moved)) {
		return m.passLogs(ctx)
	}
	return nil
}

// readMoved reads a chunk of the index of moved documents.
func (m *merge) readMoved(ctx context.Context, chunk int) error {
	if err := m.s.c.checkUsable(ctx); err != nil {
		return err
	}
	m.moved = m.moved[:0:0] // callers have its items
	whole := true
	for _, log := range m.logs {
		more, err := m.readMovedOf(log, chunk)
		if err != nil {
			return err
		}
		whole = whole && !more
	}
	slices.SortFunc(m.moved, func(a, b movedDoc) int { return cmp.Compare(a.number, b.number) })
	m.movedEnd = whole
	if !whole {
		// The chunks of several logs end at different numbers, and the lowest counts.
		m.cutMoved(min(len(m.moved), chunk))
	}
	return nil
}

// cutMoved leaves the rest of the moved documents to the next chunk.
func (m *merge) cutMoved(n int) {
	clear(m.moved[n:])
	m.moved = m.moved[:n]
	m.movedAfter, m.movedEnd = m.moved[n-1].number, false
}

// readMovedOf adds a chunk of the moved documents of a log, and reports whether the log has more.
func (m *merge) readMovedOf(log uint32, chunk int) (more bool, err error) {
	cont := m.s.c.num
	it, err := m.s.held.view.Cursor(movedFrom(cont, log, m.movedAfter+1, 0), movedFrom(cont, log+1, 0, 0))
	if err != nil {
		return false, err
	}
	defer it.CloseInto(&err, "close cursor")
	own := 0
	for ok := it.First(); ok; ok = it.Next() {
		_, number, doc, err := splitMoved(tailOf(it.Key()))
		if err != nil {
			return false, err
		}
		if epk, _, _ := bytes.Cut(doc, []byte{0}); !m.rng.Holds(string(epk)) {
			continue
		}
		if own == chunk {
			return true, nil
		}
		own++
		m.moved = append(m.moved, movedDoc{number: number, key: append(tableKey(tableDoc, cont, len(doc)), doc...)})
	}
	return false, it.Err()
}

// loadMoved looks up the next moved documents, of about the size of a page. They are looked up in the order of the
// primary index, and then of the logs, because neighbours are in the same blocks of the engine.
func (m *merge) loadMoved() (err error) {
	table := tableKey(tableDoc, m.s.c.num, 0)
	it, err := m.s.held.view.Cursor(table, engine.After(table))
	if err != nil {
		return err
	}
	defer it.CloseInto(&err, "close cursor")
	batch := m.nextBatch()
	slices.SortFunc(batch, func(a, b lookup) int { return bytes.Compare(a.key, b.key) })
	for i := range batch {
		value, err := valueAt(it, batch[i].key)
		if err != nil {
			return err
		}
		if batch[i].slot, err = decodeSlot(value); err != nil {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		if err := batch[i].checkSlot(); err != nil {
			return err
		}
	}
	slices.SortFunc(batch, func(a, b lookup) int { return cmp.Compare(a.number, b.number) })
	n, size := 0, 0
	for ; n < len(batch) && (n == 0 || size < maxPageBytes); n++ {
		size += batch[n].slot.size
	}
	m.looked += n
	m.bytes += size
	return m.loadBodies(batch[:n])
}

// nextBatch returns the next documents that are not loaded yet: as many as the last chunk has, and at most about as
// many as a page has.
func (m *merge) nextBatch() (batch []lookup) {
	most := m.movedChunk
	if m.looked > 0 {
		most = min(most, max(1, maxPageBytes/max(1, m.averageBytes())))
	}
	for i := 0; i < len(m.moved) && len(batch) < most; i++ {
		if !m.moved[i].loaded {
			batch = append(batch, lookup{movedDoc: &m.moved[i]})
		}
	}
	return batch
}

// averageBytes returns about how large a moved document is.
func (m *merge) averageBytes() int { return m.bytes / max(1, m.looked) }

// loadBodies reads the last versions of moved documents.
func (m *merge) loadBodies(batch []lookup) (err error) {
	table := tableKey(tableLog, m.s.c.num, 0)
	it, err := m.s.held.view.Cursor(table, engine.After(table))
	if err != nil {
		return err
	}
	defer it.CloseInto(&err, "close cursor")
	slices.SortFunc(batch, func(a, b lookup) int {
		return cmp.Or(cmp.Compare(a.slot.log, b.slot.log), cmp.Compare(a.slot.lsn, b.slot.lsn),
			cmp.Compare(a.slot.idx, b.slot.idx))
	})
	for i := range batch {
		doc, at := batch[i].movedDoc, &batch[i].slot
		doc.loaded = true
		if doc.gone = m.s.l.spec.expired(at.time, at.ttl, m.s.held.now); doc.gone {
			continue
		}
		value, err := valueAt(it, logKey(tableLog, m.s.c.num, at.addr))
		if err != nil {
			return err
		}
		e, err := decodeEntry(slices.Clone(value))
		if err != nil {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		doc.item = e.itemOf(at)
	}
	return nil
}

// valueAt returns the value of a key that must exist.
func valueAt(it *engine.Cursor, key []byte) ([]byte, error) {
	if !it.Seek(key) || !bytes.Equal(it.Key(), key) {
		return nil, cmp.Or(it.Err(), fmt.Errorf("%w: %s, which an index names, is missing", ErrCorrupt,
			describeKey(key, unnamed)))
	}
	return it.Value()
}
