package delivery

import (
	"cmp"
	"slices"
	"time"

	"github.com/millrace/changefeed/internal/notes"
)

// How a key is set aside
//
// If a change fails, is stuck in the handler or cannot be parked, the later changes of the key are forgotten: the lease
// names the key, and the position from which the key continues. When the earlier changes are settled, the key is read
// again, page by page, and each page is handled like any other. Once the reads by key have come as far as the feed, the
// key's changes come from the feed again:
//
//	1  the key is behind: changes of the key in the feed are dropped, and their LSN noted
//	2  a page of the key is read when nothing of the key is in memory any more
//	3  the key has caught up when a page reaches the last change that was dropped; or when a page is empty that was asked
//	   for after the last drop, because a later version or a delete may have taken the place of that change
//	4  from then on changes of the key in the feed are taken again, except for those that the reads by key have given
//
// The lease has the key until all changes read by key are settled, because the position has passed these changes.

// aside is the standing of a key set aside.
type aside struct {
	state     asideState
	from      Position // the next read by key begins here
	after     int64    // LSN of the last change that was in memory or is
	dropped   int64    // LSN of the last change that the feed had meanwhile
	late      bool     // a change was dropped since the last read began
	restored  bool     // another owner has set the key aside, and dropped is unknown
	empty     int      // empty reads of the feed since the key has caught up
	passed    bool     // the position had passed the first change of the key, according to the last owner
	streak    int      // reads that failed
	notBefore time.Time
}

type asideState uint8

const (
	notAside asideState = iota
	behind
	reading  // a page is being read
	caughtUp // the feed is taken again
)

// asides are the keys set aside.
type asides struct {
	lanes   []*lane // of these keys, and of those that were set aside and are not forgotten as such
	keys    int
	bytes   int // at least, of the notes about these keys in the lease
	reading int // reads by key under way
	rules   *Rules
}

// setAside sets the key of a batch aside.
func (b *Batch) setAside(e *Engine) {
	if len(b.lanes) == 1 {
		b.lanes[0].setAside(e)
	}
}

// setAside forgets the waiting changes of a key. If the source cannot read a key, or too many are set aside, the
// changes stay in memory, and the buffer is the bound.
func (l *lane) setAside(e *Engine) {
	isNew := l.aside.state == notAside || l.aside.state == caughtUp
	if !e.rules.CanReadKeys || l == e.lanes.common || l.aside.state == reading || isNew && !e.asides.mayAdd(l.key) {
		return
	}
	e.Position() // tells whether the position has passed the key
	l.requeueBehindFirst(e)
	if isNew {
		if l.aside.state == notAside {
			e.asides.lanes = append(e.asides.lanes, l)
		}
		l.aside = aside{
			state: behind, from: e.feed.read, after: max(l.aside.after, e.feed.last),
			dropped: l.aside.dropped, restored: l.aside.restored, passed: l.aside.passed,
		}
		e.asides.add(l.key)
		e.reportKey(l.key, BecameAside)
	}
	kept, forgotten := l.splitWaiting()
	if n := len(forgotten); n > 0 {
		l.aside.from, l.aside.after = forgotten[0].Page.From, forgotten[0].LSN-1
		l.aside.dropped = max(l.aside.dropped, forgotten[n-1].LSN)
	}
	l.releaseHandled(e)
	for _, c := range kept {
		c.release()
	}
	for _, b := range l.line {
		for _, c := range b.Changes {
			if !c.letter && c.lane == l {
				c.release()
			}
		}
	}
	e.lanes.queued -= len(forgotten)
	l.tried = slices.Concat(runsOf(forgotten, e.rules.Name), slices.DeleteFunc(l.tried, func(r notes.Run) bool {
		return r.To <= l.aside.after
	}))
	for _, c := range forgotten {
		c.left = true
		c.settle(e)
	}
	l.waiting = kept
	e.feed.trim()
	l.advance(e)
}

// splitWaiting divides the waiting changes of a lane set aside: some stay in memory, and some are forgotten. Changes of
// a begun transaction stay: reading is by LSN, so the others of the transaction would come again.
func (l *lane) splitWaiting() (kept, forgotten []*Change) {
	n, begun := 0, l.lastInLine()
	if len(l.waiting) > 0 && l.waiting[0].fraction == isCut { // other changes of the transaction may be done
		begun = l.waiting[0].LSN
	}
	for ; n < len(l.waiting) && l.waiting[n].LSN == begun; n++ {
	}
	return l.waiting[:n:n], l.waiting[n:]
}

// lastInLine is the LSN of a lane's last change in a batch; 0 is none.
func (l *lane) lastInLine() (lsn int64) {
	for _, b := range l.line {
		for _, c := range b.Changes {
			if !c.letter && c.lane == l {
				lsn = max(lsn, c.LSN)
			}
		}
	}
	return lsn
}

// releaseHandled ends the wait of the position for unconfirmed changes of a key: from now on the lease has a separate
// position for the key.
func (l *lane) releaseHandled(e *Engine) {
	if !e.rules.ByHand {
		return
	}
	e.feed.each(func(c *Change) {
		if c.state == Handled && c.Key == l.key && !c.passed {
			c.lane = l
			l.handled = append(l.handled, c)
			c.release()
		}
	})
}

// requeueBehindFirst puts the changes in batches behind the first batch back among the waiting changes, so they are
// forgotten too.
func (l *lane) requeueBehindFirst(e *Engine) {
	for i := len(l.line) - 1; i > 0; i-- {
		b := l.line[i]
		if b.State != ToCall || b.request != nil || len(b.lanes) > 1 {
			return
		}
		for _, c := range b.Changes {
			c.state = Queued
		}
		l.waiting = slices.Concat(b.Changes, l.waiting)
		e.lanes.queued += len(b.Changes)
		b.replaceBy(e, KeySetAside)
	}
}

// runsOf is how often the handler has received some changes.
func runsOf(changes []*Change, name func(*Change) string) (runs []notes.Run) {
	for i, c := range changes {
		if c.calls > 0 {
			runs = addRun(runs, c.run(name), i > 0 && changes[i-1].calls > 0 && changes[i-1].isBefore(c))
		}
	}
	return runs
}

// restoreKey goes on with a key set aside by another owner.
func (a *asides) restoreKey(e *Engine, k notes.AsideKey, from Position) {
	l := e.lanes.ownLaneFor(e, k.Key)
	l.aside = aside{
		state: behind, from: from, after: k.LSN - 1, dropped: k.Last, restored: k.Last == 0, passed: k.Passed,
	}
	l.tried = k.Tried
	a.lanes = append(a.lanes, l)
	a.add(k.Key)
}

// mayAdd reports whether the lease has room for another key set aside.
func (a *asides) mayAdd(key string) bool {
	return a.keys < a.rules.MaxAside && (a.rules.MaxAsideBytes == 0 ||
		a.bytes+a.rules.AsideBytes(key) <= a.rules.MaxAsideBytes)
}

func (a *asides) add(key string) {
	if a.keys++; a.rules.MaxAsideBytes > 0 {
		a.bytes += a.rules.AsideBytes(key)
	}
}

func (a *asides) remove(key string) {
	if a.keys--; a.rules.MaxAsideBytes > 0 {
		a.bytes -= a.rules.AsideBytes(key)
	}
}

// isElsewhere reports whether a change of the feed comes from the reads by key instead, which have given the change or
// will give it.
func (l *lane) isElsewhere(c *Change) bool {
	switch l.aside.state {
	case behind, reading:
		l.aside.dropped, l.aside.late = c.LSN, true
		return true
	case caughtUp:
		return c.LSN <= l.aside.after
	}
	return false
}

// MakeRoom sets keys aside, those with the most changes first, if they keep later changes in memory because they fail
// or are in the handler for long.
func (e *Engine) MakeRoom(items int, patience time.Duration, now time.Time) {
	e.now = now
	var stuck []*lane
	for _, l := range e.lanes.own {
		if len(l.waiting) > 0 && l.isStuck(now.Add(-patience)) {
			stuck = append(stuck, l)
		}
	}
	slices.SortFunc(stuck, func(a, b *lane) int {
		return cmp.Or(len(b.waiting)-len(a.waiting), cmp.Compare(a.key, b.key))
	})
	for _, l := range stuck {
		if e.items <= items {
			return
		}
		l.setAside(e)
	}
}

// isStuck reports whether a lane does not go on by itself soon.
func (l *lane) isStuck(since time.Time) bool {
	if l.hold == releasing {
		return true
	}
	if len(l.line) == 0 {
		return false
	}
	b := l.line[0]
	return b.streak > 0 || b.State == Suspect || b.State == ToPark || b.State == Calling && b.taken.Before(since)
}

// readKeys has the keys read again whose changes in memory are settled, and returns when to ask again.
func (a *asides) readKeys(e *Engine) time.Duration {
	wait := Never
	if len(a.lanes) > 0 {
		a.dropCaughtUp(e)
	}
	for _, l := range a.lanes {
		if l.aside.state != behind || len(l.line) > 0 || len(l.waiting) > 0 || l.hold == releasing ||
			a.reading >= e.rules.KeyPages {
			continue
		}
		if left := l.aside.notBefore.Sub(e.now); left > 0 {
			wait = min(wait, left)
			continue
		}
		l.aside.state, l.aside.late = reading, false
		a.reading++
		e.queueEffect(Effect{Kind: ReadKey, Key: l.key, From: l.aside.from})
	}
	return wait
}

// KeyRead reports a page of a key, read from where the effect said.
type KeyRead struct {
	Key     string
	Of      any // of the owner: see Page
	Next    Position
	Head    int64 // LSN of the newest change of the partition at that time; 0 is unknown
	Changes int   // how many there are
	Meta    func(i int) Meta
}

func (v KeyRead) applyTo(e *Engine) {
	n := v.Changes
	e.asides.reading--
	l := e.lanes.own[v.Key]
	a := &l.aside
	p := newPage(v.Of, a.from, v.Next, n, v.Meta, 0, nil)
	p.ofKey, p.added = true, e.now
	seen := a.after
	e.items += n
	e.bytes += p.bytes
	for i := range p.changes {
		c := &p.changes[i]
		c.release()
		if c.LSN <= seen {
			c.settle(e)
			continue
		}
		if at := slices.Index(l.ahead, e.rules.Name(c)); at >= 0 {
			l.ahead = slices.Delete(l.ahead, at, at+1)
			a.after = c.LSN
			c.settle(e)
			continue
		}
		if a.after = c.LSN; c.isSkipped(e) {
			c.skip(e)
			continue
		}
		e.guard.count(c, e.rules.Name)
		for _, run := range l.tried {
			if c.isIn(run, e.rules.Name) {
				c.restore(run)
			}
		}
		c.lane = l
		e.lanes.queued++
		l.add(e, c)
	}
	a.from, a.streak, a.state = v.Next, 0, behind
	isEnd := n == 0 && !a.late && (v.Head == 0 || v.Head >= a.dropped)
	switch {
	case isEnd, n > 0 && !a.restored && a.after >= a.dropped:
		a.state, a.empty = caughtUp, 0
		e.asides.remove(v.Key)
		e.reportKey(v.Key, CaughtUp)
		e.asides.dropCaughtUp(e)
	case n == 0: // a replica that lags behind, or a change that came meanwhile
		a.notBefore = e.now.Add(e.rules.Backoff(1))
	}
	e.guard.pageAdded(e, p)
	l.advance(e)
}

// feedIsEmpty is how many reads of the feed show that the feed never gives a change read by key: a later version or a
// delete has taken the place of that change. The second read to find nothing began when the key had caught up already.
const feedIsEmpty = 2

// KeyFailed reports a failed read of a key.
type KeyFailed struct {
	Key string
}

func (v KeyFailed) applyTo(e *Engine) {
	e.asides.reading--
	a := &e.lanes.own[v.Key].aside
	a.state = behind
	a.streak++
	a.notBefore = e.now.Add(e.rules.Backoff(a.streak))
}

// dropCaughtUp forgets of keys that they were set aside, once nothing is left of this.
func (a *asides) dropCaughtUp(e *Engine) {
	a.lanes = slices.DeleteFunc(a.lanes, func(l *lane) bool {
		from, _ := l.continueFrom()
		if l.aside.state != caughtUp || from != nil || l.aside.after > e.feed.last {
			return false
		}
		l.aside, l.tried = aside{}, nil
		l.advance(e)
		return true
	})
}

// continueFrom is where a key passed by the position continues: the first unsettled change of the key, and a position
// before this change; nil if there is none.
func (l *lane) continueFrom() (from Position, lsn int64) {
	if l.aside.state == notAside {
		return nil, 0
	}
	if len(l.handled) > 0 {
		return l.handled[0].Page.From, l.handled[0].LSN
	}
	for _, b := range l.line {
		for _, c := range b.Changes {
			if !c.letter && c.lane == l && c.state == Batched && c.passed {
				return c.Page.From, c.LSN
			}
		}
	}
	for _, c := range l.waiting {
		if c.passed {
			return c.Page.From, c.LSN
		}
	}
	if l.aside.state == caughtUp {
		return nil, 0
	}
	return l.aside.from, l.aside.after + 1
}
