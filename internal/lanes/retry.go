package lanes

import (
	"slices"
	"time"
)

// A failure alone does not say whose fault it is: the change's, or that of something
// which the handler needs. Pausing and trying again outlasts a short outage. Halving a
// batch finds a change that always fails, in a number of calls that grows with the
// logarithm of its size. The breaker decides the rest by looking at other keys. So
// nothing is parked before it has failed alone, and nothing because of an outage that
// shows in three keys.

// Failure is how a call of the handler, or of the dead letters, failed.
type Failure struct {
	Err      error
	Hopeless bool          // trying again cannot help
	Left     []*Part       // of the batch, those of a key in their order, and the rest is done; nil is all of it
	After    time.Duration // no attempt before
	Late     bool          // the handler took too long

	// Outage says that the changes are not at fault: it counts no attempt, only time.
	Outage bool
}

// Part is what comes again together of a batch that has failed.
type Part struct {
	Changes  []int // their places in the batch, in order
	Err      error
	Hopeless bool // trying it again cannot help
	Untried  bool // the handler has not had it, which counts as no attempt
}

// isTotal reports whether nothing is done of a batch of so many changes.
func (f *Failure) isTotal(changes int) bool {
	for _, p := range f.Left {
		changes -= len(p.Changes)
	}
	return f.Left == nil || changes == 0
}

// Return notes that a batch in hand has neither succeeded nor failed: its call was cut short.
func (l *Lanes[C, P]) Return(b *Batch[C, P]) {
	l.putDown(b)
	b.probe = false
	l.putBack(b)
}

// putBack puts a batch back to where it was before it was taken in hand.
func (l *Lanes[C, P]) putBack(b *Batch[C, P]) {
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
	l.putDown(b)
	if b.Park { // its letter could not be kept, for which the change is not at fault
		b.tries = max(b.tries, b.Failures) + 1
		b.notBefore, b.refused = now.Add(max(l.rules.Backoff(b.tries), f.After)), true
		l.detach(b) // so that other keys pass
		l.advance(b.lane)
		return
	}
	b.Err, b.called, b.excused, b.tries = f.Err, true, f.Outage, max(b.tries, b.Failures)+1
	missed := b.probe && f.isTotal(len(b.Changes)) // so the outage goes on
	if !missed && !f.Outage {
		b.Failures++
	}
	if b.Failing.IsZero() {
		b.Failing, b.since = now, &now
	}
	l.breaker.troubled(now)
	b.notBefore = now.Add(max(l.rules.Backoff(b.tries), f.After))
	b.asked = now.Add(f.After)
	switch {
	case b.Redriven:
		l.finish(b.Changes)
		l.swap(b)
	case missed:
		b.probe, b.notBefore = false, time.Time{}
		if len(b.Changes) > 1 { // there may be poison in it: the next probe is a smaller part
			l.bisect(b)
		} else {
			l.detach(b) // so that others can be probed
			l.putBack(b)
		}
	default:
		if b.probe { // some of it was handled
			b.probe = false
			l.breaker.close()
		}
		b.hopeless = f.Hopeless
		l.divide(b, f, now)
	}
}

// divide replaces a batch that has failed by what is left of it.
func (l *Lanes[C, P]) divide(b *Batch[C, P], f Failure, now time.Time) {
	// The part that is done is credited and finished first: it is evidence for the
	// breaker, and must not be tried again whatever becomes of the rest.
	parts, done := b.parts(f.Left)
	l.credit(done, b.taken)
	l.finish(done)
	if len(parts) == 1 && f.Late && !parts[0].isExhausted(&l.rules, now) {
		parts = b.lane.halves(parts[0])
	}
	l.swap(b, parts...)
}

// escalate bisects a batch whose attempts are used up, or makes its only change a suspect. It reports whether it did.
func (l *Lanes[C, P]) escalate(b *Batch[C, P]) bool {
	switch {
	case b.Park || b.Redriven || !b.isExhausted(&l.rules, l.now):
		return false
	case len(b.Changes) > positive(l.careful): // of a transaction that as many changes have ended the last owner with
		l.bisect(b)
	case !b.called:
		return false
	case len(b.Changes) > 1:
		l.bisect(b)
	default:
		l.isolate(b)
	}
	return true
}

// bisect replaces a batch by its halves, each of which has one try at once.
func (l *Lanes[C, P]) bisect(b *Batch[C, P]) { l.swap(b, b.cut()...) }

// isolate makes a suspect of a change that has failed alone. If it can be parked at once, it is: the handler has said that
// nothing else is at fault. Else it leaves the shared lane, so that other keys pass.
func (l *Lanes[C, P]) isolate(b *Batch[C, P]) {
	key, since := b.Changes[0].Key, *b.since
	*b.since = l.now // an outage may begin in a bisection: the next part needs evidence of its own
	if l.rules.CanPark {
		if !b.hopeless {
			l.breaker.failed(key, l.now)
		}
		if b.hopeless || l.breaker.judge(key, since, true, l.now) {
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
	l.insert(l.own(b.Changes[0].Key), 0, b)
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
		if l.breaker.judge(b.Changes[0].Key, *b.since, others, now) {
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

// restart forgets after an outage what has failed until its end: nothing may be parked for that. All suspects are tried
// anew, after what has not failed: its success says that the outage is over, and their failure that they are poison.
func (l *Lanes[C, P]) restart() {
	era := l.breaker.outages()
	if era == l.era {
		return
	}
	l.era = era
	for _, at := range l.lanes {
		for _, b := range at.batches {
			if !b.Park && !b.Redriven {
				l.forgive(b)
			}
		}
	}
}

// forgive lets a batch begin anew.
func (l *Lanes[C, P]) forgive(b *Batch[C, P]) {
	failed := b.called
	b.Failures, b.tries, b.Failing, b.called, b.hopeless = 0, 0, time.Time{}, false, false
	if !failed || b.inHand {
		return // nothing waits for it
	}
	since := l.now // what succeeds from now on is evidence
	b.Failing, b.since, b.suspected = since, &since, false
	b.notBefore = l.now.Add(l.rules.Backoff(1))
	l.suspect = without(l.suspect, b)
	l.advance(b.lane)
}
