// Package lanes says which changes of a lease may be handled now, in which batches, and what becomes of those that
// fail. It is generic in the change C and in what a page stands for, P. It calls nobody and waits for nobody: its owner
// asks for the next batch, calls the handler, and says how that came out.
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

	Backoff  func(failures int) time.Duration
	Hopeless func(error) bool // trying again cannot help
	Key      func(*C) string
	LSN      func(*C) int64
	Size     func(*C) int
	Detach   func(*C) // gives the change memory of its own, because the rest of its page needs none any more
}

// Page is a page of the feed whose changes are in the lanes.
type Page[C, P any] struct {
	Of P

	unhandled, unconfirmed int
	changes                []*Change[C, P] // of which some are handled
	bytes                  int             // that it keeps in memory
	left                   int             // of which so many belong to changes that are not handled
}

// Handled reports whether every change of the page is handled.
func (p *Page[C, P]) Handled() bool { return p.unhandled == 0 }

// Confirmed reports whether every change of the page is confirmed.
func (p *Page[C, P]) Confirmed() bool { return p.unconfirmed == 0 }

// Change is one change in the lanes.
type Change[C, P any] struct {
	Page  *Page[C, P]
	Value C   // zero when it is handled
	Place int // among the changes of its LSN
	LSN   int64
	Key   string

	lane      *lane[C, P]
	bytes     int
	failures  int  // before it came here
	cut       bool // from others of its transaction
	handled   bool
	confirmed bool
}

// Batch is a batch of changes of one lane, in their order.
type Batch[C, P any] struct {
	Changes  []*Change[C, P]
	Failures int       // so far
	Failing  time.Time // since when; zero if it has not failed here
	Err      error     // the last failure
	Cut      bool      // it is a part of a transaction
	Park     bool      // it is one change to be parked, not handled
	Held     bool      // and only because its key is held
	Redriven bool      // it was parked before and has one try

	lane      *lane[C, P]
	called    bool // and has failed since it was made
	hopeless  bool
	suspected bool // and so one change in a lane of its key
	probe     bool
	inHand    bool
	notBefore time.Time
	probed    time.Time
}

// IsCut reports whether it has a part of a transaction.
func (b *Batch[C, P]) IsCut() bool {
	return slices.ContainsFunc(b.Changes, func(c *Change[C, P]) bool { return c.cut })
}

// lane is a queue of changes. Its first batch is in hand, pending or a suspect; the other
// batches, then the changes that wait, come after it.
type lane[C, P any] struct {
	key     string
	held    bool // its changes are parked
	waiting []*Change[C, P]
	since   time.Time // when the first of them came
	batches []*Batch[C, P]
	limit   int // of changes in a batch, after one took too long; 0 is none
	full    int // how many that one had
}

// Lanes are the changes of one lease that are not handled yet.
type Lanes[C, P any] struct {
	rules   Rules[C]
	breaker *Breaker
	era     int // of the breaker
	lanes   map[string]*lane[C, P]
	ready   []*lane[C, P]   // lanes with changes that wait and without a batch
	pending []*Batch[C, P]  // to be called, at the earliest at their time
	suspect []*Batch[C, P]  // for the breaker to judge
	order   []*Change[C, P] // all that are not confirmed, in the order of the feed, and some that are
	stale   int             // how many of order are confirmed
	careful int             // 0, or the limit of changes in a batch, which is the only one in hand
	now     time.Time       // of the last call
	inHand  int             // batches
	items   int             // changes not handled
	bytes   int             // of the pages that are not handled
	last    int64           // the LSN of the last change that was added
	through int64           // changes up to this one were done before they were added,
	open    []int64         // but for these
}

// New returns empty lanes. Lanes of several leases may share a breaker.
func New[C, P any](r Rules[C], b *Breaker) *Lanes[C, P] {
	r.Concurrency = max(r.Concurrency, 1)
	return &Lanes[C, P]{rules: r, breaker: b, lanes: map[string]*lane[C, P]{}}
}

// Items is how many changes are not handled.
func (l *Lanes[C, P]) Items() int { return l.items }

// Bytes is the size of the pages that are not handled.
func (l *Lanes[C, P]) Bytes() int { return l.bytes }

// InHand is how many batches are in hand.
func (l *Lanes[C, P]) InHand() int { return l.inHand }

// Restored is the LSN through which Add leaves things out.
func (l *Lanes[C, P]) Restored() int64 { return l.through }

// Restore has Add leave out what is done already: every change up to the LSN through but for those with the LSNs open, in
// their order.
func (l *Lanes[C, P]) Restore(through int64, open []int64) { l.through, l.open = through, open }

// Add puts the changes of a page into their lanes. Failures are how often the first of them has failed before.
func (l *Lanes[C, P]) Add(of P, changes []C, failures int, now time.Time) *Page[C, P] {
	p := &Page[C, P]{Of: of, changes: make([]*Change[C, P], 0, len(changes))}
	place := 0
	for i, value := range changes {
		if place++; i == 0 || l.rules.LSN(&value) != l.last {
			place = 0
		}
		l.last = l.rules.LSN(&value)
		if l.last <= l.through && !slices.Contains(l.open, l.last) {
			continue
		}
		c := &Change[C, P]{
			Page: p, Value: value, Place: place, LSN: l.last, Key: l.rules.Key(&value), bytes: l.rules.Size(&value), failures: failures,
		}
		failures = 0
		p.changes = append(p.changes, c)
		p.bytes += c.bytes
		l.order = append(l.order, c)
		l.enqueue(l.laneOf(c.Key), c, now)
	}
	p.unhandled, p.unconfirmed, p.left = len(p.changes), len(p.changes), p.bytes
	l.items += p.unhandled
	l.bytes += p.bytes
	return p
}

// laneOf is the key's own lane, if it has or needs one, or else the one that all share.
func (l *Lanes[C, P]) laneOf(key string) *lane[C, P] {
	if own := l.lanes[key]; own != nil {
		return own
	}
	if l.rules.Concurrency == 1 {
		key = shared
	}
	return l.lane(key)
}

// shared names the lane of all keys without one of their own. No partition key is empty.
const shared = ""

func (l *Lanes[C, P]) lane(key string) *lane[C, P] {
	if l.lanes[key] == nil {
		l.lanes[key] = &lane[C, P]{key: key}
	}
	return l.lanes[key]
}

func (l *Lanes[C, P]) enqueue(to *lane[C, P], c *Change[C, P], now time.Time) {
	c.lane = to
	to.waiting = append(to.waiting, c)
	if len(to.waiting) == 1 {
		to.since = now
		if len(to.batches) == 0 {
			l.ready = append(l.ready, to)
		}
	}
}

// Never is a wait that only an event can end.
const Never = time.Duration(math.MaxInt64)

// Next takes a batch in hand. When there is none, wait says when to ask again, unless something happens before.
func (l *Lanes[C, P]) Next(now time.Time) (b *Batch[C, P], wait time.Duration) {
	l.now = now
	l.heed()
	if l.inHand >= l.rules.Concurrency || l.careful > 0 && l.inHand > 0 {
		return nil, Never
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
	l.pending, l.suspect = without(l.pending, b), without(l.suspect, b)
	b.inHand = true
	l.inHand++
	return b, 0
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

// due is a pending batch whose time has come.
func (l *Lanes[C, P]) due(now time.Time) (*Batch[C, P], time.Duration) {
	wait := Never
	for _, b := range l.pending {
		left := b.notBefore.Sub(now)
		if left <= 0 {
			return b, 0
		}
		wait = min(wait, left)
	}
	return nil, wait
}

// form makes a batch of the first n changes that wait in a lane.
func (l *Lanes[C, P]) form(from *lane[C, P], n int, now time.Time) {
	b := &Batch[C, P]{Changes: from.waiting[:n:n], Failures: from.waiting[0].failures, lane: from}
	b.Park, b.Held = from.held, from.held
	from.waiting, from.since = from.waiting[n:], now
	from.batches = append(from.batches, b)
	if n > 1 && l.isExhausted(b, now) { // another owner has tried it as a whole
		l.bisect(b)
	}
	l.advance(from)
}

// fits is how many of the changes that wait in a lane make a batch, and whether it is full. A transaction is not cut.
func (l *Lanes[C, P]) fits(from *lane[C, P]) (n int, full bool) {
	if from.held {
		return 1, true
	}
	most := min(positive(l.rules.MaxItems), positive(from.limit), positive(l.careful))
	for bytes := 0; n < len(from.waiting); {
		end, size := transaction(from.waiting, n)
		if n > 0 && (end > most || bytes+size > positive(l.rules.MaxBytes)) {
			return n, true
		}
		n, bytes = end, bytes+size
		if n >= most || bytes >= positive(l.rules.MaxBytes) {
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

// transaction is where the transaction ends that begins at i, and its size.
func transaction[C, P any](changes []*Change[C, P], i int) (end, size int) {
	first := changes[i]
	for end = i; end < len(changes) && changes[end].LSN == first.LSN && changes[end].Key == first.Key; end++ {
		size += changes[end].bytes
	}
	return end, size
}

// without is a list without a batch, which may not be in it.
func without[C, P any](list []*Batch[C, P], b *Batch[C, P]) []*Batch[C, P] {
	if i := slices.Index(list, b); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// Succeed notes that a batch in hand is done or parked. A call was quick if it took less than half of the time that it may.
func (l *Lanes[C, P]) Succeed(b *Batch[C, P], quick bool, now time.Time) {
	l.now = now
	l.lay(b)
	if !b.Park {
		b.lane.grow(len(b.Changes), quick)
		if b.probe {
			l.breaker.close()
		}
		l.vouch(b.Changes, now)
	}
	l.finish(b.Changes)
	l.swap(b)
}

// lay notes that a batch is no longer in hand.
func (l *Lanes[C, P]) lay(b *Batch[C, P]) {
	b.inHand = false
	l.inHand--
}

// vouch tells the breaker that changes were handled.
func (l *Lanes[C, P]) vouch(changes []*Change[C, P], now time.Time) {
	for i, c := range changes {
		if i == 0 || c.Key != changes[i-1].Key {
			l.breaker.succeeded(c.Key, now)
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
			l.confirm(c)
		}
		l.bytes -= c.Page.shed(l.rules.Detach)
	}
	l.trim()
}

// shed gives up memory that handled changes do not need any more: all of it after the last change, and before that most of
// it now and then, because a few changes must not keep the rest of their page.
func (p *Page[C, P]) shed(detach func(*C)) (bytes int) {
	if p.left*4 > p.bytes || p.bytes == 0 {
		return 0
	}
	p.changes = slices.DeleteFunc(slices.Clone(p.changes), func(c *Change[C, P]) bool { return c.handled })
	for _, c := range p.changes {
		detach(&c.Value)
	}
	bytes = p.bytes - p.left
	p.bytes = p.left
	return bytes
}

// swap replaces a batch in its lane by others, which may be none.
func (l *Lanes[C, P]) swap(b *Batch[C, P], by ...*Batch[C, P]) {
	at := b.lane
	i := slices.Index(at.batches, b)
	at.batches = slices.Replace(at.batches, i, i+1, by...)
	l.pending, l.suspect = without(l.pending, b), without(l.suspect, b)
	l.advance(at)
}

// advance lets the first batch of a lane go, or what waits in it.
func (l *Lanes[C, P]) advance(at *lane[C, P]) {
	switch {
	case len(at.batches) > 0:
		b := at.batches[0]
		if b.inHand || slices.Contains(l.pending, b) || slices.Contains(l.suspect, b) || l.condemn(b) {
			return
		}
		l.pending = append(l.pending, b)
	case len(at.waiting) > 0:
		if !slices.Contains(l.ready, at) {
			l.ready = append(l.ready, at)
		}
	case !at.held && (at.limit == 0 || at.key != shared):
		delete(l.lanes, at.key)
	}
}

func (l *Lanes[C, P]) confirm(c *Change[C, P]) {
	if !c.confirmed {
		c.confirmed = true
		c.Page.unconfirmed--
		l.stale++
	}
}

// Confirm notes that by its handler's word a batch is done, and all before it in its lane.
func (l *Lanes[C, P]) Confirm(b *Batch[C, P]) {
	last := b.Changes[len(b.Changes)-1]
	for _, c := range l.order {
		if c.lane == last.lane {
			l.confirm(c)
		}
		if c == last {
			break
		}
	}
	l.trim()
}

// trim drops confirmed changes from the front of the order, and the others when they are most of it.
func (l *Lanes[C, P]) trim() {
	n := 0
	for n < len(l.order) && l.order[n].confirmed {
		n++
	}
	l.order, l.stale = l.order[n:], l.stale-n
	if 2*l.stale > len(l.order) {
		l.order = slices.DeleteFunc(slices.Clone(l.order), func(c *Change[C, P]) bool { return c.confirmed })
		l.stale = 0
	}
}

// Oldest is the first batch of the feed that is not done, if it has failed: its failures, and since when.
func (l *Lanes[C, P]) Oldest() (failures int, failing time.Time) {
	if len(l.order) == 0 {
		return 0, time.Time{}
	}
	c := l.order[0]
	for _, b := range c.lane.batches {
		if slices.Contains(b.Changes, c) {
			return b.Failures, b.Failing
		}
	}
	return c.failures, time.Time{}
}

// IsOldest reports whether a batch has the first change of the feed that is not done.
func (l *Lanes[C, P]) IsOldest(b *Batch[C, P]) bool {
	return len(l.order) > 0 && len(b.Changes) > 0 && slices.Contains(b.Changes, l.order[0])
}

// Done is what is done, also after changes that are not: every change up to the LSN through, but for those with the
// LSNs open. There are at most so many of these, and where there would be more it reaches less far.
func (l *Lanes[C, P]) Done(most int) (through int64, open []int64) {
	add := func(lsn int64) (fits bool) {
		if len(open) > 0 && open[len(open)-1] == lsn {
			return true
		}
		if len(open) == most {
			through = lsn - 1
			return false
		}
		open = append(open, lsn)
		return true
	}
	through = max(l.last, l.through)
	for _, c := range l.order {
		if !c.confirmed && !add(c.LSN) {
			return through, open
		}
	}
	for _, lsn := range l.open {
		if lsn > l.last && !add(lsn) {
			return through, open
		}
	}
	return through, open
}

// Hold has the changes of a key parked from now on, those in the lanes too, until Free.
func (l *Lanes[C, P]) Hold(key string) {
	at := l.own(key)
	at.held = true
	var waiting []*Change[C, P]
	for _, b := range slices.Clone(at.batches) {
		if !b.inHand && !b.Park && !b.Redriven {
			waiting = append(waiting, b.Changes...)
			l.swap(b)
		}
	}
	at.waiting = append(waiting, at.waiting...)
	l.advance(at)
}

// Free ends a hold: what comes is handled again.
func (l *Lanes[C, P]) Free(key string) {
	if at := l.lanes[key]; at != nil {
		at.held = false
		l.advance(at)
	}
}

// IsParking reports whether a change of a key is in hand or about to be parked.
func (l *Lanes[C, P]) IsParking(key string) bool {
	at := l.lanes[key]
	return at != nil && slices.ContainsFunc(at.batches, func(b *Batch[C, P]) bool { return b.Park })
}

// own gives a key a lane of its own, and moves there what waits of it in the shared one. The caller advances it, when it
// has added more.
func (l *Lanes[C, P]) own(key string) *lane[C, P] {
	if at := l.lanes[key]; at != nil {
		return at
	}
	at := l.lane(key)
	from := l.lanes[shared]
	if from == nil {
		return at
	}
	move := func(c *Change[C, P]) bool {
		if c.Key != key || c.handled {
			return false
		}
		c.lane = at
		at.waiting = append(at.waiting, c)
		return true
	}
	from.batches = slices.DeleteFunc(slices.Clone(from.batches), func(b *Batch[C, P]) bool {
		if !b.inHand {
			b.Changes = slices.DeleteFunc(slices.Clone(b.Changes), move)
		}
		if len(b.Changes) == 0 {
			l.pending, l.suspect = without(l.pending, b), without(l.suspect, b)
		}
		return len(b.Changes) == 0
	})
	from.waiting = slices.DeleteFunc(slices.Clone(from.waiting), move)
	if len(from.waiting) == 0 {
		l.ready = slices.DeleteFunc(l.ready, func(o *lane[C, P]) bool { return o == from })
	}
	l.advance(from)
	return at
}

// Redrive puts a change that was parked before all that waits of its key. It has one try.
func (l *Lanes[C, P]) Redrive(key string, change C) *Batch[C, P] {
	at := l.own(key)
	c := &Change[C, P]{Page: &Page[C, P]{unhandled: 1}, Value: change, Key: key, LSN: l.rules.LSN(&change), lane: at, confirmed: true}
	b := &Batch[C, P]{Changes: []*Change[C, P]{c}, Redriven: true, lane: at}
	l.items++
	first := 0
	if len(at.batches) > 0 && at.batches[0].inHand {
		first = 1
	} else if len(at.batches) > 0 {
		l.pending, l.suspect = without(l.pending, at.batches[0]), without(l.suspect, at.batches[0])
	}
	at.batches = slices.Insert(at.batches, first, b)
	l.ready = slices.DeleteFunc(l.ready, func(o *lane[C, P]) bool { return o == at })
	l.advance(at)
	return b
}

// Doom has a change parked that is in the lanes, because of an error that another owner of them has seen.
func (l *Lanes[C, P]) Doom(lsn int64, place, failures int, err error) (found bool) {
	i := slices.IndexFunc(l.order, func(c *Change[C, P]) bool { return c.LSN == lsn && c.Place == place })
	if i < 0 || l.order[i].handled {
		return false
	}
	c := l.order[i]
	at := l.own(c.Key)
	if i = slices.Index(at.waiting, c); i < 0 {
		return false
	}
	at.waiting = slices.Delete(at.waiting, i, i+1)
	at.batches = slices.Insert(at.batches, 0, &Batch[C, P]{Changes: []*Change[C, P]{c}, Failures: failures, Err: err, Park: true, lane: at})
	l.ready = slices.DeleteFunc(l.ready, func(o *lane[C, P]) bool { return o == at })
	l.advance(at)
	return true
}

// Careful has one batch in hand at a time, of at most so many changes, until Trust.
func (l *Lanes[C, P]) Careful(limit int) { l.careful = max(limit, 1) }

// IsCareful reports whether one batch is in hand at a time.
func (l *Lanes[C, P]) IsCareful() bool { return l.careful > 0 }

// Trust ends the care.
func (l *Lanes[C, P]) Trust() { l.careful = 0 }
