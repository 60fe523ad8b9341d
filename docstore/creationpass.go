package docstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/millrace/changefeed/feed"
	"github.com/millrace/changefeed/internal/cosmosdb/service"
)

// Passes. A lookup of a moved document costs about as much as a dozen documents in a walk through the log, because a
// whole block of the engine is read for the document. So if many moved documents follow in the order of creation, the
// logs are walked instead, and the bodies of the documents with the next numbers are kept: as many as fit in memory.
// Each further part of the documents needs another pass.
//
// A pass is only faster. Documents that a pass does not find are looked up.

const (
	// lookupCost is how many documents a walk passes in the time of one lookup.
	lookupCost = 12

	// Passes begin when one of so many documents of a partition has been looked up, because a reader of a few pages
	// needs no pass.
	passAfter = 64

	rowBytes  = 384 // of a moved document in memory, without its body
	passParts = 16
)

// passRows returns how many moved documents a pass may take, or 0 if there must be none.
func (m *merge) passRows() int {
	if m.looked == 0 || m.looked*passAfter < int(m.part.docs.Load()) {
		return 0
	}
	rows := m.s.c.db.passBytes / (m.averageBytes() + rowBytes)
	if !m.isPassCheaper(rows) || !m.takeTurn() {
		return 0
	}
	return rows
}

// isPassCheaper reports whether a walk through the logs costs less than so many lookups.
func (m *merge) isPassCheaper(rows int) bool { return rows*lookupCost > int(m.part.docs.Load()) }

// takeTurn reports whether the reader has the memory for passes. A store has this memory once, as many bytes as its
// cache; other readers look their documents up meanwhile.
func (m *merge) takeTurn() bool {
	m.holdsTurn = m.holdsTurn || m.s.c.db.passing.CompareAndSwap(false, true)
	return m.holdsTurn
}

// endTurn gives the memory for passes back.
func (m *merge) endTurn() {
	if m.holdsTurn {
		m.s.c.db.passing.Store(false)
	}
}

// passLogs walks the logs and loads the moved documents. The walk alternates its direction by parts, because the parts
// that were read last are still in the engine's cache.
func (m *merge) passLogs(ctx context.Context) error {
	from := int64(0)
	if !m.s.c.db.hashed { // then the numbers say nothing about LSNs
		from = max(birthLSN(m.moved[0].number)-1, 0)
	}
	w := pass{m: m, room: m.s.c.db.passBytes}
	for i := range m.moved {
		w.numbers = append(w.numbers, m.moved[i].number)
	}
	size := (m.head-from)/passParts + 1
	for i := range int64(passParts) {
		if m.downwards {
			i = passParts - 1 - i
		}
		lo, hi := from+i*size, min(from+(i+1)*size, m.head)
		if lo >= hi {
			continue
		}
		if err := m.s.c.checkUsable(ctx); err != nil {
			return err
		}
		at := m.s.moment
		at.head = hi
		f, err := at.feed(m.logs, selection{rng: m.rng, begin: begin{lsn: lo, since: anyTime}})
		if err != nil {
			return err
		}
		if err := f.eachShown(ctx, &m.s.l.spec, w.take); err != nil {
			return err
		}
	}
	m.downwards = !m.downwards
	return nil
}

// pass is one walk through the logs for the moved documents of a queue.
type pass struct {
	m       *merge
	numbers []int64 // of the documents
	room    int     // bytes
	key     []byte
}

// take keeps a version if it belongs to a document of the queue.
func (w *pass) take(e *entry, a addr) (bool, error) {
	number := numberOf(e.body)
	if number < w.numbers[0] || number > w.numbers[len(w.numbers)-1] || number == birth(a) {
		return true, nil
	}
	at, found := slices.BinarySearch(w.numbers, number)
	if !found {
		return true, nil
	}
	doc := &w.m.moved[at]
	w.key = append(append(append(append(append(w.key[:0], e.epk...), 0), e.pk...), 0), e.id...)
	if !bytes.Equal(w.key, tailOf(doc.key)) {
		return true, nil
	}
	text := string(append(append(append(w.key[:0], e.id...), e.pk...), e.etag...))
	pk, etag := len(e.id), len(e.id)+len(e.pk)
	doc.item = Item{
		ID: text[:pk], Key: feed.PartitionKey(text[pk:etag]), ETag: text[etag:], LSN: a.lsn,
		Time: time.UnixMilli(e.time).UTC(), Body: bytes.Clone(e.body), Number: number,
	}
	doc.loaded = true
	w.m.looked++
	w.m.bytes += len(e.body)
	if w.room -= len(e.body) + rowBytes; w.room < 0 {
		w.halve()
	}
	return true, nil
}

// halve leaves the later half of the documents to the next pass, because the documents are larger than expected.
func (w *pass) halve() {
	if len(w.numbers) == 1 {
		return
	}
	n := (len(w.numbers) + 1) / 2
	for i := range w.m.moved[n:] {
		if doc := &w.m.moved[n+i]; doc.loaded {
			w.room += len(doc.item.Body) + rowBytes
		}
	}
	w.numbers = w.numbers[:n]
	w.m.cutMoved(n)
}

// numberOf returns the number in the resource id of a document, or 0 if the document has none.
func numberOf(body []byte) int64 {
	rid, err := decodeRID(service.SystemText(body, "_rid"))
	if err != nil || len(rid) < 8 {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(rid[len(rid)-8:]))
}
