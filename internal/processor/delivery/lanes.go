package delivery

import (
	"slices"
	"time"
)

// lanes are the lanes of an engine.
type lanes struct {
	common *lane
	own    map[string]*lane // by their keys
	ready  []*lane          // those that have changes to hand over and no batch, and others that had
	queued int              // changes that wait in lanes
	rules  *Rules
}

// laneOf is the lane that a change of a key goes to.
func (all *lanes) laneOf(key string) *lane {
	if at := all.own[key]; at != nil {
		return at
	}
	if all.rules.Concurrency == 1 || all.rules.InOrder {
		return all.common
	}
	return all.laneFor(key)
}

// laneFor is the lane of a key, which is made if there is none.
func (all *lanes) laneFor(key string) *lane {
	if all.own[key] == nil {
		all.own[key] = &lane{key: key}
	}
	return all.own[key]
}

// ownLaneFor gives a key a separate lane, and moves the changes of the key there from the common lane. The caller adds
// something to the lane, or marks the lane: an idle lane would be removed.
func (all *lanes) ownLaneFor(e *Engine, key string) *lane {
	if at := all.own[key]; at != nil {
		return at
	}
	at := all.laneFor(key)
	for _, b := range slices.Clone(all.common.line) {
		if b.State == ToCall {
			b.extractKey(e, at)
		}
	}
	all.common.waiting = slices.DeleteFunc(slices.Clone(all.common.waiting), func(c *Change) bool {
		if c.Key != key {
			return false
		}
		c.lane = at
		at.waiting = append(at.waiting, c)
		return true
	})
	at.since = all.common.since
	all.common.advance(e)
	if !at.isIdle() {
		at.advance(e)
	}
	return at
}

// isPlain reports whether every change goes to the common lane.
func (e *Engine) isPlain() bool {
	return (e.rules.Concurrency == 1 || e.rules.InOrder) && len(e.lanes.own) == 0 && e.feed.restored.end() == 0 &&
		len(e.skips) == 0
}

// namelessFailures returns the failures of the first change, if the lease has their number and not the change. With a
// limit the number counts for nothing: another change may have failed, before there was a limit.
func (e *Engine) namelessFailures() int {
	if e.rules.mayDivide() {
		return 0
	}
	return e.feed.restored.first
}

// addToCommon adds the changes of a page to the common lane.
func (p *Page) addToCommon(e *Engine) {
	all := make([]*Change, len(p.changes))
	for i := range p.changes {
		all[i] = &p.changes[i]
		all[i].lane = e.lanes.common
	}
	all[0].calls, all[0].failures = e.feed.restored.first, e.namelessFailures()
	e.feed.restored.first = 0
	e.lanes.queued += len(all)
	e.lanes.common.add(e, all...)
}

// addToLanes adds the changes of a page to their lanes, but for those that are settled already.
func (p *Page) addToLanes(e *Engine) {
	for i := range p.changes {
		c := &p.changes[i]
		if e.feed.restored.isSettled(c.LSN) {
			c.settle(e)
			continue
		}
		e.feed.restored.count(c, e.feed.name)
		if first := e.feed.restored.first; first > 0 {
			c.calls, c.failures, e.feed.restored.first = max(c.calls, first), max(c.failures, e.namelessFailures()), 0
		}
		at := e.lanes.laneOf(c.Key)
		if at.isElsewhere(c) {
			c.settle(e)
			continue
		}
		if c.isSkipped(e) {
			c.skip(e)
			at.advance(e)
			continue
		}
		c.lane = at
		e.lanes.queued++
		at.add(e, c)
	}
	if n := len(p.changes); n > 0 && e.feed.restored.end() <= p.changes[n-1].LSN {
		e.feed.restored = restored{}
	}
}

// hasReady reports whether a lane has changes to hand over. hasReady removes lanes without such changes from the front
// of the list.
func (all *lanes) hasReady() bool {
	n := 0
	for n < len(all.ready) && !all.ready[n].isFree() {
		all.ready[n].listed = false
		n++
	}
	all.ready = all.ready[n:]
	return len(all.ready) > 0
}

// formNext makes a batch of the changes of lanes that are ready.
func (all *lanes) formNext(e *Engine) (*Batch, time.Duration) {
	if e.held.keys > 0 {
		for _, l := range all.ready {
			if l.hold == isHeld && l.isFree() {
				return l.formParked(e), 0
			}
		}
	}
	if !all.hasReady() || e.waitsForOthers() {
		return nil, Never
	}
	if e.rules.Wait > 0 {
		if left := all.ready[0].since.Add(e.rules.Wait).Sub(e.now); left > 0 && !all.isFull(e) {
			return nil, left
		}
	}
	return all.formBatch(e, all.ready[0]), 0
}

// formHeld makes batches of held changes that are ready.
func (all *lanes) formHeld(e *Engine) {
	for _, l := range slices.Clone(all.ready) {
		if l.hold == isHeld && l.isFree() {
			l.formParked(e)
		}
	}
}

// formBatch makes a batch that begins with the changes of a lane that is ready, and has those of others if there is
// room.
func (all *lanes) formBatch(e *Engine, first *lane) *Batch {
	items, bytes := all.shareOfNext(e), positive(e.rules.MaxBytes)
	b := &Batch{}
	for i := -1; i < len(all.ready); i++ {
		l := first
		if i >= 0 {
			l = all.ready[i]
		}
		if !l.isFree() || l.hold != notHeld { // the lane was first, or is still listed although not ready any more
			continue
		}
		n, size := l.countFitting(items-len(b.Changes), bytes, len(b.Changes) == 0)
		if n == 0 || len(b.Changes) > 0 && !l.waiting[0].hasFailedLike(b.Changes[0]) {
			break
		}
		b.takeFrom(e, l, n)
		if bytes -= size; bytes <= 0 || len(b.Changes) >= items || e.rules.Concurrency > 1 &&
			len(b.lanes) >= e.width.lanes {
			break
		}
	}
	e.batches = append(e.batches, b)
	return b
}

// shareOfNext is how many changes the next batch may have: an equal part of all that wait, for each free place in the
// handler that the free lanes can take. A single lane takes a single place, so it need not leave changes for the other
// places.
func (all *lanes) shareOfNext(e *Engine) int {
	most := min(positive(e.rules.MaxItems), positive(e.limit.items), positive(e.guard.careful))
	if e.rules.Concurrency == 1 || e.rules.InOrder {
		return most
	}
	places := 0
	for _, l := range all.ready {
		if places == e.rules.Concurrency-e.inHand {
			break
		}
		if l.isFree() {
			places++
		}
	}
	places = max(places, 1)
	return min(most, max(1, (all.queued+places-1)/places))
}

// isFull reports whether as much waits as a batch may have.
func (all *lanes) isFull(e *Engine) bool {
	most := min(positive(e.rules.MaxItems), positive(e.limit.items), positive(e.guard.careful))
	items, bytes := 0, 0
	for _, l := range all.ready {
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
