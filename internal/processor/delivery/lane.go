package delivery

import (
	"math"
	"slices"
	"time"

	"github.com/millrace/changefeed/internal/notes"
)

// lane is a queue of changes that are handled in order: of one key or, the common lane, of all keys without a lane of
// their own.
type lane struct {
	key     string
	line    []*Batch  // its batches in their order; only the first may be in hand
	waiting []*Change // after these
	since   time.Time // when the first of waiting came
	listed  bool      // it is in Engine.ready

	hold      hold
	heldSince int64 // LSN of the first change that it is held for; 0 is unknown
	requests  []*Request
	aside     aside
	handled   []*Change   // that wait for a confirmation by hand, and for which the position does not wait
	ahead     []string    // names of changes that are done, before one that is not
	tried     []notes.Run // how often the handler has received changes that were forgotten
}

// hold is whether the changes of a key are parked.
type hold uint8

// The values of hold.
const (
	notHeld   hold = iota
	isHeld         // they are parked one by one
	releasing      // they wait, while its held letters are handed over
)

// laneOf is the lane that a change of a key goes to.
func (e *Engine) laneOf(key string) *lane {
	if at := e.lanes[key]; at != nil {
		return at
	}
	if e.rules.Concurrency == 1 || e.rules.InOrder {
		return e.common
	}
	return e.laneFor(key)
}

// laneFor is the lane of a key, which is made if there is none.
func (e *Engine) laneFor(key string) *lane {
	if e.lanes[key] == nil {
		e.lanes[key] = &lane{key: key}
	}
	return e.lanes[key]
}

// ownLaneFor gives a key a lane of its own, and moves what there is of the key in the common lane. The caller adds something to
// the lane, or marks it: an idle one would go.
func (e *Engine) ownLaneFor(key string) *lane {
	if at := e.lanes[key]; at != nil {
		return at
	}
	at := e.laneFor(key)
	for _, b := range slices.Clone(e.common.line) {
		if b.State == ToCall {
			b.extractKey(e, at)
		}
	}
	e.common.waiting = slices.DeleteFunc(slices.Clone(e.common.waiting), func(c *Change) bool {
		if c.Key != key {
			return false
		}
		c.lane = at
		at.waiting = append(at.waiting, c)
		return true
	})
	at.since = e.common.since
	e.common.advance(e)
	if !at.isIdle() {
		at.advance(e)
	}
	return at
}

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

// advance makes a lane ready if it has changes to hand over and no batch, and removes it when there is nothing left of it.
func (l *lane) advance(e *Engine) {
	if l.isFree() && !l.listed {
		l.listed = true
		e.ready = append(e.ready, l)
	}
	if l != e.common && l.isIdle() && e.lanes[l.key] == l {
		delete(e.lanes, l.key)
	}
}

// isFree reports whether what waits in a lane may go into a batch.
func (l *lane) isFree() bool { return len(l.line) == 0 && len(l.waiting) > 0 && !l.isPaused() }

// isPaused reports whether what waits of a key waits for letters that are handed over before.
func (l *lane) isPaused() bool {
	return l.hold == releasing || slices.ContainsFunc(l.requests, func(q *Request) bool { return q.Recall })
}

// hasReady reports whether a lane has changes to hand over. It takes lanes that have none off the front of the list.
func (e *Engine) hasReady() bool {
	n := 0
	for n < len(e.ready) && !e.ready[n].isFree() {
		e.ready[n].listed = false
		n++
	}
	e.ready = e.ready[n:]
	return len(e.ready) > 0
}

// isIdle reports whether nothing is known of the key but its name.
func (l *lane) isIdle() bool {
	return len(l.line) == 0 && len(l.waiting) == 0 && l.hold == notHeld && len(l.requests) == 0 && len(l.handled) == 0 && l.aside == aside{}
}

// countFitting is how many of the changes that wait in a lane fit into a batch with so much room, and their size. A transaction is
// not cut, and the first one fits always if the batch has nothing yet. Changes that have failed differently often, or since
// another time, are not put together, so that nobody inherits the failures of others, or their age.
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

// transaction is where the transaction ends that begins at i, and its size.
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

// shareOfNext is how many changes the next batch may have: an equal part of all that wait, for each free place in the handler that
// the free lanes can take. A single lane takes one place, so it need not leave changes for the others.
func (e *Engine) shareOfNext() int {
	most := min(positive(e.rules.MaxItems), positive(e.limit.items), positive(e.guard.careful))
	if e.rules.Concurrency == 1 || e.rules.InOrder {
		return most
	}
	places := 0
	for _, l := range e.ready {
		if places == e.rules.Concurrency-e.inHand {
			break
		}
		if l.isFree() {
			places++
		}
	}
	places = max(places, 1)
	return min(most, max(1, (e.queued+places-1)/places))
}

// formNext makes a batch of the changes of lanes that are ready.
func (e *Engine) formNext() (*Batch, time.Duration) {
	if e.held.keys > 0 {
		for _, l := range e.ready {
			if l.hold == isHeld && l.isFree() {
				return l.formParked(e), 0
			}
		}
	}
	if !e.hasReady() || e.waitsForOthers() {
		return nil, Never
	}
	if e.rules.Wait > 0 {
		if left := e.ready[0].since.Add(e.rules.Wait).Sub(e.now); left > 0 && !e.isFull() {
			return nil, left
		}
	}
	return e.formBatch(e.ready[0]), 0
}

// waitsForOthers reports whether nothing new is to be tried yet: two batches have failed whose keys are not apart, and
// nothing has succeeded since. If it is an outage, more calls would not help, and if it is not, they will be told apart
// soon.
func (e *Engine) waitsForOthers() bool {
	unclear := 0
	for _, b := range e.batches {
		if b.State == ToCall && b.streak > 0 && len(b.lanes) > 1 && e.breaker.noneSince(b.failing) {
			unclear++
		}
	}
	return unclear > 1
}

// isFull reports whether as much waits as a batch may have.
func (e *Engine) isFull() bool {
	most := min(positive(e.rules.MaxItems), positive(e.limit.items), positive(e.guard.careful))
	items, bytes := 0, 0
	for _, l := range e.ready {
		if !l.isFree() {
			continue
		}
		n, size := l.countFitting(most, positive(e.rules.MaxBytes), true)
		items, bytes = items+n, bytes+size
		if n < len(l.waiting) || items >= most || bytes >= positive(e.rules.MaxBytes) {
			return true
		}
	}
	return false
}

// formBatch makes a batch that begins with the changes of a lane that is ready, and has those of others if there is room.
func (e *Engine) formBatch(first *lane) *Batch {
	items, bytes := e.shareOfNext(), positive(e.rules.MaxBytes)
	b := &Batch{}
	for i := -1; i < len(e.ready); i++ {
		l := first
		if i >= 0 {
			l = e.ready[i]
		}
		if !l.isFree() || l.hold != notHeld { // it was first, or is in the list though it is not ready any more
			continue
		}
		n, size := l.countFitting(items-len(b.Changes), bytes, len(b.Changes) == 0)
		if n == 0 || len(b.Changes) > 0 && !l.waiting[0].hasFailedLike(b.Changes[0]) {
			break
		}
		b.takeFrom(e, l, n)
		if bytes -= size; bytes <= 0 || len(b.Changes) >= items || e.rules.Concurrency > 1 && len(b.lanes) >= e.width.lanes {
			break
		}
	}
	e.batches = append(e.batches, b)
	return b
}

// takeFrom puts the first n changes that wait in a lane into a batch.
func (b *Batch) takeFrom(e *Engine, l *lane, n int) {
	for _, c := range l.waiting[:n] {
		c.state = Batched
		if c.failing > 0 && (b.failing.IsZero() || c.failing < b.failing.UnixNano()) { // under another owner, or in another batch
			b.failing = time.Unix(0, c.failing)
		}
	}
	// The capacity ends where the batch does: nobody may append to it over the changes
	// that still wait.
	if len(b.Changes) == 0 {
		b.Changes = l.waiting[:n:n]
	} else {
		b.Changes = append(b.Changes, l.waiting[:n]...)
	}
	if l.waiting = l.waiting[n:]; len(l.waiting) == 0 {
		l.waiting = nil
	}
	l.since = e.now
	e.queued -= n
	b.lanes = append(b.lanes, l)
	l.line = append(l.line, b)
	l.advance(e)
}
