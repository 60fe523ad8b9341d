package docstore

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/millrace/changefeed/docstore/internal/engine"
	"github.com/millrace/changefeed/feed"
)

// Snapshot is the documents of a container at one LSN: each document that was there then, once,
// and a transaction whole or not at all. What is written, deleted, expired, moved by a split or
// forgotten afterwards does not show. All of the snapshot has been acknowledged, or is about to
// be: nothing of it can be lost any more.
//
// The engine keeps what a snapshot shows, so hold one for a page and not for a session, and
// close it. A snapshot is for one goroutine.
//
// A feed needs none. A version that is superseded while a page is read may be missing there,
// because its successor comes later in the feed; a query ends, and would miss the document.
type Snapshot struct{ moment }

// held is the state of the engine that all reads of a snapshot share.
type held struct {
	view engine.View
	now  int64            // time of the container, which decides who has expired
	lows map[uint32]int64 // low-water marks, by log
}

// Snapshot takes the present documents. It waits for the writes that are on their way to the
// disk. Errors: [feed.ErrNotFound] if the container was deleted, [ErrClosed], [ErrFailed],
// and the cause of ctx.
func (c *Container) Snapshot(ctx context.Context) (*Snapshot, error) {
	s, err := takeSnapshot(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("take snapshot of %q: %w", c.ID(), err)
	}
	return s, nil
}

// takeSnapshot takes a snapshot and waits until all of it is safe.
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

// holdState takes time, low-water marks and state of the engine, in this order and after the layout. A
// mark or a time of after the state would hide documents which the state still has: one that has
// been replaced since, or one that was renewed before it expired.
//
// The state may be that of after a group that is not published yet. If the group is a control,
// the layout is then that of before. It fits all the same, because a control changes either the
// layout or the places of versions, and not both.
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

// Close gives the snapshot back.
func (s *Snapshot) Close() error { return s.held.view.Close() }

// LSN returns the newest LSN of which the snapshot has the documents. It is read when it is first
// asked for: looking up documents does not need it.
func (s *Snapshot) LSN() (int64, error) {
	if s.head > 0 {
		return s.head, nil
	}
	value, found, err := s.held.view.Get(headKey(s.c.num))
	if err != nil || !found { // nothing has been written
		return 0, err
	}
	var numbers [2]int64
	if err := decodeNumbers(value, numbers[:]); err != nil {
		return 0, fmt.Errorf("%w: head of container %q: %w", ErrCorrupt, s.c.ID(), err)
	}
	s.head = numbers[0]
	return s.head, nil
}

// Partitions are the physical partitions, sorted by range.
func (s *Snapshot) Partitions() []feed.Partition { return describe(s.l.parts) }

// A walk through a log copies some documents at a time. The first time it is a few, because many
// readers want no more; then each time four times as many.
const (
	minChunk = 16
	maxChunk = 1000
)

// Documents yields the documents of a range that were last written after an LSN, in the order of
// those writes. A range across several partitions is [feed.ErrGone]. An error is the last
// pair.
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
	sel := selection{rng: rng, begin: begin{lsn: after, since: anyTime}}
	for chunk := minChunk; sel.lsn < head; chunk = min(4*chunk, maxChunk) {
		if err := s.c.checkUsable(ctx); err != nil {
			return err
		}
		b := &pageBuilder{max: chunk, hint: &s.c.hint, PageMemory: new(PageMemory)}
		if sel.lsn, err = s.collectPage(ctx, b, part, sel); err != nil {
			return err
		}
		for _, ch := range b.cutChanges() {
			if !yield(Item{ID: ch.ID, Key: ch.PartitionKey, ETag: ch.ETag, LSN: ch.LSN, Time: ch.Time, Body: ch.Body}, nil) {
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
		_, err = s.l.hashKey(string(key)) // says which levels are missing
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
	return e.item(at.lsn), true, nil
}
