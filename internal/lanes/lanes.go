// Package lanes says which changes of a lease may be handled now, in which batches, and what becomes of those that
// fail. It is generic in the change C and in what a page stands for, P. It calls nobody and waits for nobody: its owner
// asks for the next batch, calls the handler, and says how that came out. An import has lanes too, whose changes are the
// documents that are to be written.
//
// A lane is a queue of changes that are handled in order. With a concurrency of one all changes share a lane, and a
// batch is all that waits there. Above one each key has its own, and a batch is what waits of one key.
//
// A batch that fails comes again after a pause. When its attempts are used up it is bisected, between transactions as
// long as it has several, until a change that fails is alone. That change is a suspect, and gets a lane for its key if
// it had none, so that others pass. The breaker judges suspects: either they are parked, or so many keys fail that it
// is no fault of theirs.
package lanes

import (
	"math"
	"slices"
	"time"
)

// Rules are how changes are batched and retried.
type Rules[C any] struct {
	Concurrency int           // batches in hand at once
	MaxItems    int           // changes in a batch, transactions excepted; 0 is no limit
	MaxBytes    int           // bytes in a batch, transactions excepted; 0 is no limit
	Wait        time.Duration // how long a batch that is not full waits for more changes
	MaxAttempts int           // failures before a batch is bisected and a change is a suspect; 0 is no limit
	MaxAge      time.Duration // how long a batch may fail before that; 0 is no limit
	CanPark     bool          // else a change that fails alone is tried for ever
	ByHand      bool          // changes are confirmed by Confirm, not by success

	Backoff func(failures int) time.Duration
	Key     func(*C) string
	LSN     func(*C) int64
	Size    func(*C) int
	Detach  func(*C) // gives the change memory of its own, because the rest of its page needs none any more
}

// Lanes are the changes of one lease that are not handled yet.
type Lanes[C, P any] struct {
	Ledger ledger[C, P] // what is done of the feed

	queue[C, P]
	rules   Rules[C]
	breaker *Breaker
	era     int       // of the breaker
	careful int       // 0, or the limit of changes in a batch, which is the only one in hand
	now     time.Time // of the last call
	inHand  int       // batches
	items   int       // changes not handled
	bytes   int       // of the pages that are not handled
}

// New returns empty lanes. Lanes of several leases may share a breaker.
func New[C, P any](r Rules[C], b *Breaker) *Lanes[C, P] {
	r.Concurrency = max(r.Concurrency, 1)
	single := r.Concurrency == 1
	return &Lanes[C, P]{Ledger: ledger[C, P]{single: single}, queue: queue[C, P]{single: single, lanes: map[string]*lane[C, P]{}}, rules: r, breaker: b}
}

// Items is how many changes are not handled.
func (l *Lanes[C, P]) Items() int { return l.items }

// Bytes is the size of the pages that are not handled.
func (l *Lanes[C, P]) Bytes() int { return l.bytes }

// InHand is how many batches are in hand.
func (l *Lanes[C, P]) InHand() int { return l.inHand }

// Add puts the changes of a page into their lanes. Failures are how often the first of them has failed before.
func (l *Lanes[C, P]) Add(of P, changes []C, failures int, now time.Time) *Page[C, P] {
	p := &Page[C, P]{Of: of, changes: make([]*Change[C, P], 0, len(changes))}
	place := 0
	for i, value := range changes {
		lsn := l.rules.LSN(&value)
		if place++; i == 0 || lsn != l.Ledger.last {
			place = 0
		}
		l.Ledger.last = lsn
		// The LSN is noted before, so that Done reaches across what is left out here.
		if l.Ledger.wasDone(lsn) {
			continue
		}
		c := &Change[C, P]{
			Page: p, Value: value, Place: place, LSN: lsn, Key: l.rules.Key(&value), bytes: l.rules.Size(&value), failures: failures,
		}
		// A checkpoint has the failures of the change that it begins with, so the
		// others have none.
		failures = 0
		p.changes = append(p.changes, c)
		p.bytes += c.bytes
		l.Ledger.order = append(l.Ledger.order, c)
		l.enqueue(l.laneOf(c.Key), c, now)
	}
	p.unhandled, p.unconfirmed, p.left = len(p.changes), len(p.changes), p.bytes
	l.items += p.unhandled
	l.bytes += p.bytes
	return p
}

// Never is a wait that only an event can end.
const Never = time.Duration(math.MaxInt64)

// Next takes a batch in hand. When there is none, wait says when to ask again, unless something happens before.
func (l *Lanes[C, P]) Next(now time.Time) (b *Batch[C, P], wait time.Duration) {
	l.now = now
	l.restart()
	if l.inHand >= l.rules.Concurrency || l.careful > 0 && l.inHand > 0 {
		return nil, Never
	}
	// Parking goes first, and in an outage too: it needs nothing that handlers need,
	// and lets the rest of a key's lane go on.
	if l.breaker.IsOpen() { // else they come in their turn
		l.formHeld(now)
	}
	if b = l.toPark(now); b == nil {
		if open, left := l.breaker.admit(now); left > 0 {
			return nil, left
		} else if open {
			b = l.probe(now)
		} else {
			b, wait = l.callable(now)
		}
	}
	if b == nil {
		return nil, wait
	}
	l.take(b)
	return b, 0
}

func (l *Lanes[C, P]) take(b *Batch[C, P]) {
	l.withdraw(b)
	b.inHand, b.taken = true, l.now
	l.inHand++
}

// TakeAll takes all that waits in the shared lane in hand, whatever the rules say: the handler has had it already.
func (l *Lanes[C, P]) TakeAll(now time.Time) *Batch[C, P] {
	from := l.lanes[shared]
	if from == nil || len(from.waiting) == 0 {
		return nil
	}
	b := &Batch[C, P]{Changes: from.waiting, Failures: from.waiting[0].failures, lane: from}
	l.now, from.waiting = now, nil
	l.unready(from)
	from.batches = append(from.batches, b)
	l.take(b)
	return b
}

// callable finds a batch whose time has come, and else makes one.
func (l *Lanes[C, P]) callable(now time.Time) (*Batch[C, P], time.Duration) {
	b, wait := l.due(now)
	if b != nil {
		return b, 0
	}
	for i, from := range l.ready {
		n, full := l.fits(from)
		if left := from.since.Add(l.rules.Wait).Sub(now); !full && left > 0 && !from.held {
			wait = min(wait, left)
			continue
		}
		l.ready = slices.Delete(l.ready, i, i+1)
		l.form(from, n, now)
		return l.due(now)
	}
	return nil, wait
}

// fits is how many of the changes that wait in a lane make a batch, and whether it is full.
func (l *Lanes[C, P]) fits(from *lane[C, P]) (n int, full bool) {
	return from.fits(min(positive(l.rules.MaxItems), positive(l.careful)), positive(l.rules.MaxBytes))
}

// form makes a batch of the first n changes that wait in a lane.
func (l *Lanes[C, P]) form(from *lane[C, P], n int, now time.Time) {
	// The capacity ends where the batch does: nobody may append to it over the changes
	// that still wait.
	b := &Batch[C, P]{Changes: from.waiting[:n:n], Failures: from.waiting[0].failures, lane: from}
	b.Park, b.Held = from.held, from.held
	from.waiting, from.since = from.waiting[n:], now
	from.batches = append(from.batches, b)
	if n > 1 && b.isExhausted(&l.rules, now) { // another owner has tried it as a whole
		l.bisect(b)
	}
	l.advance(from)
}

// Succeed notes that a batch in hand is done or parked. A call was quick if it took less than half of the time that it may.
func (l *Lanes[C, P]) Succeed(b *Batch[C, P], quick bool, now time.Time) {
	l.now = now
	l.putDown(b)
	if !b.Park {
		b.lane.grow(len(b.Changes), quick)
		if b.probe {
			l.breaker.close()
		}
		l.credit(b.Changes, b.taken)
	} else if !b.Held {
		l.breaker.settled(b.Changes[0].Key)
	}
	l.finish(b.Changes)
	l.swap(b)
}

// Handle has a batch in hand that was to be parked handled instead.
func (l *Lanes[C, P]) Handle(b *Batch[C, P]) {
	l.putDown(b)
	b.Park, b.Held, b.tries = false, false, 0
	l.advance(b.lane)
}

// putDown notes that a batch is no longer in hand.
func (l *Lanes[C, P]) putDown(b *Batch[C, P]) {
	b.inHand = false
	l.inHand--
}

// credit counts changes as handled, for the breaker, by a call that was begun at a time: only that says that the
// handler had what it needs.
func (l *Lanes[C, P]) credit(changes []*Change[C, P], begun time.Time) {
	for i, c := range changes {
		if i == 0 || c.Key != changes[i-1].Key {
			l.breaker.succeeded(c.Key, begun)
		}
	}
}

// finish notes that changes are handled or parked.
func (l *Lanes[C, P]) finish(changes []*Change[C, P]) {
	for _, c := range changes {
		if c.handled {
			continue
		}
		var none C
		c.Value, c.handled = none, true
		l.items--
		c.Page.unhandled--
		c.Page.left -= c.bytes
		if !l.rules.ByHand {
			l.Ledger.confirm(c)
		}
		l.bytes -= c.Page.shed(l.rules.Detach)
	}
	l.Ledger.trim()
}

// swap replaces a batch in its lane by others, which may be none.
func (l *Lanes[C, P]) swap(b *Batch[C, P], by ...*Batch[C, P]) {
	at := b.lane
	i := slices.Index(at.batches, b)
	at.batches = slices.Replace(at.batches, i, i+1, by...)
	l.withdraw(b)
	l.advance(at)
}

// advance lets the first batch of a lane go, or what waits in it.
func (l *Lanes[C, P]) advance(at *lane[C, P]) {
	if b := l.front(at); b != nil && !l.escalate(b) {
		l.pending = append(l.pending, b)
	}
}

// Blame notes how often the first change of an LSN has failed before, if it is in the lanes.
func (l *Lanes[C, P]) Blame(lsn int64, failures int) {
	if c := l.Ledger.find(func(c *Change[C, P]) bool { return c.LSN == lsn }); c != nil {
		c.failures = failures
	}
}

// Careful has one batch in hand at a time, of at most so many changes, until a limit of 0 ends that.
func (l *Lanes[C, P]) Careful(limit int) { l.careful = limit }

// IsCareful reports whether one batch is in hand at a time.
func (l *Lanes[C, P]) IsCareful() bool { return l.careful > 0 }
