package docstore

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/millrace/changefeed/feed"
)

// A transaction in the committer: its writes in order, and the return to an earlier state if one is refused.

// transaction is a batch of writes under one LSN, or a control (a function run by the committer), on its way through
// the committer.
type transaction struct {
	c       *Container
	pk, epk string
	writes  []write
	size    int
	expired [][]byte // expired documents that block the transaction

	// refusals has room for the reason why each write is refused. It is nil if a refused write refuses them all.
	refusals []error

	control func(*group) error // runs alone in its group

	// Set in the committer.
	group *group
	head  *nextHead
	part  *partition

	results []feed.Result
	time    int64 // of the commit, Unix ms
	made    int   // bytes of the bodies that patches and reads have produced
	failed  int   // index of the op that caused err
	err     error
	done    chan struct{}

	single struct { // memory of the writes and results of a transaction of one write, which is the usual case
		write  [1]write
		result [1]feed.Result
	}
}

// executeWrites carries out a transaction under a single LSN: all writes or none, or, if the writes do not depend on
// each other, those that are not refused. After an error, the caller takes back all changes.
func (tx *transaction) executeWrites(g *group, h *nextHead) error {
	tx.group, tx.head, tx.part = g, h, h.l.at(tx.epk)
	if err := tx.expireFirst(); err != nil {
		return err
	}
	h.lsn++
	tx.time, tx.made = h.time, 0
	if tx.results = tx.single.result[:]; len(tx.writes) > 1 {
		tx.results = make([]feed.Result, len(tx.writes))
	}
	var err error
	if tx.refusals == nil {
		err = tx.executeAll(0, len(tx.writes))
	} else {
		err = tx.executeEach()
	}
	if err != nil {
		return err
	}
	// A batch of reads takes no LSN, because reads add nothing to the feed. The same holds for refused writes.
	if !tx.hasWritten() {
		h.lsn--
		return nil
	}
	h.countDocuments(tx.part, tx.epk, 0)
	return nil
}

// hasWritten reports whether a write has taken effect.
func (tx *transaction) hasWritten() bool {
	for i := range tx.writes {
		if tx.writes[i].Op != feed.WriteRead && tx.results[i].LSN != 0 {
			return true
		}
	}
	return false
}

// executeEach carries out the writes that are not refused. Joined writes are refused together. An error concerns the
// transaction as a whole.
func (tx *transaction) executeEach() error {
	for from, to := 0, 0; from < len(tx.writes); from = to {
		for to = from + 1; to < len(tx.writes) && tx.writes[to].Joined; to++ {
		}
		before := tx.group.save(tx.head, tx.part)
		refusal := cmp.Or(tx.refusals[from:to]...) // of a body, or from before the transaction began again
		if refusal == nil {
			refusal = tx.executeAll(from, to)
		}
		if refusal == nil {
			continue
		}
		if !refused(refusal) || errors.Is(refusal, ErrBatchLimit) {
			return refusal
		}
		tx.group.restore(tx.head, before)
		for i := from; i < to; i++ {
			tx.results[i], tx.refusals[i] = feed.Result{}, refusal
		}
	}
	return nil
}

// executeAll carries out writes until a write is refused.
func (tx *transaction) executeAll(from, to int) error {
	for i := from; i < to; i++ {
		if err := tx.executeWrite(i); err != nil {
			tx.failed = i
			return err
		}
	}
	return nil
}

// executeWrite carries out a write and notes its result.
func (tx *transaction) executeWrite(i int) error {
	w := &tx.writes[i]
	w.tx, w.at = tx, addr{tx.part.num, tx.head.lsn, uint16(i)}
	res, err := w.carryOut()
	if err != nil {
		return err
	}
	res.Charge = chargeOf(w.Op, len(res.Body))
	if w.Op != feed.WriteRead {
		res.LSN = tx.head.lsn
	}
	// Bodies that a patch or a read produces are not counted in the size that the caller sent: 100 operations of a few
	// bytes could make a group of 200 MB.
	if w.Op == feed.WriteRead || w.Op == feed.WritePatch {
		tx.made += len(res.Body)
		tx.group.bytes += len(res.Body)
	}
	if tx.made > maxBatchMade && len(tx.writes) > 1 {
		return fmt.Errorf("%w: items that it patches and reads have %d bytes: want at most %d", ErrBatchLimit, tx.made,
			maxBatchMade)
	}
	tx.results[i] = res
	return nil
}

// savepoint is a state of a group, to which the group returns if what follows is refused.
type savepoint struct {
	changes, living int
	lsn             int64
	part            *partition
	docs            delta
	touched         bool // the group has touched the partition before
}

// save returns the present state of the group, for a transaction in a partition.
func (g *group) save(h *nextHead, part *partition) savepoint {
	s := savepoint{changes: len(g.changes), living: len(g.living), lsn: h.lsn, part: part}
	s.docs, s.touched = h.parts[part]
	return s
}

// restore takes back all changes after a savepoint. The LSN stays, because other writes of the transaction may have
// this LSN.
func (g *group) restore(h *nextHead, s savepoint) {
	g.rollback(s.changes)
	g.living = g.living[:s.living]
	if h.parts[s.part] = s.docs; !s.touched {
		delete(h.parts, s.part)
	}
}
