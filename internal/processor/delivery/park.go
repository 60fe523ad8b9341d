package delivery

import (
	"maps"
	"slices"
	"time"
)

// A change is parked when the letter is stored. With Rules.HoldKeys the key is held from then on: later changes of the
// key are parked too, one change after the other, until the key is released (request.go).

// holdings counts the keys held or about to be, because a lease has room for so many.
type holdings struct {
	rules *Rules
	keys  int
	bytes int
}

func (h *holdings) fits(key string) bool {
	return h.keys < h.rules.MaxHeld && h.bytes+h.rules.HeldBytes(key) <= h.rules.MaxHeldBytes
}

func (h *holdings) add(key string) { h.keys++; h.bytes += h.rules.HeldBytes(key) }

func (h *holdings) remove(key string) { h.keys--; h.bytes -= h.rules.HeldBytes(key) }

// mayPark reports whether the letter of a batch may be stored: if the key must be held, there is room for the key.
func (b *Batch) mayPark(e *Engine) bool {
	return b.isHeld || !e.rules.HoldKeys || b.lanes[0].hold != notHeld || e.held.fits(b.Changes[0].Key)
}

// reportUnheld has changes reported, each once, whose keys cannot be held.
func (e *Engine) reportUnheld() {
	for _, b := range slices.Clone(e.batches) {
		if b.State == ToPark && !b.reported && !b.mayPark(e) {
			b.reported = true
			b.setAside(e)
			e.queueEffect(Effect{Kind: TooManyHeld, Batch: b})
		}
	}
}

// beginParking begins to store the letter of a batch. The key takes a place among the held keys before.
func (b *Batch) beginParking(e *Engine) Effect {
	if e.rules.HoldKeys && b.lanes[0].hold == notHeld {
		b.reserved = true
		e.held.add(b.Changes[0].Key)
	}
	b.takeInHand(e, Parking)
	return Effect{Kind: Park, Batch: b}
}

// LetterStored reports the durable letter of a batch.
type LetterStored struct {
	Batch *Batch
}

func (v LetterStored) applyTo(e *Engine) {
	b := v.Batch
	b.putDown(e)
	e.parked++
	c, l := b.Changes[0], b.lanes[0]
	if !b.isHeld {
		e.breaker.settled(c.Key)
		e.recalls.note(e, b)
	}
	if b.unreserve(e); e.rules.HoldKeys && !b.isHeld {
		if l.hold == notHeld {
			e.reportKey(l.key, BecameHeld)
		}
		l.holdFrom(e, c.LSN)
	}
	c.settle(e)
	e.feed.trim()
	b.replaceBy(e, Stored)
	l.outdateList()
	l.beginRequest(e)
	e.guard.relaxIfSettled(e)
}

// LetterRefused reports a letter of a batch which could not be stored. The change is not at fault: the call is repeated
// after a pause.
type LetterRefused struct {
	Batch *Batch
}

func (v LetterRefused) applyTo(e *Engine) {
	b := v.Batch
	b.putDown(e)
	b.unreserve(e)
	b.to(ToPark, Refused)
	b.streak++
	b.notBefore = e.now.Add(e.rules.Backoff(b.streak))
	e.batches = append(e.batches, b)
	b.lanes[0].lettersFirst()
	b.setAside(e)
	b.lanes[0].beginRequest(e)
}

func (b *Batch) unreserve(e *Engine) {
	if b.reserved {
		b.reserved = false
		e.held.remove(b.Changes[0].Key)
	}
}

// holdFrom parks the changes of a key after an LSN, the LSN of the first failed change; 0 is unknown.
func (l *lane) holdFrom(e *Engine, since int64) {
	if l.hold == notHeld {
		e.held.add(l.key)
		l.hold, l.heldSince = isHeld, since
		if len(l.requests) > 0 && l.requests[0].State == Listing { // letters stored now would not be listed
			l.hold = releasing
		}
	}
	l.heldSince = min(l.heldSince, since)
	// Batches in the handler run to their end. The other batches are dissolved, also those to be parked for a failure
	// of their own: the changes of a key are parked one by one, in their order.
	var waiting []*Change
	for _, b := range slices.Clone(l.line) {
		if b.request != nil || b.State == Calling || b.State == Parking {
			continue
		}
		if len(b.lanes) > 1 {
			b = b.extractKey(e, l)
		}
		for _, c := range b.Changes {
			c.state = Queued
		}
		waiting = append(waiting, b.Changes...)
		b.replaceBy(e, KeyHeld)
	}
	e.lanes.queued += len(waiting)
	l.waiting = append(waiting, l.waiting...)
	l.advance(e)
}

// endHold ends the hold of a key: later changes go to the handler again.
func (l *lane) endHold(e *Engine) {
	if l.hold != notHeld {
		l.hold, l.heldSince = notHeld, 0
		e.held.remove(l.key)
		e.reportKey(l.key, BecameFree)
	}
}

// formParked makes a batch of the next change of a held key. A change before the held position of the key was handled,
// and has come again after a crash or a merge: such a change goes to the handler.
func (l *lane) formParked(e *Engine) *Batch {
	b := &Batch{isHeld: l.waiting[0].LSN >= l.heldSince}
	if b.isHeld {
		b.State = ToPark
	}
	b.takeFrom(e, l, 1)
	e.batches = append(e.batches, b)
	return b
}

// recalls are changes parked although an outage may have been the cause: if an outage is detected before a call begun
// after their last failure succeeds, they are handed over again after the outage.
type recalls struct {
	parked  []recall
	pending []recall  // of the last owner, until the handler succeeds, or whose letters could not be read, for a pause
	since   time.Time // when those of the last owner came; zero is never
	probes  int       // of these that were tried, because there was nothing else to try
	next    time.Time // time of the next recall
}

type recall struct {
	key, letter string
	notBefore   time.Time // of a pending recall; zero is after the next success
	failed      time.Time // last
	inHand      bool      // in the handler when the last owner ended, and so not handed over again
	done        bool      // handled, and the letter may be gone
	due         bool      // handed over again in any case; only for the lease
}

// maxRecalls is how many changes are remembered.
const maxRecalls = 100

// note remembers the parking of a batch.
func (r *recalls) note(e *Engine, b *Batch) {
	if b.blame == isHopeless || b.isOld(e) || b.last.IsZero() || !e.rules.HasBox {
		return
	}
	r.remember(e, recall{key: b.Changes[0].Key, letter: e.rules.Name(b.Changes[0]), failed: b.last})
}

// remember remembers a letter whose change has failed: the letter is handed over again if an outage is detected before
// the next success.
func (r *recalls) remember(e *Engine, p recall) {
	r.parked = slices.DeleteFunc(r.parked, func(o recall) bool { return !o.mayReturn(e) })
	if len(r.parked) < maxRecalls && e.breaker.noneSince(p.failed) {
		r.parked = append(r.parked, p)
	}
}

// inherit remembers a change of the last owner. If that owner had to hand the change over again, or was in an outage,
// this owner does when a call succeeds; otherwise only if this owner detects an outage.
func (r *recalls) inherit(e *Engine, p recall, again bool) {
	if !again {
		p.failed = e.now
		r.parked = append(r.parked, p)
		e.breaker.failed(e.number, e.era, p.key, 0, e.now)
		e.breaker.settled(p.key)
		return
	}
	r.pending = append(r.pending, p)
	r.since, r.next = e.now, e.now.Add(e.rules.Backoff(r.probes+1))
	e.breaker.troubled(e.now) // so that successes count
}

// isUncertain reports whether the outage of the last owner may still last: nothing was handled since.
func (r *recalls) isUncertain(e *Engine) bool {
	return !r.since.IsZero() && e.breaker.noneSince(r.since)
}

// postpone remembers a change whose letter could not be read or removed until a pause is over.
func (r *recalls) postpone(e *Engine, p recall) {
	p.notBefore = e.now.Add(e.rules.Backoff(1))
	r.pending = append(r.pending, p)
}

// resumeDue hands changes over again whose time has come, and returns when to ask again.
func (r *recalls) resumeDue(e *Engine) (wait time.Duration) {
	wait = Never
	if !r.since.IsZero() && !r.isUncertain(e) {
		r.since, r.next, r.probes = time.Time{}, time.Time{}, 0
	}
	if len(r.pending) == 0 || !e.rules.HasBox || e.breaker.IsOpen() {
		return wait
	}
	pending := r.pending
	r.pending = nil
	for _, p := range pending {
		left := p.notBefore.Sub(e.now)
		switch {
		case p.notBefore.IsZero() && p.needsHandler() && r.isUncertain(e) && !r.mayProbe(e):
			r.pending = append(r.pending, p)
			if left := r.next.Sub(e.now); left > 0 && r.probes < e.rules.MaxAttempts {
				wait = min(wait, left)
			}
		case !p.notBefore.IsZero() && left > 0:
			wait = min(wait, left)
			r.pending = append(r.pending, p)
		default:
			p.handOver(e)
		}
	}
	return wait
}

// needsHandler reports whether the handler is called first. Otherwise there is only to see whether a letter is gone.
func (p recall) needsHandler() bool { return !p.inHand && !p.done || !p.failed.IsZero() }

// mayProbe reports whether a change of the last owner is to show the end of that owner's outage, because nothing else
// could. The change has as many tries as any change, because it may be bad all the same.
func (r *recalls) mayProbe(e *Engine) bool {
	if e.items > 0 || e.requests > 0 || r.probes >= e.rules.MaxAttempts || e.now.Before(r.next) {
		return false
	}
	r.probes++
	r.next = e.now.Add(e.rules.Backoff(r.probes + 1))
	return true
}

// mayStart reports whether an outage detected now, or ended just now, would have changes handed over again.
func (r *recalls) mayStart(e *Engine) bool {
	return e.rules.HasBox && slices.ContainsFunc(r.parked, func(p recall) bool { return p.mayReturn(e) })
}

// mayReturn reports whether the change would be handed over again after an outage: nothing has succeeded since its
// failure. The order matters: an outage ends before the success that shows the end counts.
func (p recall) mayReturn(e *Engine) bool { return e.breaker.noneSince(p.failed) || p.isDue(e) }

// isDue reports whether the change is to be handed over again for an outage of whose end the engine has not heard yet.
func (p recall) isDue(e *Engine) bool {
	return e.era != e.breaker.outages() && p.failed.After(e.breaker.goodBefore())
}

// startRecalls hands over again, after an outage, the changes parked during that outage.
func (r *recalls) startRecalls(e *Engine) {
	before := e.breaker.goodBefore()
	for _, p := range r.parked {
		if p.failed.After(before) {
			p.handOver(e)
		}
	}
	r.parked = nil
}

// listOpen lists the changes to be handed over again, now or perhaps: those for which nothing was handled since.
func (r *recalls) listOpen(e *Engine) []recall {
	all := slices.Clone(r.pending)
	for i := range all {
		all[i].due = true
	}
	for _, p := range r.parked {
		if p.due = p.isDue(e); p.mayReturn(e) {
			all = append(all, p)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(e.lanes.own)) {
		for _, q := range e.lanes.own[key].requests {
			if q.IsRecall() { // the recall is under way
				inHand := slices.ContainsFunc(e.lanes.own[key].line, func(b *Batch) bool {
					return b.request == q && b.State == Calling
				})
				p := q.recall()
				p.inHand, p.due = p.inHand || inHand, true
				all = append(all, p)
			}
		}
	}
	return all
}

// recall is a change handed over again by the request of a recall.
func (q *Request) recall() recall {
	return recall{
		key: q.Key, letter: q.Letter, failed: q.failed, inHand: q.origin == recalledInHand,
		done: q.Handled > 0 || q.origin == recalledDone,
	}
}

// handOver has a parked change handed over again.
func (p recall) handOver(e *Engine) {
	origin := recalled
	switch {
	case p.inHand:
		origin = recalledInHand
	case p.done:
		origin = recalledDone
	}
	RequestMade{Request: &Request{
		Token: "recall." + p.key + "." + p.letter, Key: p.key, Letter: p.letter,
		origin: origin,
	}}.applyTo(e)
}
