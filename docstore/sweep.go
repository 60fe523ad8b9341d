package docstore

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/changefeed"
)

// The sweeper turns expired documents into deletes and removes versions that are older
// than the retention. The sweeper sleeps until the first is due, but looks at the clock
// every minute, because a clock that is set forward wakes nobody. Reads hide a document
// from the moment of its expiry, so nothing depends on when the sweeper comes.
//
// Documents with a ttl of their own are found in an index by expiry. Documents that live by
// the container's default need no index, because a log is in the order of commits: the
// first that lives expires next. So a default costs the writes nothing.

const (
	// A sweep of everything looks at each container, so sweeps keep a distance. Groups
	// are small, because writers wait for them.
	sweepPause = time.Second // between two sweeps of everything
	sweepLook  = time.Minute // between two looks at the clock, at most
	sweepChunk = 256         // documents or versions in a group
	farAway    = 1<<63 - 1
)

// life is a context that ends when the store is closed. No context is derived and
// cancelled for that, because the channel exists already. The zero life never ends.
type life struct{ stop <-chan struct{} }

// Deadline reports that there is none.
func (life) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done is closed with the store.
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

// due records that the container has something to sweep at a time, in Unix
// milliseconds; 0 is never. The sweeper is woken only for a time earlier than the
// present alarm.
func (c *Container) due(at int64) {
	if at == 0 {
		return
	}
	for {
		old := c.dueAt.Load()
		if old != 0 && old <= at {
			return
		}
		if c.dueAt.CompareAndSwap(old, at) {
			break
		}
	}
	select {
	case c.db.wake <- struct{}{}:
	default:
	}
}

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
			if due := c.dueAt.Load(); due != 0 && due <= c.clock.now() {
				c.sweep(life{db.stop})
			}
		}
	}
}

// nextSweep returns how long until the first container is due, if any is.
func (db *DB) nextSweep() (wait time.Duration, some bool) {
	for _, c := range db.Containers() {
		if due := c.dueAt.Load(); due != 0 {
			until := c.clock.until(due)
			if !some || until < wait {
				wait, some = until, true
			}
		}
	}
	return wait, some
}

// sweep does what is due and records when to come again. Errors are not reported: after
// an error of the disk the store has failed and says so, and others are tried again in
// a second.
func (c *Container) sweep(ctx context.Context) {
	// Cleared first, so that a time recorded by a writer during the sweep is kept.
	c.dueAt.Store(0)
	var next soonest
	err := c.expireAll(ctx, &next)
	if err == nil {
		err = c.forget(ctx, &next)
	}
	if err == nil {
		err = c.move(ctx, &next)
	}
	if err != nil {
		next.add(c.clock.now() + sweepPause.Milliseconds())
	}
	c.due(next.at)
}

// soonest is the least of some times; 0 is none.
type soonest struct{ at int64 }

func (s *soonest) add(at int64) {
	if at != 0 && (s.at == 0 || at < s.at) {
		s.at = at
	}
}

// expireAll deletes the documents that have expired, a chunk at a time.
func (c *Container) expireAll(ctx context.Context, next *soonest) error {
	for {
		l := c.layout.Load()
		if l.spec.DefaultTTL == nil {
			return nil
		}
		now := c.now().UnixMilli()
		keys, err := c.expiredByIndex(now, next)
		if err != nil {
			return err
		}
		var marks []sweepMark
		if *l.spec.DefaultTTL > 0 {
			if keys, marks, err = c.expiredByLog(ctx, l, now, keys, next); err != nil {
				return err
			}
		}
		n, err := c.expire(ctx, keys)
		if err != nil {
			return err
		}
		for _, m := range marks {
			raise(&m.log.swept, m.lsn)
		}
		if len(keys) < sweepChunk || n == 0 {
			return nil
		}
		*next = soonest{}
	}
}

// expiredByIndex returns expired documents with a ttl of their own.
func (c *Container) expiredByIndex(now int64, next *soonest) (keys [][]byte, err error) {
	from := tableKey(tableTTL, c.num, 0)
	it, err := c.db.eng.cursor(from, after(from))
	if err != nil {
		return nil, err
	}
	defer it.finish(&err, "close cursor")
	for ok := it.first(); ok && len(keys) < sweepChunk; ok = it.next() {
		at, doc, err := splitTTL(tailOf(it.key()))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		if at > now {
			next.add(at)
			break
		}
		keys = append(keys, append(tableKey(tableDoc, c.num, len(doc)), doc...))
	}
	return keys, it.err()
}

// sweepMark is a place in a log up to which no version will expire by the default.
type sweepMark struct {
	log *changelog
	lsn int64
}

// expiredByLog adds expired documents that live by the container's default.
func (c *Container) expiredByLog(ctx context.Context, l *layout, now int64, keys [][]byte, next *soonest) ([][]byte, []sweepMark, error) {
	var marks []sweepMark
	for n, log := range l.logs {
		m := sweepMark{log: log}
		sel := selection{rng: changefeed.FullRange(), begin: begin{lsn: log.swept.Load(), since: anyTime}}
		err := c.walk(ctx, l, n, sel, c.head.Load(), func(e *entry, a addr) bool {
			if len(keys) >= sweepChunk {
				return false
			}
			if e.ttl == 0 {
				at := l.spec.expiry(e.time, 0)
				if at > now {
					next.add(at)
					return false
				}
				keys = append(keys, docKey(c.num, string(e.epk), string(e.pk), string(e.id)))
			}
			m.lsn = a.lsn - 1 // the rest of a transaction comes again
			return true
		})
		if err != nil {
			return keys, nil, err
		}
		marks = append(marks, m)
	}
	return keys, marks, nil
}

// expire deletes those of the documents that have expired, each under an LSN of its
// own, and counts them.
func (c *Container) expire(ctx context.Context, keys [][]byte) (n int, err error) {
	if len(keys) == 0 {
		return 0, nil
	}
	err = c.db.do(ctx, func(g *group) error {
		if c.dropped.Load() {
			return nil
		}
		t := g.turn(c)
		before := t.lsn
		for _, key := range keys {
			if err := t.expire(g, key); err != nil {
				return err
			}
		}
		n = int(t.lsn - before)
		return nil
	})
	return n, err
}

// expire deletes a document that has expired. The check is repeated in the turn, since
// a write may have renewed the document.
func (t *turn) expire(g *group, key []byte) error {
	old, err := g.slot(key)
	if err != nil || old == nil || !t.l.spec.expired(old.time, old.ttl, t.time) {
		return err
	}
	epk, pk, id, err := splitDoc(tailOf(key))
	if err != nil {
		return err
	}
	t.lsn++
	part := t.l.at(string(epk))
	s := stroke{
		g: g, t: t, part: part, old: old, at: addr{part.num, t.lsn, 0},
		r: &request{epk: string(epk), pk: string(pk)}, o: &op{id: string(id), key: key},
	}
	return s.remove(opExpire)
}

// expireFirst deletes the expired documents among those of a request, and those that
// hold its unique keys (see [stroke.claim]). A create must find the id free from the
// moment of expiry, and the feed of all versions wants the expiry before the create.
func (t *turn) expireFirst(g *group, r *request) error {
	if t.l.spec.DefaultTTL == nil {
		return nil
	}
	for i := range r.ops {
		o := &r.ops[i]
		old, err := g.slot(o.key)
		if err == nil && old != nil && t.l.spec.expired(old.time, old.ttl, t.time) {
			err = t.expire(g, o.key)
		}
		if err != nil {
			return err
		}
	}
	for _, key := range r.expired {
		if err := t.expire(g, key); err != nil {
			return err
		}
	}
	return nil
}

// walk calls f for the versions of a log that the selection shows, expired ones
// included, until f returns false.
func (c *Container) walk(ctx context.Context, l *layout, n uint32, sel selection, head int64, f func(*entry, addr) bool) error {
	fd, err := c.openFeed(l, []uint32{n}, sel, head)
	if err != nil {
		return err
	}
	return fd.each(ctx, nil, func(e *entry, a addr) (bool, error) { return f(e, a), nil })
}
