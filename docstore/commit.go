package docstore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace/changefeed/docstore/internal/engine"
	"github.com/millrace/changefeed/feed"
)

// The path of a write. The caller's goroutine does all work independent of the write's LSN: it parses, hashes and
// renders the document, and then puts a transaction into the queue. A single goroutine, the committer, takes all queued
// transactions, gives each an LSN, and applies them to a single write of the engine. The committer waits once until
// this write is on the disk, then publishes the new heads, and wakes readers and callers. So LSNs become visible in
// order, and many writers share a flush.

const (
	maxGroup      = 512     // transactions in a write of the engine
	maxGroupBytes = 8 << 20 // and their bytes in total
)

// committer is the goroutine through which all writes go.
type committer struct {
	db     *DB
	queue  chan *transaction
	ended  chan struct{} // closed when the committer ends
	gather *gather
	recent recent
	spare  *group // an empty group, whose memory the next group uses

	waiting atomic.Int64 // transactions without an answer
}

// submit hands a transaction to the committer and waits for its end. If ctx ends first, the committer may still carry
// out the transaction.
func (k *committer) submit(ctx context.Context, tx *transaction) error {
	tx.done = make(chan struct{})
	k.waiting.Add(1)
	defer k.waiting.Add(-1)
	if err := k.db.closed(); err != nil {
		return err
	}
	if err := k.db.eng.WritesStall(); err != nil { // then the committer does not come to the queue
		return err
	}
	select {
	case k.queue <- tx:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-k.db.stop:
		return ErrClosed
	}
	return k.awaitOutcome(ctx, tx)
}

// awaitOutcome waits for the end of a queued transaction.
func (k *committer) awaitOutcome(ctx context.Context, tx *transaction) error {
	select {
	case <-tx.done:
		return tx.err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-k.ended:
	}
	select {
	case <-tx.done: // the committer has answered before its end
		return tx.err
	default:
		return ErrClosed // the transaction came after the committer had ended
	}
}

// runAlone runs f in the committer, alone in a group.
func (k *committer) runAlone(ctx context.Context, f func(*group) error) error {
	return k.submit(ctx, &transaction{control: f})
}

// commitLoop is the goroutine. When the committer ends, queued transactions notice this themselves, because another
// transaction may come at any time.
func (k *committer) commitLoop() {
	defer close(k.ended)
	k.spare = newGroup(k.db, &k.recent)
	var next *transaction
	for {
		if next == nil {
			select {
			case next = <-k.queue:
			case <-k.db.stop:
				return
			}
		}
		next = k.commit(next)
	}
}

// commit carries out the first transaction and the transactions waiting after it. If a taken transaction must not be in
// this group, commit returns the transaction.
func (k *committer) commit(first *transaction) (left *transaction) {
	g := k.spare
	g.executeInMemory(first)
	for left == nil && first.control == nil && len(g.txs) < maxGroup && g.bytes < maxGroupBytes {
		tx := k.gather.nextForGroup(len(g.txs))
		if tx == nil {
			break
		}
		if tx.control != nil {
			// A control runs alone, because it may replace the layout that places the writes of a group.
			left = tx
			continue
		}
		g.executeInMemory(tx)
	}
	g.writeAndPublish()
	k.gather.noteWritten(len(g.txs), g.flush)
	k.spare = g.emptied()
	return left
}

// group is the set of changes that go to the disk in a single write.
type group struct {
	db    *DB
	txs   []*transaction
	bytes int

	overlay
	living  []lives
	ranges  [][2][]byte // keys to remove, before all changes
	heads   map[*Container]*nextHead
	roomy   bool          // the disk has room
	publish []func()      // of controls, when the group is safe
	flush   time.Duration // time that its write to the disk took
}

// nextHead is the head of a container after the group.
type nextHead struct {
	c     *Container
	l     *layout
	lsn   int64
	time  int64
	parts map[*partition]delta // partitions that the group touches
	next  soonest              // when the sweeper has work
}

// due records a time for the sweeper.
func (h *nextHead) due(at int64) { h.next.note(at) }

// delta is the change of a partition's number of documents.
type delta struct {
	docs int64
	low  int64 // documents below the cut of a split that is counting
}

func newGroup(db *DB, r *recent) *group {
	return &group{db: db, overlay: newOverlay(db.eng, r), heads: map[*Container]*nextHead{}}
}

// maxSpare is the largest number of changes of a group whose memory the next group reuses.
const maxSpare = 4096

// emptied returns an empty group in this group's memory. This group must not be used any more.
func (g *group) emptied() *group {
	if len(g.changes) > maxSpare {
		return newGroup(g.db, g.recent)
	}
	clear(g.txs)
	clear(g.changes) // frees the bodies
	clear(g.latest)
	clear(g.living)
	clear(g.heads)
	empty := &group{db: g.db, txs: g.txs[:0], living: g.living[:0], heads: g.heads, overlay: g.overlay}
	empty.changes = g.changes[:0]
	return empty
}

// head returns the container's next head.
func (g *group) head(c *Container) *nextHead {
	h := g.heads[c]
	if h == nil {
		h = &nextHead{c: c, l: c.layout.Load(), lsn: c.lsn, time: c.clock.now(), parts: map[*partition]delta{}}
		g.heads[c] = h
	}
	return h
}

// executeInMemory carries out a transaction in memory. A refused transaction leaves no changes.
func (g *group) executeInMemory(tx *transaction) {
	g.txs = append(g.txs, tx)
	g.bytes += tx.size
	if err := g.db.closed(); err != nil {
		tx.err = err
		return
	}
	if tx.control != nil {
		tx.err = g.runControl(tx.control)
		return
	}
	if tx.c.dropped.Load() {
		tx.err = fmt.Errorf("container %q: %w", tx.c.ID(), feed.ErrNotFound)
		return
	}
	h := g.head(tx.c)
	before := g.save(h, h.l.at(tx.epk))
	// An expired document may hold a unique key needed by the transaction. Then the transaction begins again, and first
	// expires the document, under an earlier LSN.
	for again := true; again; {
		if tx.err = tx.executeWrites(g, h); tx.err == nil {
			return
		}
		g.restore(h, before)
		h.lsn = before.lsn
		var expired inTheWay
		if expired, again = errors.AsType[inTheWay](tx.err); again {
			tx.expired = append(tx.expired, expired.key)
		}
	}
}

// runControl runs a control, which is alone in its group. A failed control leaves no changes, like a refused
// transaction, because the first half of a move alone would lose data.
func (g *group) runControl(run func(*group) error) error {
	err := run(g)
	if err != nil {
		g.rollback(0)
		g.living, g.ranges, g.publish = g.living[:0], nil, nil
		clear(g.heads)
	}
	return err
}

// writeAndPublish writes and publishes the group, and answers its transactions.
func (g *group) writeAndPublish() {
	err := g.writeToDisk()
	if err == nil {
		for _, h := range g.heads {
			h.publishHead()
		}
		for _, f := range g.publish {
			f()
		}
	}
	for _, tx := range g.txs {
		if tx.err == nil {
			tx.err = err
		}
		close(tx.done)
	}
}

// writeToDisk brings the group to the disk. writeToDisk raises the counter applied before the commit and the counter
// safe after the commit, for awaitSafe.
func (g *group) writeToDisk() error {
	if len(g.changes) == 0 && len(g.ranges) == 0 {
		return nil
	}
	if err := g.needRoom(1); err != nil {
		return err
	}
	size := 0
	for i := range g.changes {
		size += len(g.changes[i].key) + len(g.changes[i].value) + len(g.changes[i].body) + 16
	}
	w := g.db.eng.NewBatch(size + 256*len(g.heads) + 64)
	for _, r := range g.ranges {
		w.DropRange(r[0], r[1])
	}
	g.fill(w)
	if err := g.writeTallies(w); err != nil {
		return err
	}
	for _, h := range g.heads {
		h.fillBatch(w)
	}
	seq := g.db.applied.Load() + 1
	g.markApplied(seq)
	begun := time.Now()
	if err := w.Commit(); err != nil {
		return g.db.failWith(err)
	}
	g.flush = time.Since(begun)
	g.db.safe.Store(seq)
	g.db.settled.open()
	g.db.dropped.add(g.ranges)
	g.recent.noteGroup(g)
	g.db.wroteSome()
	return nil
}

// needRoom returns [ErrDiskFull] if the disk has less free space than this part of the store's reserve. One check per
// group is enough.
func (g *group) needRoom(part uint64) error {
	if g.roomy {
		return nil
	}
	err := g.db.eng.LacksRoom(part)
	g.roomy = err == nil
	return err
}

// markApplied records that the engine is about to show the group: to readers of the group's containers, and to all
// readers if a control may have changed more.
func (g *group) markApplied(seq int64) {
	for _, h := range g.heads {
		h.c.applied.Store(seq)
	}
	if g.txs[0].control != nil { // a control is alone in its group
		g.db.broad.Store(seq)
	}
	g.db.applied.Store(seq)
}

// fillBatch puts head, counts and low-water marks of a container into the write.
func (h *nextHead) fillBatch(w engine.Batch) {
	w.Set(headKey(h.c.num), encodeNumbers(h.lsn, h.time))
	for p, d := range h.parts {
		w.Set(countKey(h.c.num, p.num), encodeNumbers(p.docs.Load()+d.docs, h.lsn))
	}
	for n, log := range h.l.logs {
		if low := log.low.Load(); low > log.saved.Load() {
			w.Set(lowKey(h.c.num, n), encodeNumbers(low))
			log.saved.Store(low)
		}
	}
}

// publishHead makes the container's changes visible and wakes those who wait for them.
//
// Readers rely on the order counts, head, gates (see Container).
func (h *nextHead) publishHead() {
	h.c.lsn = h.lsn
	h.c.clock.recordCommit(h.time)
	for p, d := range h.parts {
		p.docs.Add(d.docs)
		if p.watch != nil {
			p.watch.low += d.low
		}
		p.newest.Store(h.lsn)
	}
	h.c.newestTime.Store(h.time)
	h.c.head.Store(h.lsn)
	for p := range h.parts {
		p.gate.open()
	}
	h.c.gate.open()
	h.c.alarm.setAlarm(h.next.at)
}

// nextNumber returns the next value of a number of the store.
func (g *group) nextNumber() uint32 {
	g.db.nextCont++
	g.set(metaKey("next"), binary.BigEndian.AppendUint32(nil, g.db.nextCont))
	return g.db.nextCont
}
