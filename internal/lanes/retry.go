package lanes

import (
	"slices"
	"time"
)

// Failure is how a call of the handler, or of the dead letters, failed.
type Failure struct {
	Err   error
	Done  int           // so many changes are done, where Items is nil
	Items map[int]error // exactly these have failed, and the others are done
	After time.Duration // no attempt before
	Late  bool          // the handler took too long
}

// Return notes that a batch in hand has neither succeeded nor failed: its call was cut short.
func (l *Lanes[C, P]) Return(b *Batch[C, P]) {
	l.lay(b)
	b.probe = false
	l.restore(b)
}

// restore puts a batch back to where it was before it was taken in hand.
func (l *Lanes[C, P]) restore(b *Batch[C, P]) {
	if b.suspected {
		b.Park = false
		l.suspect = append(l.suspect, b)
		return
	}
	l.advance(b.lane)
}

// Fail notes that a batch in hand has failed. What is left of it comes again, in the parts that the rules say.
func (l *Lanes[C, P]) Fail(b *Batch[C, P], f Failure, now time.Time) {
	l.now = now
	l.lay(b)
	b.Failures, b.Err, b.called = b.Failures+1, f.Err, true
	if b.Failing.IsZero() {
		b.Failing = now
	}
	l.breaker.troubled(now)
	b.notBefore = now.Add(max(l.rules.Backoff(b.Failures), f.After))
	switch {
	case b.Redriven:
		l.finish(b.Changes)
		l.swap(b)
	case b.probe && f.Done == 0 && (f.Items == nil || len(f.Items) == len(b.Changes)):
		b.probe, b.notBefore = false, time.Time{}
		b.Failures--            // of an outage
		if len(b.Changes) > 1 { // or there is poison in it, and the next probe must be a smaller part
			l.bisect(b)
		} else {
			l.detach(b) // so that others can be probed
			l.restore(b)
		}
	case b.Park:
		l.advance(b.lane)
	default:
		if b.probe { // some of it was handled
			b.probe = false
			l.breaker.close()
		}
		b.hopeless = l.rules.Hopeless(f.Err)
		l.divide(b, f, now)
	}
}

// divide replaces a batch that has failed by what is left of it.
func (l *Lanes[C, P]) divide(b *Batch[C, P], f Failure, now time.Time) {
	parts, done := l.parts(b, f)
	l.vouch(done, now)
	l.finish(done)
	if len(parts) == 1 && f.Late && !l.isExhausted(parts[0], now) {
		parts = l.halves(parts[0])
	}
	l.swap(b, parts...)
}

// parts are what is left of a batch after a failure: what has failed, in runs, and each hopeless change by itself.
func (l *Lanes[C, P]) parts(b *Batch[C, P], f Failure) (parts []*Batch[C, P], done []*Change[C, P]) {
	if f.Items == nil {
		done = b.Changes[:f.Done]
		rest := *b
		rest.Changes = b.Changes[f.Done:]
		markCut(b.Changes, f.Done)
		return []*Batch[C, P]{&rest}, done
	}
	var last *Batch[C, P] // nil when it takes no more
	for i, c := range b.Changes {
		err, failed := f.Items[i]
		if !failed {
			done = append(done, c)
			markCut(b.Changes, i)
			markCut(b.Changes, i+1)
			continue
		}
		if hopeless := l.rules.Hopeless(err); hopeless || last == nil || last.hopeless {
			markCut(b.Changes, i)
			part := *b
			part.Changes, part.Err, part.hopeless = nil, err, hopeless
			last = &part
			parts = append(parts, last)
		}
		last.Changes = append(last.Changes, c)
	}
	return parts, done
}

// markCut marks the changes of a transaction that is cut before i.
func markCut[C, P any](changes []*Change[C, P], i int) {
	if i == 0 || i == len(changes) || changes[i-1].LSN != changes[i].LSN || changes[i-1].Key != changes[i].Key {
		return
	}
	for _, c := range changes {
		c.cut = c.cut || c.LSN == changes[i].LSN && c.Key == changes[i].Key
	}
}

// condemn bisects a batch whose attempts are used up, or makes its only change a suspect. It reports whether it did.
func (l *Lanes[C, P]) condemn(b *Batch[C, P]) bool {
	switch {
	case b.Park || b.Redriven || !b.called || !l.isExhausted(b, l.now):
		return false
	case len(b.Changes) > 1:
		l.bisect(b)
	default:
		l.isolate(b)
	}
	return true
}

// isExhausted reports whether a batch has been tried often enough, or for long enough.
func (l *Lanes[C, P]) isExhausted(b *Batch[C, P], now time.Time) bool {
	return b.hopeless || l.rules.MaxAttempts > 0 && b.Failures >= l.rules.MaxAttempts ||
		l.rules.MaxAge > 0 && !b.Failing.IsZero() && now.Sub(b.Failing) >= l.rules.MaxAge
}

// bisect replaces a batch by its halves, each of which has one try at once.
func (l *Lanes[C, P]) bisect(b *Batch[C, P]) { l.swap(b, l.cut(b)...) }

// cut makes halves of a batch: between two transactions, or of a single one in the middle.
func (l *Lanes[C, P]) cut(b *Batch[C, P]) []*Batch[C, P] {
	at, _ := middle(b.Changes)
	markCut(b.Changes, at)
	first, second := *b, *b
	first.Changes, second.Changes = b.Changes[:at:at], b.Changes[at:]
	halves := []*Batch[C, P]{&first, &second}
	for _, half := range halves {
		half.called, half.notBefore = false, time.Time{}
	}
	return halves
}

// middle is where the transaction begins that is nearest to the middle, and whether there is only one.
func middle[C, P any](changes []*Change[C, P]) (at int, alone bool) {
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

// halves are the parts of a batch that took too long, and the limit of those that come.
func (l *Lanes[C, P]) halves(b *Batch[C, P]) []*Batch[C, P] {
	if _, alone := middle(b.Changes); alone {
		return []*Batch[C, P]{b}
	}
	at := b.lane
	if at.limit == 0 {
		at.full = len(b.Changes)
	}
	at.limit = max(len(b.Changes)/2, 1)
	halves := l.cut(b)
	halves[0].notBefore = b.notBefore
	halves[1].Failures, halves[1].Failing = 0, time.Time{}
	return halves
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

// isolate makes a suspect of a change that has failed alone. If it can be parked at once, it is. Else it leaves the shared
// lane, so that other keys pass.
func (l *Lanes[C, P]) isolate(b *Batch[C, P]) {
	key := b.Changes[0].Key
	if l.rules.CanPark {
		l.breaker.failed(key, l.now)
		if l.breaker.judge(b.Failing, true, l.now) {
			b.Park, b.notBefore = true, time.Time{}
			l.advance(b.lane)
			return
		}
	}
	l.detach(b)
	if l.rules.CanPark {
		b.suspected = true
		l.suspect = append(l.suspect, b)
	} else {
		l.pending = append(l.pending, b)
	}
}

// detach moves a batch of one change from the shared lane to one of its key.
func (l *Lanes[C, P]) detach(b *Batch[C, P]) {
	from := b.lane
	if from.key != shared {
		return
	}
	from.batches = without(from.batches, b)
	own := l.own(b.Changes[0].Key)
	own.batches = slices.Insert(own.batches, 0, b)
	l.ready = slices.DeleteFunc(l.ready, func(o *lane[C, P]) bool { return o == own })
	b.lane, b.Changes[0].lane = own, own
	l.advance(from)
}

// toPark finds a change that is to be parked: a suspect that the breaker has judged or, also in an outage, one whose key
// is held.
func (l *Lanes[C, P]) toPark(now time.Time) *Batch[C, P] {
	for _, b := range l.pending {
		if b.Park && !b.notBefore.After(now) {
			return b
		}
	}
	others := l.inHand > 0 || len(l.pending) > 0 || len(l.ready) > 0
	for _, b := range l.suspect {
		if l.breaker.judge(b.Failing, others, now) {
			b.Park, b.notBefore = true, time.Time{}
			return b
		}
	}
	return nil
}

// probe is what is tried while the breaker is open: one after the other, because some of them may be poison.
func (l *Lanes[C, P]) probe(now time.Time) (b *Batch[C, P]) {
	if len(l.ready) > 0 {
		from := l.ready[0]
		l.ready = l.ready[1:]
		n, _ := l.fits(from)
		l.form(from, n, now)
	}
	for _, o := range slices.Concat(l.suspect, l.pending) {
		if !o.Park && (b == nil || o.probed.Before(b.probed)) {
			b = o
		}
	}
	if b != nil {
		b.probe, b.probed = true, now
	}
	return b
}

// heed lets all suspects be tried anew after an outage is over, and whatever has failed after what has not: its success
// says that the outage is over, and theirs that they are poison.
func (l *Lanes[C, P]) heed() {
	era := l.breaker.outages()
	if era == l.era {
		return
	}
	l.era = era
	for _, b := range slices.Concat(l.suspect, l.pending) {
		if !b.called || b.Park || b.Redriven {
			continue
		}
		b.Failures, b.Failing, b.called, b.hopeless, b.suspected = 0, l.now, false, false, false // what succeeds from now on is evidence
		b.notBefore = l.now.Add(l.rules.Backoff(1))
		l.suspect = without(l.suspect, b)
		l.advance(b.lane)
	}
}
