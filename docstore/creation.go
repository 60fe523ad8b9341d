package docstore

import (
	"context"
	"fmt"
	"iter"
	"math"

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
	m, err := s.newMerge(rng, after)
	if err != nil {
		return err
	}
	defer m.endTurn()
	for {
		item, found, err := m.nextItem(ctx)
		if err != nil || !found || !yield(item, nil) {
			return err
		}
	}
}

// newMerge returns a merge for the documents of a range whose number is greater than after.
func (s *Snapshot) newMerge(rng feed.Range, after int64) (*merge, error) {
	part, head, err := s.partitionAt(rng)
	if err != nil {
		return nil, err
	}
	return &merge{
		s: s, part: part, logs: s.l.logsOf(part), rng: rng, after: after, head: head,
		walked: max(birthLSN(after)-1, 0), chunk: minChunk,
		movedQueue: movedQueue{movedAfter: after, movedChunk: minChunk},
	}, nil
}

// merge merges the log of a partition with the index of moved documents.
type merge struct {
	s     *Snapshot
	part  *partition
	logs  []uint32
	rng   feed.Range
	after int64 // numbers up to this one are left out
	head  int64

	fresh  []Item // documents at the place of their creation
	walked int64  // LSN up to which the logs were read
	chunk  int
	passed int // versions of moved documents in the logs so far

	movedQueue
}

// nextItem returns the document with the lowest number.
func (m *merge) nextItem(ctx context.Context) (Item, bool, error) {
	for {
		if len(m.moved) == 0 && !m.movedEnd {
			if err := m.refillMoved(ctx); err != nil {
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
			return Item{}, false, m.checkEnd()
		case !m.moved[0].loaded:
			if err := m.loadMoved(); err != nil {
				return Item{}, false, err
			}
		default:
			doc := m.moved[0]
			m.moved = m.moved[1:]
			if !doc.gone {
				m.shown++
				return doc.item, true, nil
			}
		}
	}
}

// checkEnd compares how many moved documents the logs and the index have. A reader from the beginning to the end has
// walked all logs, so a document that the index lacks is noticed here, and is not silently missing.
func (m *merge) checkEnd() error {
	if m.passed == m.shown || m.after > 0 || m.s.c.db.hashed { // hashes say nothing about the place in the logs
		return nil
	}
	return fmt.Errorf("%w: index of moved items has %d items, and the logs have %d", ErrCorrupt, m.shown, m.passed)
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
			m.passed++
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
