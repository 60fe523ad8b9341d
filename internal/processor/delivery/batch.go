package delivery

import (
	"slices"
	"time"
)

// Batch is a batch of changes: of one lane or, if no key is in two batches, of several.
type Batch struct {
	Changes []*Change // those of a lane in their order
	State   BatchState
	Err     error // the last failure

	lanes     []*lane
	failing   time.Time  // first failure of the changes; zero without a failure
	apart     time.Time  // first failure of the batch in its present size
	since     *time.Time // successes from then on are evidence against the batch; shared by the parts of a batch
	evidence  time.Time  // since, at the time when the batch became a suspect
	streak    int        // tries in a row that failed, of the handler or of the letter: the pause grows with it
	notBefore time.Time
	asked     time.Time // the handler wants no call before
	taken     time.Time // beginning of the last call
	last      time.Time // time of the last failure
	era       int       // of the last call
	blame     blame     // of the last failure
	suspicion suspicion
	probe     bool // the call shows whether an outage is over
	probed    time.Time
	reserved  bool     // the key has a place among the held keys
	reported  bool     // the missing place was reported
	isHeld    bool     // to be parked only because the key is held
	request   *Request // of a redriven letter
}

// to changes the state.
func (b *Batch) to(next BatchState, because BatchEvent) {
	mustAllow(transitions, "batch", b.State, because, next)
	if visited != nil {
		visited(b.State, because, next)
	}
	b.State = next
}

// visited is called for each transition, in the test that compares the transitions with their table.
var visited func(BatchState, BatchEvent, BatchState)

// Failing is since when the batch fails; zero without a failure.
func (b *Batch) Failing() time.Time { return b.failing }

// Attempt is 1 and how often the handler has received the batch's changes before.
func (b *Batch) Attempt() int {
	calls := 0
	for _, c := range b.Changes {
		calls = max(calls, c.calls)
	}
	return calls + 1
}

// IsHeld reports whether the change is to be parked only because the key is held.
func (b *Batch) IsHeld() bool { return b.isHeld }

// HasBeenRefused reports whether the letter of the batch may be stored already: an earlier try has failed, or has had
// no answer.
func (b *Batch) HasBeenRefused() bool { return b.State == Parking && b.streak > 0 }

// HeldSince is the LSN of the change the key of the batch is held for; 0 is unknown.
func (b *Batch) HeldSince() int64 { return b.lanes[0].heldSince }

// IsRedriven reports whether the change is a letter handed over again.
func (b *Batch) IsRedriven() bool { return b.request != nil }

// IsCut reports whether the batch has a part of a transaction.
func (b *Batch) IsCut() bool {
	return slices.ContainsFunc(b.Changes, func(c *Change) bool { return c.fraction == isCut })
}

// isFirst reports whether the batch is the first in all its lanes.
func (b *Batch) isFirst() bool {
	return !slices.ContainsFunc(b.lanes, func(l *lane) bool { return l.line[0] != b })
}

// isPaused reports whether the batch waits for earlier letters.
func (b *Batch) isPaused() bool {
	return b.request == nil && slices.ContainsFunc(b.lanes, (*lane).isPaused)
}

// failures is how many calls count against the batch.
func (b *Batch) failures() int { return b.Changes[0].failures }

// isOld reports whether a batch has failed for so long that nothing else counts.
func (b *Batch) isOld(e *Engine) bool {
	return e.rules.MaxAge > 0 && !b.failing.IsZero() && age(b.failing, e.now) >= e.rules.MaxAge
}

// isExhausted reports whether a batch has been tried often enough, or for long enough.
func (b *Batch) isExhausted(e *Engine) bool {
	return b.blame == isHopeless || b.isOld(e) || e.rules.MaxAttempts > 0 && b.failures() >= e.rules.MaxAttempts &&
		b.blame != isExcused
}

// batchQueue is the batches not in hand, in the order in which they were made.
type batchQueue []*Batch

// findDue finds a due batch of a kind, first in all its lanes.
func (q *batchQueue) findDue(now time.Time, is func(*Batch) bool) (*Batch, time.Duration) {
	wait := Never
	for _, b := range *q {
		if !is(b) || !b.isFirst() || b.isPaused() {
			continue
		}
		left := b.notBefore.Sub(now)
		if left <= 0 {
			return b, 0
		}
		wait = min(wait, left)
	}
	return nil, wait
}

// untilOld is how long until a batch is too old to wait.
func (q *batchQueue) untilOld(e *Engine) time.Duration {
	wait := Never
	for _, b := range *q {
		if e.rules.MaxAge == 0 || b.failing.IsZero() || b.State != ToCall && b.State != Suspect {
			continue
		}
		if left := e.rules.MaxAge - age(b.failing, e.now); left > 0 {
			wait = min(wait, left)
		}
	}
	return wait
}

// remove takes a batch out.
func (q *batchQueue) remove(b *Batch) {
	if i := slices.Index(*q, b); i >= 0 {
		*q = slices.Delete(*q, i, i+1)
	}
}

// beginCall hands a batch to the handler.
func (b *Batch) beginCall(e *Engine) Effect {
	b.era, b.taken = e.era, e.now
	note := e.guard.beforeCall(e, b) || b.request != nil && b.request.IsRecall()
	b.takeInHand(e, Calling)
	return Effect{Kind: Call, Batch: b, Note: note}
}

// takeInHand has a batch in hand.
func (b *Batch) takeInHand(e *Engine, s BatchState) {
	e.batches.remove(b)
	b.to(s, TimeReached)
	e.inHand++
}

// putDown notes a batch as no longer in hand.
func (b *Batch) putDown(e *Engine) { e.inHand-- }

// takeFrom puts the first n waiting changes of a lane into a batch.
func (b *Batch) takeFrom(e *Engine, l *lane, n int) {
	for _, c := range l.waiting[:n] {
		c.state = Batched
		// under another owner, or in another batch
		if c.failing > 0 && (b.failing.IsZero() || c.failing < b.failing.UnixNano()) {
			b.failing = time.Unix(0, c.failing)
		}
	}
	// The capacity ends with the batch: an append must not overwrite the waiting changes.
	if len(b.Changes) == 0 {
		b.Changes = l.waiting[:n:n]
	} else {
		b.Changes = append(b.Changes, l.waiting[:n]...)
	}
	if l.waiting = l.waiting[n:]; len(l.waiting) == 0 {
		l.waiting = nil
	}
	l.since = e.now
	e.lanes.queued -= n
	b.lanes = append(b.lanes, l)
	l.line = append(l.line, b)
	l.advance(e)
}

// replaceBy puts parts in the place of a batch, in all lanes of the batch. There may be none.
func (b *Batch) replaceBy(e *Engine, because BatchEvent, parts ...*Batch) {
	e.batches.remove(b)
	b.to(Over, because)
	for _, part := range parts {
		part.lanes = nil
	}
	for _, l := range b.lanes {
		var here []*Batch
		for _, part := range parts {
			if slices.ContainsFunc(part.Changes, func(c *Change) bool { return c.lane == l }) {
				here = append(here, part)
				part.lanes = append(part.lanes, l)
			}
		}
		i := slices.Index(l.line, b)
		l.line = slices.Replace(l.line, i, i+1, here...)
		l.lettersFirst()
		l.advance(e)
	}
	e.batches = append(e.batches, parts...)
}

// spreadKeys gives each key of a batch of the common lane a separate lane, so that other keys can pass.
func (b *Batch) spreadKeys(e *Engine) {
	if e.rules.InOrder || !slices.Contains(b.lanes, e.lanes.common) {
		return
	}
	i := slices.Index(e.lanes.common.line, b)
	e.lanes.common.line = slices.Delete(e.lanes.common.line, i, i+1)
	b.lanes = slices.DeleteFunc(slices.Clone(b.lanes), func(l *lane) bool { return l == e.lanes.common })
	for _, c := range b.Changes {
		if c.lane != e.lanes.common {
			continue
		}
		at := e.lanes.laneFor(c.Key)
		c.lane = at
		if !slices.Contains(at.line, b) {
			b.lanes = append(b.lanes, at)
			at.insert(b)
		}
	}
	e.lanes.common.waiting = slices.DeleteFunc(slices.Clone(e.lanes.common.waiting), func(c *Change) bool {
		at := e.lanes.own[c.Key]
		if at == nil {
			return false
		}
		c.lane = at
		if len(at.waiting) == 0 {
			at.since = e.lanes.common.since
		}
		at.waiting = append(at.waiting, c)
		return true
	})
	e.lanes.common.advance(e)
}

// extractKey makes a batch of a batch's changes of a key, so that the key can be treated apart.
func (b *Batch) extractKey(e *Engine, at *lane) *Batch {
	mine, others := *b, *b
	mine.Changes, others.Changes = nil, nil
	for _, c := range b.Changes {
		if c.Key == at.key {
			mine.Changes = append(mine.Changes, c)
		} else {
			others.Changes = append(others.Changes, c)
		}
	}
	switch {
	case len(mine.Changes) == 0:
		return nil
	case len(others.Changes) == 0 && len(b.lanes) == 1 && b.lanes[0] == at:
		return b
	}
	for _, c := range mine.Changes {
		c.lane = at
	}
	if !slices.Contains(b.lanes, at) { // the batch was in the common lane
		b.lanes = append(slices.Clone(b.lanes), at)
		at.insert(b)
	}
	parts := []*Batch{&mine}
	if len(others.Changes) > 0 {
		parts = append(parts, &others)
	}
	b.replaceBy(e, RequestServed, parts...)
	return &mine
}

// partOf is a new batch of some of a batch's changes, with the facts about the whole.
func (b *Batch) partOf(changes []*Change) *Batch {
	return &Batch{
		Changes: changes, Err: b.Err, failing: b.failing, streak: b.streak, notBefore: b.notBefore, asked: b.asked,
		since: b.since, taken: b.taken, last: b.last, era: b.era, blame: b.blame, suspicion: b.suspicion,
		probed: b.probed,
	}
}

// halves divides a batch with several keys by key, a batch with a single key between two transactions, and a single
// transaction in the middle. A batch with a single change is returned unchanged.
func (b *Batch) halves() []*Batch {
	if len(b.Changes) == 1 {
		return []*Batch{b}
	}
	if len(b.lanes) > 1 {
		n := len(b.lanes) / 2
		var first, second []*Change
		for _, c := range b.Changes {
			if slices.Contains(b.lanes[:n], c.lane) {
				first = append(first, c)
			} else {
				second = append(second, c)
			}
		}
		return []*Batch{b.partOf(first), b.partOf(second)}
	}
	at, _ := middle(b.Changes)
	markCut(b.Changes, at)
	return []*Batch{b.partOf(b.Changes[:at:at]), b.partOf(b.Changes[at:])}
}

// middle is where the transaction nearest to the middle begins, and whether there is only a single transaction.
func middle(changes []*Change) (at int, alone bool) {
	half := len(changes) / 2
	for i := 0; i < len(changes); {
		if i > 0 && (at == 0 || max(i-half, half-i) < max(at-half, half-at)) {
			at = i
		}
		i, _ = transaction(changes, i)
	}
	if at == 0 {
		return half, true
	}
	return at, false
}

// markCut marks the changes of a transaction cut before i: their handler must be able to know of the others.
func markCut(changes []*Change, i int) {
	if i == 0 || i == len(changes) || !changes[i-1].isSameTransaction(changes[i]) {
		return
	}
	for _, c := range changes {
		if c.isSameTransaction(changes[i]) {
			c.fraction = isCut
		}
	}
}
