package docstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/millrace/changefeed"
)

// How a write comes about. The caller's goroutine does what can be done without knowing
// its turn: it parses, hashes and renders, and puts a request into the queue. One
// goroutine, the committer, takes all requests that wait, gives each an LSN, applies them
// to one write of the engine, waits once until that is on the disk, and then publishes
// the new heads and wakes readers and callers. So LSNs become visible in order, and
// many writers share one flush.

const (
	maxGroup      = 512     // requests in one write of the engine
	maxGroupBytes = 8 << 20 // and their bytes
)

// request is one batch of writes, or a control, on its way through the committer.
type request struct {
	c       *Container
	pk, epk string
	ops     []op
	size    int
	expired [][]byte // documents that turned out to be in the way

	control func(*group) error // runs alone in its group

	results []changefeed.Result
	time    int64 // of the commit, Unix ms
	failed  int   // index of the op that err is about
	err     error
	done    chan struct{}
}

// submit hands a request to the committer and waits for its end. When ctx ends first,
// the request may still be carried out.
func (db *DB) submit(ctx context.Context, r *request) error {
	r.done = make(chan struct{})
	if err := db.closed(); err != nil {
		return err
	}
	select {
	case db.queue <- r:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-db.stop:
		return ErrClosed
	}
	return db.outcome(ctx, r)
}

// outcome waits for the end of a request that is in the queue.
func (db *DB) outcome(ctx context.Context, r *request) error {
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-db.ended:
	}
	select {
	case <-r.done: // the committer answered before it ended
		return r.err
	default:
		return ErrClosed // the request came too late for it
	}
}

// do runs f in the committer, alone in a group.
func (db *DB) do(ctx context.Context, f func(*group) error) error {
	return db.submit(ctx, &request{control: f})
}

// commitAll is the committer. Requests that are still queued when it ends find that out
// themselves: one more may come at any time.
func (db *DB) commitAll() {
	defer close(db.ended)
	var next *request
	for {
		if next == nil {
			select {
			case next = <-db.queue:
			case <-db.stop:
				return
			}
		}
		next = db.commitGroup(next)
	}
}

// commitGroup carries out the first request and those that wait behind it. It returns a
// request that it took but that must not be in this group.
func (db *DB) commitGroup(first *request) (left *request) {
	g := db.newGroup()
	g.take(first)
	for left == nil && first.control == nil && len(g.requests) < maxGroup && g.bytes < maxGroupBytes {
		select {
		case r := <-db.queue:
			if r.control != nil {
				left = r
				continue
			}
			g.take(r)
			continue
		default:
		}
		break
	}
	g.finish()
	return left
}

// group is what goes to the disk in one write.
type group struct {
	db       *DB
	requests []*request
	bytes    int

	changes []change
	latest  map[string]int // key to its last change
	living  []lives
	ranges  [][2][]byte // keys to remove, before all changes
	turns   map[*Container]*turn
	publish []func() // of controls, when the group is safe
}

// change is one key to set or, with drop, to remove.
type change struct {
	key, value []byte
	drop       bool
	size       int // of the value dropped, where known
	before     int // the change of the same key before this one, or -1
}

// turn is what a group does to one container.
type turn struct {
	c     *Container
	l     *layout
	lsn   int64
	time  int64
	parts map[*partition]delta // touched
	next  soonest              // when something is to be swept
}

// due notes a time for the sweeper.
func (t *turn) due(at int64) { t.next.add(at) }

// delta is the change of a partition's number of documents.
type delta struct {
	docs int64
	low  int64 // those below the cut of a split that is counting
}

func (db *DB) newGroup() *group {
	return &group{db: db, latest: map[string]int{}, turns: map[*Container]*turn{}}
}

// turn is the group's turn at a container.
func (g *group) turn(c *Container) *turn {
	t := g.turns[c]
	if t == nil {
		t = &turn{c: c, l: c.layout.Load(), lsn: c.lsn, time: c.clock.now(), parts: map[*partition]delta{}}
		g.turns[c] = t
	}
	return t
}

// take carries out one request in memory. A refused one leaves nothing.
func (g *group) take(r *request) {
	g.requests = append(g.requests, r)
	g.bytes += r.size
	if err := g.db.closed(); err != nil {
		r.err = err
		return
	}
	if r.control != nil {
		r.err = r.control(g)
		return
	}
	if r.c.dropped.Load() {
		r.err = fmt.Errorf("container %q: %w", r.c.ID(), changefeed.ErrNotFound)
		return
	}
	mark, living := len(g.changes), len(g.living)
	t := g.turn(r.c)
	undo := *t
	part := t.l.at(r.epk)
	docs, touched := t.parts[part]
	for again := true; again; {
		if r.err = t.run(g, r, part); r.err == nil {
			return
		}
		g.rollback(mark)
		g.living = g.living[:living]
		t.lsn = undo.lsn
		if t.parts[part] = docs; !touched {
			delete(t.parts, part)
		}
		var expired inTheWay
		if expired, again = errors.AsType[inTheWay](r.err); again {
			r.expired = append(r.expired, expired.key)
		}
	}
}

// finish writes the group, publishes it and answers its requests.
func (g *group) finish() {
	err := g.write()
	if err == nil {
		for _, t := range g.turns {
			t.publish()
		}
		for _, f := range g.publish {
			f()
		}
	}
	for _, r := range g.requests {
		if r.err == nil {
			r.err = err
		}
		close(r.done)
	}
}

// write brings the group to the disk.
func (g *group) write() error {
	if len(g.changes) == 0 && len(g.ranges) == 0 {
		return nil
	}
	size := 0
	for i := range g.changes {
		size += len(g.changes[i].key) + len(g.changes[i].value) + 16
	}
	w := g.db.eng.newWrite(size + 256*len(g.turns) + 64)
	for _, r := range g.ranges {
		w.dropRange(r[0], r[1])
	}
	g.fill(w)
	if err := g.tally(w); err != nil {
		return err
	}
	for _, t := range g.turns {
		t.fill(w)
	}
	seq := g.db.applied.Load() + 1
	g.db.applied.Store(seq)
	if err := w.commit(); err != nil {
		return g.db.fail(err)
	}
	g.db.safe.Store(seq)
	g.db.settled.open()
	g.db.dropped.add(g.ranges)
	g.db.wroteSome()
	return nil
}

// fill puts the last change of each key into the write.
func (g *group) fill(w write) {
	for i := range g.changes {
		ch := &g.changes[i]
		switch {
		case g.latest[string(ch.key)] != i:
		case !ch.drop:
			w.set(ch.key, ch.value)
		case ch.size > 0:
			w.dropSized(ch.key, ch.size)
		default:
			w.drop(ch.key)
		}
	}
}

// fill puts head, counts and low-water marks of a container into the write.
func (t *turn) fill(w write) {
	w.set(headKey(t.c.num), encodeNumbers(t.lsn, t.time))
	for p, d := range t.parts {
		w.set(countKey(t.c.num, p.num), encodeNumbers(p.docs.Load()+d.docs, t.lsn))
	}
	for n, log := range t.l.logs {
		if low := log.low.Load(); low > log.saved.Load() {
			w.set(lowKey(t.c.num, n), encodeNumbers(low))
			log.saved.Store(low)
		}
	}
}

// publish makes the container's changes visible and wakes those who wait for them.
func (t *turn) publish() {
	t.c.lsn = t.lsn
	t.c.clock.committed(t.time)
	for p, d := range t.parts {
		p.docs.Add(d.docs)
		if p.watch != nil {
			p.watch.low += d.low
		}
		p.newest.Store(t.lsn)
	}
	t.c.newestTime.Store(t.time)
	t.c.head.Store(t.lsn)
	for p := range t.parts {
		p.gate.open()
	}
	t.c.gate.open()
	t.c.due(t.next.at)
}

// fail stops the store after an error of the disk and wakes everybody who waits.
func (db *DB) fail(err error) error {
	err = fmt.Errorf("write to disk: %w: %w", ErrFailed, err)
	if db.failed.CompareAndSwap(nil, &err) {
		db.settled.open()
		for _, c := range db.Containers() {
			c.wakeAll()
		}
	}
	return *db.failed.Load()
}

// get is the value of a key as this group has it so far.
func (g *group) get(key []byte) ([]byte, bool, error) {
	if i, ok := g.latest[string(key)]; ok {
		return g.changes[i].value, !g.changes[i].drop, nil
	}
	return g.db.eng.get(nil, key)
}

func (g *group) set(key, value []byte) { g.add(change{key: key, value: value}) }

// drop removes a key, whose value has this size where that is known.
func (g *group) drop(key []byte, size int) { g.add(change{key: key, drop: true, size: size}) }

func (g *group) add(ch change) {
	ch.before = -1
	if i, ok := g.latest[string(ch.key)]; ok {
		ch.before = i
	}
	g.latest[string(ch.key)] = len(g.changes)
	g.changes = append(g.changes, ch)
}

// rollback takes back all changes from the mark on.
func (g *group) rollback(mark int) {
	for i := len(g.changes) - 1; i >= mark; i-- {
		ch := &g.changes[i]
		if ch.before >= 0 {
			g.latest[string(ch.key)] = ch.before
		} else {
			delete(g.latest, string(ch.key))
		}
	}
	g.changes = g.changes[:mark]
}

// nextNumber counts up a number of the store that is kept under a name.
func (g *group) nextNumber() uint32 {
	g.db.nextCont++
	g.set(metaKey("next"), binary.BigEndian.AppendUint32(nil, g.db.nextCont))
	return g.db.nextCont
}
