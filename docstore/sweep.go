package docstore

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/docstore/internal/engine"
	"github.com/millrace/changefeed/feed"
)

// The sweeper turns expired documents into deletes and removes versions older than the retention. The sweeper sleeps
// until the first document or version is due. But the sweeper checks the clock at least every minute, because no
// event wakes it when the clock is set forward. Reads hide a document from the moment of its expiry, so correctness
// does not depend on when the sweeper runs.
//
// Documents with a ttl of their own are found in an index by expiry. Documents with the container's default ttl need
// no index, because a log is in the order of commits: the first living version expires next. So a default ttl adds no
// cost to writes.

const (
	// A full sweep checks each container, so there is a pause between sweeps. Groups are small, because writers wait
	// for them.
	sweepPause = time.Second // between two full sweeps
	sweepLook  = time.Minute // between two checks of the clock, at most
	sweepChunk = 256         // documents or versions in a group
	farAway    = 1<<63 - 1
)

// life is a context that ends when the store is closed. A life needs no derived context, because the channel exists
// already. The zero life never ends.
type life struct{ stop <-chan struct{} }

// Deadline reports that there is no deadline.
func (life) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done returns a channel closed with the store.
func (l life) Done() <-chan struct{} { return l.stop }

// Value returns nil.
func (life) Value(any) any { return nil }

// Err returns [context.Canceled] once the store is closed.
func (l life) Err() error {
	select {
	case <-l.stop:
		return context.Canceled
	default:
		return nil
	}
}

// alarm is the time when a container has something to sweep, in Unix milliseconds; 0 means never.
type alarm struct {
	at   atomic.Int64
	wake chan<- struct{} // wakes the sweeper
}

// setAlarm records that something is due at a time; 0 means never. setAlarm wakes the sweeper only if the time is
// earlier than the recorded time.
func (a *alarm) setAlarm(at int64) {
	if at == 0 {
		return
	}
	for {
		old := a.at.Load()
		if old != 0 && old <= at {
			return
		}
		if a.at.CompareAndSwap(old, at) {
			break
		}
	}
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// dueAt returns when the sweeper must run; 0 means never.
func (a *alarm) dueAt() int64 { return a.at.Load() }

func (a *alarm) clear() { a.at.Store(0) }

// sweepAll is the goroutine of the sweeper.
func (db *DB) sweepAll() {
	var last time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var fire <-chan time.Time
		if wait, some := db.nextSweep(); some {
			timer.Reset(max(min(wait, sweepLook), time.Until(last.Add(sweepPause)), 0))
			fire = timer.C
		}
		select {
		case <-db.stop:
			return
		case <-db.wake:
			continue
		case <-fire:
		}
		last = time.Now()
		for _, c := range db.Containers() {
			if due := c.alarm.dueAt(); due != 0 && due <= c.clock.now() {
				(&sweep{c: c}).run(life{db.stop})
			}
		}
	}
}

// nextSweep returns how long until the first container is due; some is false if no container is due.
func (db *DB) nextSweep() (wait time.Duration, some bool) {
	for _, c := range db.Containers() {
		if due := c.alarm.dueAt(); due != 0 {
			until := c.clock.until(due)
			if !some || until < wait {
				wait, some = until, true
			}
		}
	}
	return wait, some
}

// sweep is a run of the sweeper for a container.
type sweep struct {
	c    *Container
	next soonest // when the sweeper must run again
}

// run does all work that is due and records when the next run is due. run reports no errors: if the disk fails, the
// store has failed and reports the failure; after any other error, run tries again in a second.
func (s *sweep) run(ctx context.Context) {
	// The alarm is cleared first, so a time that a writer records during the sweep is kept.
	s.c.alarm.clear()
	err := s.expireAll(ctx)
	if err == nil {
		err = s.forgetVersions(ctx)
	}
	if err == nil {
		err = s.moveVersions(ctx)
	}
	if err != nil {
		s.next.note(s.c.clock.now() + sweepPause.Milliseconds())
	}
	s.c.alarm.setAlarm(s.next.at)
}

// soonest is the earliest of the recorded times; 0 means none.
type soonest struct{ at int64 }

func (s *soonest) note(at int64) {
	if at != 0 && (s.at == 0 || at < s.at) {
		s.at = at
	}
}

// expireAll deletes the expired documents, in chunks.
func (s *sweep) expireAll(ctx context.Context) error {
	for {
		found, err := s.findExpired(ctx)
		if err != nil {
			return err
		}
		n, err := s.expireFound(ctx, found)
		if err != nil {
			return err
		}
		// If nothing was deleted, all documents of the chunk were written again meanwhile, or do not expire yet under
		// a new default. Looking again at once could repeat for ever.
		if len(found.keys) < sweepChunk || n == 0 {
			return nil
		}
		s.next = soonest{}
	}
}

// expired is the result of a search for expired documents.
type expired struct {
	keys  [][]byte    // of the expired documents
	marks []sweepMark // how far each log has been searched
	ttl   int         // the default ttl used for the search, in seconds
}

// findExpired finds a chunk of expired documents.
func (s *sweep) findExpired(ctx context.Context) (found expired, err error) {
	l := s.c.layout.Load()
	if l.spec.DefaultTTL == nil {
		return found, nil
	}
	now := s.c.clock.time().UnixMilli()
	if found.keys, err = s.expiredByIndex(now); err != nil || *l.spec.DefaultTTL <= 0 {
		return found, err
	}
	found.ttl = *l.spec.DefaultTTL
	found.keys, found.marks, err = s.expiredByLog(ctx, l, now, found.keys)
	return found, err
}

// expiredByIndex returns expired documents with a ttl of their own.
func (s *sweep) expiredByIndex(now int64) (keys [][]byte, err error) {
	from := tableKey(tableTTL, s.c.num, 0)
	it, err := s.c.db.eng.Cursor(from, engine.After(from))
	if err != nil {
		return nil, err
	}
	defer it.CloseInto(&err, "close cursor")
	for ok := it.First(); ok && len(keys) < sweepChunk; ok = it.Next() {
		at, doc, err := splitTTL(tailOf(it.Key()))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		if at > now {
			s.next.note(at)
			break
		}
		keys = append(keys, append(tableKey(tableDoc, s.c.num, len(doc)), doc...))
	}
	return keys, it.Err()
}

// sweepMark is a place in a log up to which no version will expire by the default.
type sweepMark struct {
	log *changelog
	lsn int64
}

// expiredByLog adds expired documents with the container's default ttl.
func (s *sweep) expiredByLog(ctx context.Context, l *layout, now int64, keys [][]byte) ([][]byte, []sweepMark, error) {
	var marks []sweepMark
	for num, log := range l.logs {
		m := sweepMark{log: log}
		sel := selection{rng: feed.FullRange(), begin: begin{lsn: log.swept.Load(), since: anyTime}}
		err := s.walkShown(ctx, l, num, sel, s.c.head.Load(), func(e *entry, a addr) bool {
			if len(keys) >= sweepChunk {
				return false
			}
			if e.ttl == 0 {
				at := l.spec.expiry(e.time, 0)
				if at > now {
					s.next.note(at)
					return false
				}
				keys = append(keys, docKey(s.c.num, string(e.epk), string(e.pk), string(e.id)))
			}
			m.lsn = a.lsn - 1 // the rest of this transaction comes again
			return true
		})
		if err != nil {
			return keys, nil, err
		}
		marks = append(marks, m)
	}
	return keys, marks, nil
}

// expireFound deletes the found expired documents, each under its own LSN, and returns how many were deleted. The
// logs count as searched only if the default ttl is still the ttl of the search. If the default has changed, some
// documents are not deleted now, and a later search must find them again.
func (s *sweep) expireFound(ctx context.Context, found expired) (int, error) {
	if len(found.keys) == 0 {
		found.raise()
		return 0, nil
	}
	// read only after success, because if the caller's context ends, the caller returns and the committer goes on
	deleted := 0
	err := s.c.db.committer.runAlone(ctx, func(g *group) error {
		if s.c.dropped.Load() {
			return nil
		}
		h := g.head(s.c)
		before := h.lsn
		for _, key := range found.keys {
			if err := h.expire(g, key); err != nil {
				return err
			}
		}
		deleted = int(h.lsn - before)
		if ttl := h.l.spec.DefaultTTL; ttl != nil && *ttl == found.ttl {
			g.publish = append(g.publish, found.raise)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return deleted, nil
}

// raise records how far the logs have been searched.
func (f *expired) raise() {
	for _, m := range f.marks {
		raise(&m.log.swept, m.lsn)
	}
}

// expire deletes an expired document. The check is repeated in the committer, because a write may have renewed the
// document.
func (h *nextHead) expire(g *group, key []byte) error {
	old, err := g.slot(key)
	if err != nil || old == nil || !h.l.spec.expired(old.time, old.ttl, h.time) {
		return err
	}
	epk, pk, id, err := splitDoc(tailOf(key))
	if err != nil {
		return err
	}
	h.lsn++
	part := h.l.at(string(epk))
	w := write{
		id: string(id), key: key, old: old, at: addr{part.num, h.lsn, 0},
		tx: &transaction{epk: string(epk), pk: string(pk), group: g, head: h, part: part},
	}
	return w.removeDocument(opExpire)
}

// expireFirst deletes expired documents that a transaction writes, and expired documents that hold its unique keys
// (see [write.takeUnique]). A create must find the id free from the moment of expiry, and in the feed of all versions
// the expiry must come before the create.
func (tx *transaction) expireFirst() error {
	if tx.head.l.spec.DefaultTTL == nil {
		return nil
	}
	for i := range tx.writes {
		w := &tx.writes[i]
		old, err := tx.group.slot(w.key)
		if err == nil && old != nil && tx.head.l.spec.expired(old.time, old.ttl, tx.head.time) {
			err = tx.head.expire(tx.group, w.key)
		}
		if err != nil {
			return err
		}
	}
	for _, key := range tx.expired {
		if err := tx.head.expire(tx.group, key); err != nil {
			return err
		}
	}
	return nil
}

// walkShown calls f for the versions of a log that the selection shows, expired ones
// included, until f returns false.
func (s *sweep) walkShown(ctx context.Context, l *layout, num uint32, sel selection, head int64,
	f func(*entry, addr) bool,
) error {
	fd, err := moment{c: s.c, l: l, head: head}.feed([]uint32{num}, sel)
	if err != nil {
		return err
	}
	return fd.eachShown(ctx, nil, func(e *entry, a addr) (bool, error) { return f(e, a), nil })
}
