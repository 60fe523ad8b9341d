package docstore

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/millrace/changefeed/docstore/internal/engine"
	"github.com/millrace/changefeed/feed"
)

// Snapshot is the documents of a container at a single LSN. A snapshot contains each document that existed then,
// once, and all or none of a transaction. Later writes, deletes, expiries, moves by a split and removals by the
// retention do not change the snapshot. Everything in the snapshot is safe on the disk and cannot be lost any more.
//
// The engine keeps all data that a snapshot shows, so hold a snapshot for a page, not for a session, and close every
// snapshot. Use a snapshot in a single goroutine only.
//
// A feed needs no snapshot. A version that is superseded during the read of a page may be missing in the page, but
// its successor comes later in the feed. A query has an end, so a query would miss the document.
type Snapshot struct{ moment }

// held is the state of the engine that all reads of a snapshot share.
type held struct {
	view engine.View
	now  int64            // time of the container, which decides which documents have expired
	lows map[uint32]int64 // low-water marks, by log
}

// Snapshot takes a snapshot of the present documents. Snapshot waits for the writes that are being written to the
// disk. Errors: [feed.ErrNotFound] if the container was deleted, [ErrClosed], [ErrFailed], and the cause of ctx.
func (c *Container) Snapshot(ctx context.Context) (*Snapshot, error) {
	s, err := takeSnapshot(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("take snapshot of %q: %w", c.ID(), err)
	}
	return s, nil
}

// takeSnapshot takes a snapshot and waits until all its contents are safe on the disk.
func takeSnapshot(ctx context.Context, c *Container) (*Snapshot, error) {
	if err := c.checkUsable(ctx); err != nil {
		return nil, err
	}
	for {
		s := &Snapshot{moment{c: c, l: c.layout.Load()}}
		err := s.holdState()
		if err == nil {
			err = c.db.awaitSafe(ctx, c)
		}
		if err == nil {
			return s, nil
		}
		if failed := s.Close(); failed != nil || !errors.Is(err, errMoved) {
			return nil, errors.Join(err, failed)
		}
	}
}

// holdState takes the time, the low-water marks and the state of the engine, in this order and after the layout. If a
// mark or the time were taken after the state, they would hide documents that the state still contains: a document
// replaced since, or a document renewed before it expired.
//
// The state may contain a group that is not published yet. If this group is a control, the layout is the layout
// before the control. This layout fits the state anyway, because a control changes either the layout or the places of
// versions, never both.
func (s *Snapshot) holdState() error {
	s.held = &held{now: s.c.clock.now()}
	for num, log := range s.l.logs {
		if low := log.low.Load(); low > 0 {
			if s.held.lows == nil {
				s.held.lows = make(map[uint32]int64, len(s.l.logs))
			}
			s.held.lows[num] = low
		}
	}
	s.held.view = s.c.db.eng.View()
	if s.c.layout.Load() != s.l {
		return errMoved
	}
	return nil
}

// Close frees the snapshot.
func (s *Snapshot) Close() error { return s.held.view.Close() }

// LSN returns the newest LSN whose documents the snapshot contains. The snapshot reads its LSN at the first call,
// because looking up documents does not need it.
func (s *Snapshot) LSN() (int64, error) {
	if s.head > 0 {
		return s.head, nil
	}
	value, found, err := s.held.view.Get(headKey(s.c.num))
	if err != nil || !found { // the container was never written to
		return 0, err
	}
	var numbers [2]int64
	if err := decodeNumbers(value, numbers[:]); err != nil {
		return 0, fmt.Errorf("%w: head of container %q: %w", ErrCorrupt, s.c.ID(), err)
	}
	s.head = numbers[0]
	return s.head, nil
}

// Partitions returns the physical partitions, sorted by range.
func (s *Snapshot) Partitions() []feed.Partition { return describe(s.l.parts) }

// A walk through a log copies documents in chunks. The first chunk is small, because many readers need no more; each
// further chunk is four times as large.
const (
	minChunk = 16
	maxChunk = 1000
)

// Unordered yields the documents of a range, each once, in the order that is fastest to read: that of their last
// writes. They have no [Item.Number]. If the range spans several partitions, you get [feed.ErrGone]. An error comes as
// the last pair.
func (s *Snapshot) Unordered(ctx context.Context, rng feed.Range) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		if err := s.unordered(ctx, rng, yield); err != nil {
			yield(Item{}, fmt.Errorf("read documents of %q: %w", s.c.ID(), err))
		}
	}
}

// partitionAt returns the partition of a range, and the LSN of the snapshot.
func (s *Snapshot) partitionAt(rng feed.Range) (*partition, int64, error) {
	part, err := s.l.partitionOfAll(rng)
	if err != nil {
		return nil, 0, err
	}
	head, err := s.LSN()
	return part, head, err
}

// unordered calls yield for the documents of a range until yield returns false.
func (s *Snapshot) unordered(ctx context.Context, rng feed.Range, yield func(Item, error) bool) error {
	part, head, err := s.partitionAt(rng)
	if err != nil {
		return err
	}
	sel := selection{rng: rng, begin: begin{since: anyTime}}
	for chunk := minChunk; sel.lsn < head; chunk = min(4*chunk, maxChunk) {
		if err := s.c.checkUsable(ctx); err != nil {
			return err
		}
		b := &pageBuilder{max: chunk, hint: &s.c.hint, PageMemory: new(PageMemory)}
		if sel.lsn, err = s.collectPage(ctx, b, part, sel); err != nil {
			return err
		}
		for _, ch := range b.cutChanges() {
			if !yield(Item{ID: ch.ID, Key: ch.PartitionKey, ETag: ch.ETag, LSN: ch.LSN, Time: ch.Time, Body: ch.Body},
				nil) {
				return nil
			}
		}
	}
	return nil
}

// Item returns a document of the snapshot, or [feed.ErrNotFound]. The key must have all
// levels.
func (s *Snapshot) Item(ctx context.Context, key feed.PartitionKey, id string) (Item, error) {
	rng, pk, err := s.l.keyRange(string(key))
	if err == nil && pk == "" {
		_, err = s.l.hashKey(string(key)) // the error names the missing levels
	}
	if err == nil {
		err = s.c.checkUsable(ctx)
	}
	var item Item
	found := false
	if err == nil {
		item, found, err = s.lookUp(docKey(s.c.num, rng.Min, pk, id))
	}
	if err == nil && !found {
		err = feed.ErrNotFound
	}
	if err != nil {
		return Item{}, fmt.Errorf("read item %q of %q: %w", id, s.c.ID(), err)
	}
	return item, nil
}

// lookUp returns the document at a key of the primary index.
func (s *Snapshot) lookUp(key []byte) (Item, bool, error) {
	value, found, err := s.held.view.Get(key)
	if err != nil || !found {
		return Item{}, false, err
	}
	at, err := decodeSlot(value)
	if err != nil {
		return Item{}, false, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if s.l.spec.expired(at.time, at.ttl, s.held.now) {
		return Item{}, false, nil
	}
	value, found, err = s.held.view.Get(logKey(tableLog, s.c.num, at.addr))
	if err != nil {
		return Item{}, false, err
	}
	if !found {
		return Item{}, false, fmt.Errorf("%w: no entry at LSN %d of log %d", ErrCorrupt, at.lsn, at.log)
	}
	e, err := decodeEntry(value)
	if err != nil {
		return Item{}, false, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return e.itemOf(&at), true, nil
}
