package lanes

import (
	"math"
	"slices"
	"time"
)

// lane is a queue of changes. Its first batch is in hand, pending or a suspect; the other
// batches, then the changes that wait, come after it.
type lane[C, P any] struct {
	key     string
	held    bool // its changes are parked
	paused  bool // what waits in it waits on
	waiting []*Change[C, P]
	since   time.Time // when the first of them came
	batches []*Batch[C, P]
	limit   int // of changes in a batch, after one took too long; 0 is none
	full    int // how many that one had
}

// fits is how many of the changes that wait in a lane make a batch with so many items and bytes at most, and whether that
// is full. A transaction is not cut.
func (at *lane[C, P]) fits(items, bytes int) (n int, full bool) {
	if at.held {
		return 1, true
	}
	items = min(items, positive(at.limit))
	for sum := 0; n < len(at.waiting); {
		end, size := transaction(at.waiting, n)
		if n > 0 && (end > items || sum+size > bytes) {
			return n, true
		}
		n, sum = end, sum+size
		if n >= items || sum >= bytes {
			return n, true
		}
	}
	return n, false
}

// positive is a limit; zero is none.
func positive(limit int) int {
	if limit == 0 {
		return math.MaxInt
	}
	return limit
}

// grow raises the limit of a lane after a batch of that size was quick.
func (at *lane[C, P]) grow(changes int, quick bool) {
	if !quick || at.limit == 0 || changes < at.limit {
		return
	}
	if at.limit *= 2; at.limit >= at.full {
		at.limit = 0
	}
}

// halves are the parts of a batch that took too long, and the limit of those that come.
func (at *lane[C, P]) halves(b *Batch[C, P]) []*Batch[C, P] {
	if _, alone := middle(b.Changes); alone {
		return []*Batch[C, P]{b}
	}
	if at.limit == 0 {
		at.full = len(b.Changes)
	}
	at.limit = max(len(b.Changes)/2, 1)
	halves := b.cut()
	halves[0].notBefore = b.notBefore
	halves[1].Failures, halves[1].Failing = 0, time.Time{}
	return halves
}

// queue has the lanes, and the batches at their fronts: each is in hand, pending or a suspect.
type queue[C, P any] struct {
	single  bool // a key has a lane of its own only where it needs one
	lanes   map[string]*lane[C, P]
	ready   []*lane[C, P]  // lanes with changes that wait and without a batch
	pending []*Batch[C, P] // to be called, at the earliest at their time
	suspect []*Batch[C, P] // for the breaker to judge
}

// laneOf is the key's own lane, if it has or needs one, or else the one that all share.
func (q *queue[C, P]) laneOf(key string) *lane[C, P] {
	if own := q.lanes[key]; own != nil {
		return own
	}
	if q.single {
		key = shared
	}
	return q.named(key)
}

// shared names the lane of all keys without one of their own. No partition key is empty.
const shared = ""

func (q *queue[C, P]) named(key string) *lane[C, P] {
	if q.lanes[key] == nil {
		q.lanes[key] = &lane[C, P]{key: key}
	}
	return q.lanes[key]
}

func (q *queue[C, P]) enqueue(to *lane[C, P], c *Change[C, P], now time.Time) {
	c.lane = to
	to.waiting = append(to.waiting, c)
	if len(to.waiting) == 1 {
		to.since = now
		if len(to.batches) == 0 && !to.paused {
			q.ready = append(q.ready, to)
		}
	}
}

// due is a pending batch whose time has come.
func (q *queue[C, P]) due(now time.Time) (*Batch[C, P], time.Duration) {
	wait := Never
	for _, b := range q.pending {
		left := b.notBefore.Sub(now)
		if left <= 0 {
			return b, 0
		}
		wait = min(wait, left)
	}
	return nil, wait
}

// without is a list without a batch, which may not be in it.
func without[C, P any](list []*Batch[C, P], b *Batch[C, P]) []*Batch[C, P] {
	if i := slices.Index(list, b); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// front is the first batch of a lane, if it is to become pending or a suspect. Where there is none, the changes that wait
// are ready to make one, and an empty lane goes.
func (q *queue[C, P]) front(at *lane[C, P]) *Batch[C, P] {
	switch {
	case len(at.batches) > 0:
		if b := at.batches[0]; !b.inHand && !slices.Contains(q.pending, b) && !slices.Contains(q.suspect, b) {
			return b
		}
	case len(at.waiting) > 0:
		if !at.paused && !slices.Contains(q.ready, at) {
			q.ready = append(q.ready, at)
		}
	// A lane of a key goes with its last change, or there would be a lane for every key
	// that ever changed. The shared lane stays while it has a limit, because it comes
	// back with the next page and its handler is as slow as before.
	case !at.held && (at.limit == 0 || at.key != shared):
		delete(q.lanes, at.key)
	}
	return nil
}

// withdraw has a batch no longer pending, nor a suspect.
func (q *queue[C, P]) withdraw(b *Batch[C, P]) {
	q.pending, q.suspect = without(q.pending, b), without(q.suspect, b)
}

// insert puts a batch into a lane, before the batch at i and before all that waits.
func (q *queue[C, P]) insert(at *lane[C, P], i int, b *Batch[C, P]) {
	at.batches = slices.Insert(at.batches, i, b)
	b.lane = at
	for _, c := range b.Changes {
		c.lane = at
	}
	q.unready(at)
}

// unready notes that nothing that waits in a lane may go now.
func (q *queue[C, P]) unready(at *lane[C, P]) {
	q.ready = slices.DeleteFunc(q.ready, func(o *lane[C, P]) bool { return o == at })
}

// migrate moves the changes of a key from the shared lane to one of the key, but for those in hand.
func (q *queue[C, P]) migrate(from, to *lane[C, P]) {
	move := func(c *Change[C, P]) bool {
		if c.Key != to.key || c.handled {
			return false
		}
		c.lane = to
		to.waiting = append(to.waiting, c)
		return true
	}
	from.batches = slices.DeleteFunc(slices.Clone(from.batches), func(b *Batch[C, P]) bool {
		if !b.inHand {
			b.Changes = slices.DeleteFunc(slices.Clone(b.Changes), move)
		}
		if len(b.Changes) == 0 {
			q.withdraw(b)
		}
		return len(b.Changes) == 0
	})
	from.waiting = slices.DeleteFunc(slices.Clone(from.waiting), move)
	if len(from.waiting) == 0 {
		q.unready(from)
	}
}

// IsParking reports whether a change of a key is in hand or about to be parked.
func (q *queue[C, P]) IsParking(key string) bool {
	at := q.lanes[key]
	return at != nil && slices.ContainsFunc(at.batches, func(b *Batch[C, P]) bool { return b.Park })
}

// Stuck is how many changes are not handled and wait for something else than their turn: for the breaker to judge
// them, for their letter to be kept, or behind such a one of their key.
func (q *queue[C, P]) Stuck() (n int) {
	for _, at := range q.lanes {
		if len(at.batches) == 0 || at.key == shared || !at.batches[0].suspected && !at.batches[0].refused {
			continue
		}
		n += len(at.waiting)
		for _, b := range at.batches {
			n += len(b.Changes)
		}
	}
	return n
}
