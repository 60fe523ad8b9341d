package docstore

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/millrace/changefeed/docstore/internal/engine"
	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// The order of creation. A document that was never replaced has its only version at the LSN of its creation, so a log
// already has these documents in this order. Only a replaced document is out of place, because its last version comes
// later in the log. An index has the replaced documents alone, by the number in their resource id. A reader merges
// the log with that index.
//
// So a create writes nothing for the order, and only the first replace of a document writes a key. Containers whose
// documents are never replaced are read as fast as a feed.

// Documents yields the documents of a range whose number is greater than after, in the order of their numbers, which
// is the order of creation; see [Item]. If the range spans several partitions, you get [feed.ErrGone]. An error comes
// as the last pair.
func (s *Snapshot) Documents(ctx context.Context, rng feed.Range, after int64) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		if err := s.documents(ctx, rng, after, yield); err != nil {
			yield(Item{}, fmt.Errorf("read documents of %q: %w", s.c.ID(), err))
		}
	}
}

// documents calls yield for the documents of a range until yield returns false.
func (s *Snapshot) documents(ctx context.Context, rng feed.Range, after int64, yield func(Item, error) bool) error {
	part, err := s.l.partitionOfAll(rng)
	if err != nil {
		return err
	}
	head, err := s.LSN()
	if err != nil {
		return err
	}
	m := merge{
		s: s, logs: s.l.logsOf(part), rng: rng, after: after, head: head,
		walked: max(birthLSN(after)-1, 0), movedAfter: after, chunk: minChunk, movedChunk: minChunk,
	}
	for {
		item, found, err := m.nextItem(ctx)
		if err != nil || !found || !yield(item, nil) {
			return err
		}
	}
}

// merge merges the log of a partition with the index of moved documents.
type merge struct {
	s     *Snapshot
	logs  []uint32
	rng   feed.Range
	after int64 // numbers up to this one are left out
	head  int64

	fresh  []Item // documents at the place of their creation
	walked int64  // LSN up to which the logs were read
	chunk  int

	moved      []movedDoc
	loaded     int   // how many of these have been looked up
	movedAfter int64 // number up to which the index was read
	movedChunk int
	movedEnd   bool
}

// movedDoc is a document in the index of moved documents: its number, and its key in the primary index. A document
// that was looked up and has expired has no item.
type movedDoc struct {
	number int64
	key    []byte
	slot   slot
	item   *Item
}

// nextItem returns the document with the lowest number.
func (m *merge) nextItem(ctx context.Context) (Item, bool, error) {
	for {
		if len(m.moved) == 0 && !m.movedEnd {
			if err := m.readMoved(ctx); err != nil {
				return Item{}, false, err
			}
		}
		next := int64(math.MaxInt64)
		if len(m.moved) > 0 {
			next = m.moved[0].number
		}
		switch {
		case len(m.fresh) > 0 && m.fresh[0].Number < next:
			item := m.fresh[0]
			m.fresh = m.fresh[1:]
			return item, true, nil
		case len(m.fresh) == 0 && m.walked < min(birthLSN(next), m.head):
			if err := m.readFresh(ctx, birthLSN(next)); err != nil {
				return Item{}, false, err
			}
		case len(m.moved) == 0:
			return Item{}, false, nil
		case m.loaded == 0:
			if err := m.loadMoved(); err != nil {
				return Item{}, false, err
			}
		default:
			item := m.moved[0].item
			m.moved, m.loaded = m.moved[1:], m.loaded-1
			if item != nil {
				return *item, true, nil
			}
		}
	}
}

// readMoved reads a chunk of the index of moved documents.
func (m *merge) readMoved(ctx context.Context) error {
	if err := m.s.c.checkUsable(ctx); err != nil {
		return err
	}
	whole := true
	for _, log := range m.logs {
		more, err := m.readMovedOf(log)
		if err != nil {
			return err
		}
		whole = whole && !more
	}
	slices.SortFunc(m.moved, func(a, b movedDoc) int { return cmp.Compare(a.number, b.number) })
	m.movedEnd = whole
	if !whole {
		// The chunks of several logs end at different numbers, and the lowest counts.
		m.moved = m.moved[:min(len(m.moved), m.movedChunk)]
		m.movedAfter = m.moved[len(m.moved)-1].number
	}
	m.movedChunk = min(4*m.movedChunk, maxChunk)
	return nil
}

// readMovedOf adds a chunk of the moved documents of a log, and reports whether the log has more.
func (m *merge) readMovedOf(log uint32) (more bool, err error) {
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
		if own == m.movedChunk {
			return true, nil
		}
		own++
		m.moved = append(m.moved, movedDoc{number: number, key: append(tableKey(tableDoc, cont, len(doc)), doc...)})
	}
	return false, it.Err()
}

// loadMoved looks up moved documents of about the size of a page. They are looked up in the order of the primary
// index, and then of the logs, because neighbours are in the same blocks of the engine.
func (m *merge) loadMoved() (err error) {
	table := tableKey(tableDoc, m.s.c.num, 0)
	it, err := m.s.held.view.Cursor(table, engine.After(table))
	if err != nil {
		return err
	}
	defer it.CloseInto(&err, "close cursor")
	batch := m.moved[:min(len(m.moved), maxLoad)]
	byKey := pointers(batch, func(a, b *movedDoc) int { return bytes.Compare(a.key, b.key) })
	for _, doc := range byKey {
		value, err := valueAt(it, doc.key)
		if err != nil {
			return err
		}
		if doc.slot, err = decodeSlot(value); err != nil {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
	}
	size := 0
	for m.loaded = 0; m.loaded < len(batch) && (m.loaded == 0 || size < maxPageBytes); m.loaded++ {
		size += batch[m.loaded].slot.size
	}
	return m.loadBodies(batch[:m.loaded])
}

// maxLoad is how many moved documents are looked up at once.
const maxLoad = 256

// loadBodies reads the last versions of moved documents.
func (m *merge) loadBodies(batch []movedDoc) (err error) {
	table := tableKey(tableLog, m.s.c.num, 0)
	it, err := m.s.held.view.Cursor(table, engine.After(table))
	if err != nil {
		return err
	}
	defer it.CloseInto(&err, "close cursor")
	byPlace := pointers(batch, func(a, b *movedDoc) int {
		return cmp.Or(cmp.Compare(a.slot.log, b.slot.log), cmp.Compare(a.slot.lsn, b.slot.lsn),
			cmp.Compare(a.slot.idx, b.slot.idx))
	})
	for _, doc := range byPlace {
		if m.s.l.spec.expired(doc.slot.time, doc.slot.ttl, m.s.held.now) {
			continue
		}
		value, err := valueAt(it, logKey(tableLog, m.s.c.num, doc.slot.addr))
		if err != nil {
			return err
		}
		e, err := decodeEntry(slices.Clone(value))
		if err != nil {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		doc.item = new(e.itemOf(&doc.slot))
	}
	return nil
}

// pointers returns pointers to documents in another order.
func pointers(docs []movedDoc, order func(a, b *movedDoc) int) []*movedDoc {
	list := make([]*movedDoc, len(docs))
	for i := range docs {
		list[i] = &docs[i]
	}
	slices.SortFunc(list, order)
	return list
}

// valueAt returns the value of a key that must exist.
func valueAt(it *engine.Cursor, key []byte) ([]byte, error) {
	if !it.Seek(key) || !bytes.Equal(it.Key(), key) {
		return nil, cmp.Or(it.Err(), fmt.Errorf("%w: key %q, which an index names, is missing", ErrCorrupt, key))
	}
	return it.Value()
}

// skipSlack is how many versions of moved documents a chunk may skip in vain. A walk beyond the needed LSN goes on
// only while the walk finds documents, because a log may end with millions of versions of moved documents.
const skipSlack = 64

// readFresh reads a chunk of the documents that are at the place of their creation. The documents up to the LSN
// needed are read in any case.
func (m *merge) readFresh(ctx context.Context, needed int64) error {
	if err := m.s.c.checkUsable(ctx); err != nil {
		return err
	}
	at := m.s.moment
	at.head = m.head
	f, err := at.feed(m.logs, selection{rng: m.rng, begin: begin{lsn: m.walked, since: anyTime}})
	if err != nil {
		return err
	}
	b := &pageBuilder{max: m.chunk, hint: &m.s.c.hint, PageMemory: new(PageMemory)}
	m.chunk = min(4*m.chunk, maxChunk)
	var numbers []int64
	skipped, last := 0, m.walked
	f.stop = func(lsn int64) bool {
		idle := lsn > needed && skipped > skipSlack+4*len(numbers)
		if lsn != last && (b.full() || idle) {
			return true
		}
		last = lsn
		return false
	}
	err = f.eachShown(ctx, &m.s.l.spec, func(e *entry, a addr) (bool, error) {
		number := birth(a)
		if e.op != opCreate || !isBorn(m.s.c, e, number) {
			skipped++
			return true, nil
		}
		if number <= m.after {
			return true, nil
		}
		numbers = append(numbers, number)
		return true, b.add(m.s.c, nil, e, a.lsn, feed.LatestVersion)
	})
	if err != nil {
		return err
	}
	if m.walked = m.head; f.stopped {
		m.walked = last
	}
	m.fresh = m.fresh[:0]
	for i, ch := range b.cutChanges() {
		m.fresh = append(m.fresh, Item{
			ID: ch.ID, Key: ch.PartitionKey, ETag: ch.ETag, LSN: ch.LSN, Time: ch.Time, Body: ch.Body,
			Number: numbers[i],
		})
	}
	return nil
}

// isBorn reports whether a document has the number of a version that created it. In stores of older versions, some
// documents have the number of a hash instead.
func isBorn(c *Container, e *entry, number int64) bool {
	return !c.db.hashed || service.SystemText(e.body, "_rid") == itemRID(c.own, number, "", "")
}
