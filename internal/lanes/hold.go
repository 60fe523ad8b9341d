package lanes

import (
	"slices"
	"time"
)

// A key may be treated apart from all others, by the word of its owner: its changes are
// held, which means parked one by one, until it is free; letters of it go back before
// them; and a change that has ended a process is parked without another try. For each of
// these a key needs a lane of its own.

// own gives a key a lane of its own, and moves there what waits of it in the shared one. The caller advances it, when it
// has added more.
func (l *Lanes[C, P]) own(key string) *lane[C, P] {
	if at := l.lanes[key]; at != nil {
		return at
	}
	at := l.named(key)
	if from := l.lanes[shared]; from != nil {
		l.migrate(from, at)
		l.advance(from)
	}
	return at
}

// Hold has the changes of a key parked from now on, those in the lanes too, until Free.
func (l *Lanes[C, P]) Hold(key string) {
	at := l.own(key)
	// What is in hand runs to its end. The other batches are dissolved, because a held
	// lane parks its changes one by one, in their order.
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

// formHeld makes batches of what is held and ready, to be parked.
func (l *Lanes[C, P]) formHeld(now time.Time) {
	for _, from := range slices.Clone(l.ready) {
		if from.held {
			n, _ := l.fits(from)
			l.unready(from)
			l.form(from, n, now)
		}
	}
}

// Free ends a hold: what comes is handled again.
func (l *Lanes[C, P]) Free(key string) {
	if at := l.lanes[key]; at != nil {
		at.held, at.paused = false, false
		l.advance(at)
	}
}

// Pause has the changes of a held key wait, or go on to be parked; what is redriven goes on.
func (l *Lanes[C, P]) Pause(key string, paused bool) {
	if at := l.lanes[key]; at != nil && at.held {
		at.paused = paused
		l.unready(at)
		l.advance(at)
	}
}

// Redrive puts a change that was parked before all that waits of its key. It has one try.
func (l *Lanes[C, P]) Redrive(key string, change C) *Batch[C, P] {
	at := l.own(key)
	// Its page is its own and it counts as confirmed, because the checkpoint passed it
	// when it was parked: the ledger must not wait for it again.
	c := &Change[C, P]{Page: &Page[C, P]{unhandled: 1}, Value: change, Key: key, LSN: l.rules.LSN(&change), confirmed: true}
	b := &Batch[C, P]{Changes: []*Change[C, P]{c}, Redriven: true}
	l.items++
	// Only the first batch of a lane may be pending, so the batch that is overtaken is
	// withdrawn. A batch in hand cannot be overtaken any more.
	first := 0
	if len(at.batches) > 0 && at.batches[0].inHand {
		first = 1
	} else if len(at.batches) > 0 {
		l.withdraw(at.batches[0])
	}
	l.insert(at, first, b)
	l.advance(at)
	return b
}

// ParkChange has a change parked that is in the lanes, because of an error that another owner of them has seen.
func (l *Lanes[C, P]) ParkChange(is func(*Change[C, P]) bool, failures int, err error) (found bool) {
	c := l.Ledger.find(is)
	if c == nil {
		return false
	}
	at := l.own(c.Key)
	i := slices.Index(at.waiting, c)
	if i < 0 {
		return false
	}
	at.waiting = slices.Delete(at.waiting, i, i+1)
	l.insert(at, 0, &Batch[C, P]{Changes: []*Change[C, P]{c}, Failures: failures, Err: err, Park: true})
	l.advance(at)
	return true
}
