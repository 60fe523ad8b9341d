package delivery

import (
	"math"
	"slices"
	"time"

	"github.com/millrace/changefeed/internal/notes"
)

// lane is a queue of changes handled in order: of a single key or, the common lane, of all keys without a separate
// lane.
type lane struct {
	key     string
	line    []*Batch  // batches of the lane in their order; only the first may be in hand
	waiting []*Change // after these
	since   time.Time // when the first of waiting came
	listed  bool      // the lane is in lanes.ready

	hold      hold
	heldSince int64 // LSN of the first change that holds the key; 0 is unknown
	requests  []*Request
	aside     aside
	handled   []*Change   // that wait for a confirmation by hand, and for which the position does not wait
	ahead     []string    // names of done changes before an unfinished change
	tried     []notes.Run // how often the handler has received changes that were forgotten
}

// hold is whether the changes of a key are parked.
type hold uint8

// The values of hold.
const (
	notHeld   hold = iota
	isHeld         // they are parked one by one
	releasing      // they wait during the redrive of the held letters
)

// add appends changes, which count as queued already.
func (l *lane) add(e *Engine, changes ...*Change) {
	if len(l.waiting) == 0 {
		l.since = e.now
	}
	if l.waiting == nil {
		l.waiting = changes
	} else {
		l.waiting = append(l.waiting, changes...)
	}
	l.advance(e)
}

// advance makes a lane ready if it has changes to hand over and no batch, and removes an empty lane.
func (l *lane) advance(e *Engine) {
	if l.isFree() && !l.listed {
		l.listed = true
		e.lanes.ready = append(e.lanes.ready, l)
	}
	if l != e.lanes.common && l.isIdle() && e.lanes.own[l.key] == l {
		delete(e.lanes.own, l.key)
	}
}

// insert puts a batch into the line of a lane: after the letters that are handed over, and before all else.
func (l *lane) insert(b *Batch) {
	i := 0
	for i < len(l.line) && (l.line[i].request != nil || l.line[i].State == Calling || l.line[i].State == Parking) {
		i++
	}
	l.line = slices.Insert(l.line, i, b)
}

// lettersFirst puts the letters that are handed over again before all else that is not in hand.
func (l *lane) lettersFirst() {
	rank := func(b *Batch) int {
		switch {
		case b.State == Calling || b.State == Parking:
			return 0
		case b.request != nil:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(l.line, func(a, b *Batch) int { return rank(a) - rank(b) })
}

// isFree reports whether the waiting changes of a lane may go into a batch.
func (l *lane) isFree() bool { return len(l.line) == 0 && len(l.waiting) > 0 && !l.isPaused() }

// isPaused reports whether the waiting changes of a key wait for letters that are handed over before.
func (l *lane) isPaused() bool {
	return l.hold == releasing || slices.ContainsFunc(l.requests, func(q *Request) bool { return q.IsRecall() })
}

// isIdle reports whether only the name of the key is known.
func (l *lane) isIdle() bool {
	return len(l.line) == 0 && len(l.waiting) == 0 && l.hold == notHeld && len(l.requests) == 0 &&
		len(l.handled) == 0 && l.aside == aside{}
}

// countFitting is how many of the changes that wait in a lane fit into a batch with so much room, and their size. A
// transaction is not cut, and the first transaction always fits into an empty batch. Changes that have failed
// differently often, or since another time, are not put together, so that nobody inherits the failures of others, or
// their age.
func (l *lane) countFitting(items, bytes int, empty bool) (n, size int) {
	for n < len(l.waiting) {
		end, more := transaction(l.waiting, n)
		if (n > 0 || !empty) && (end > items || size+more > bytes) || !l.waiting[n].hasFailedLike(l.waiting[0]) {
			break
		}
		n, size = end, size+more
		if n >= items || size >= bytes {
			break
		}
	}
	return n, size
}

// transaction is the end and the size of the transaction that begins at i.
func transaction(changes []*Change, i int) (end, size int) {
	first := changes[i]
	for end = i; end < len(changes) && changes[end].isSameTransaction(first); end++ {
		size += changes[end].size
	}
	return end, size
}

// positive is a limit; zero is none.
func positive(limit int) int {
	if limit == 0 {
		return math.MaxInt
	}
	return limit
}
