// Package progress says how far the work on one lease has come: which pages were read, which of
// them are done, and what the lease is to say. It is generic in the position P of a page.
//
// A page that was read is delivered, and is done when its handler succeeds or, with
// [Rules].Manual, when the handler checkpoints it or a later one. The lease says where the
// pages end that are done without a gap, so that a crash skips nothing, and how often the
// page after that has failed.
//
// A page that took too long is void: it is read again with half as many changes at most, down
// to one transaction, because only the source knows the position after a part of a page. The
// limit doubles again as soon as a page of that size takes less than half of the time.
package progress

import (
	"slices"
	"time"
)

// Rules say when progress is to be stored.
type Rules struct {
	Manual bool          // by the handler's word alone
	Items  int           // when so many changes are done since the last time; 0 and
	Every  time.Duration // or so much time has passed; both 0 is after each page
}

// Progress is a plain value: it waits for nobody and stores nothing. Whoever writes the lease
// has it, and writes Position and Attempts with whatever else there is to write.
type Progress[P comparable] struct {
	Rules

	Read     P              // after the last page: the next read begins here
	open     []*Delivery[P] // pages that the handler has, in the order of the feed
	number   int64          // of the last page delivered
	Failures int            // of the oldest page in open or, before it is read, of the next one
	Failing  time.Time      // when that page was first delivered here

	done      int64 // pages up to this number are done
	confirmed int64 // and up to this one stored, or done without a checkpoint by hand
	Position  P     // after done, and after the empty pages that follow: the lease says this,
	Attempts  int   // and so many failures of what comes next
	frozen    bool  // a split has begun: the parts of the lease begin at Position

	Unsaved      int       // changes done that the stored lease does not cover
	checkpointed time.Time // when a write last covered some

	Limit int // changes that a page may have, after one took too long; 0 is no limit
	full  int // how many that one had
}

// Delivery is one page on its way through the handler.
type Delivery[P comparable] struct {
	number   int64
	from, to P
	changes  int
	done     bool
	void     bool // it comes again in smaller parts
}

// New returns the progress of a lease that says a position, and how often the page after that
// has failed.
func New[P comparable](at P, attempts int, r Rules, now time.Time) Progress[P] {
	return Progress[P]{Rules: r, Read: at, Failures: attempts, Position: at, Attempts: attempts, checkpointed: now}
}

// Anchor sets where a lease without a token begins.
func (p *Progress[P]) Anchor(at P) { p.Read, p.Position = at, at }

// Deliver notes that a page of so many changes, up to next, was read and goes to the handler.
func (p *Progress[P]) Deliver(next P, changes int, now time.Time) *Delivery[P] {
	p.number++
	d := &Delivery[P]{number: p.number, from: p.Read, to: next, changes: changes}
	p.open, p.Read = append(p.open, d), next
	if p.Failing.IsZero() {
		p.Failing = now
	}
	return d
}

// Finish notes that the handler has returned nil. Pages may be finished in any order.
func (p *Progress[P]) Finish(d *Delivery[P]) {
	d.done = true
	p.merge(d)
	for len(p.open) > 0 && p.open[0].done {
		first := p.open[0]
		p.open = p.open[1:]
		p.Failures, p.Failing = 0, time.Time{}
		if !p.Manual {
			p.advance(first)
			p.confirmed = first.number
			p.Unsaved += first.changes
		}
	}
}

// merge makes one page of those done after a gap, so that a page that is stuck does not have
// us remember all others.
func (p *Progress[P]) merge(d *Delivery[P]) {
	at := slices.Index(p.open, d)
	if at+1 < len(p.open) && p.open[at+1].done {
		p.open[at+1].changes += d.changes
		p.open = slices.Delete(p.open, at, at+1)
		d = p.open[at]
	}
	if at > 0 && p.open[at-1].done {
		d.changes += p.open[at-1].changes
		p.open = slices.Delete(p.open, at-1, at)
	}
}

// advance moves the lease to the end of a page that is done, and all before it.
func (p *Progress[P]) advance(d *Delivery[P]) {
	p.done, p.Position, p.Attempts = d.number, d.to, 0
}

// Pass notes that there was nothing up to next. The lease says so if every page before
// is known to be stored: else a checkpoint by hand is to come.
func (p *Progress[P]) Pass(next P) {
	if next != p.Read {
		p.Read = next
		if len(p.open) == 0 {
			p.Failures, p.Failing = 0, time.Time{}
		}
	}
	// Also where nothing is new: an earlier read may have found nothing while pages before it were open.
	if p.confirmed == p.number && p.Position != next {
		p.Position, p.Attempts = next, 0
	}
}

// Omit notes that so many changes up to here were handed to nobody. They are stored as those
// that were: who looks at the lease must not take them for pending. It reports whether that
// can be; else a page before them is not done.
func (p *Progress[P]) Omit(changes int) bool {
	if p.Manual || p.confirmed != p.number {
		return false
	}
	p.Unsaved += changes
	return true
}

// Fail counts a failure of the handler, and tells whether the lease changes: it counts the
// failures of the page that comes next there. A handler may have asked for the checkpoint
// of the page before it failed; then that is still to be stored.
func (p *Progress[P]) Fail(d *Delivery[P]) (changes bool) {
	p.Failures++
	if p.confirmed != d.number-1 {
		return false
	}
	if p.done < d.number {
		p.Attempts = p.Failures
	}
	return true
}

// Blame sets how often the oldest change has failed that is not done, and since when. It
// reports whether the lease changes, which says that of the change after its position.
func (p *Progress[P]) Blame(failures int, since time.Time) (changes bool) {
	p.Failures = failures
	if !since.IsZero() {
		p.Failing = since
	}
	if len(p.open) == 0 || p.done >= p.open[0].number || p.Attempts == failures {
		return false
	}
	p.Attempts = failures
	return true
}

// Standing is how a checkpoint by hand stands.
type Standing uint8

const (
	Unstored Standing = iota // the lease says so from now on, and must be written
	Stored                   // before
	Void                     // refused: the page comes again in smaller parts
	Frozen                   // refused: a split has begun
)

// Checkpoint notes that by its handler's word a page is done, and all before it.
func (p *Progress[P]) Checkpoint(d *Delivery[P]) Standing {
	switch {
	case d.void:
		return Void
	case d.number <= p.confirmed:
		return Stored
	case p.frozen:
		return Frozen
	case d.number > p.done: // progress never moves back
		p.advance(d)
	}
	return Unstored
}

// Confirm notes that a checkpoint by hand is stored.
func (p *Progress[P]) Confirm(d *Delivery[P]) { p.confirmed = max(p.confirmed, d.number) }

// Freeze ends the moves of the lease: from now on checkpoints by hand are refused.
func (p *Progress[P]) Freeze() { p.frozen = true }

// Shrink makes the last page void, which took too long. It is not, but done, if the handler
// has checkpointed it meanwhile.
func (p *Progress[P]) Shrink(d *Delivery[P]) (void bool) {
	if p.done >= d.number {
		return false
	}
	if p.Limit == 0 {
		p.full = d.changes
	}
	d.void, p.Limit = true, d.changes/2
	p.open, p.Read, p.number = p.open[:len(p.open)-1], d.from, d.number-1
	return true
}

// Grow raises the limit that Shrink has set, after a page that took less than half of the
// time that it may take.
func (p *Progress[P]) Grow(d *Delivery[P]) {
	if p.Limit == 0 || d.changes < p.Limit {
		return
	}
	if p.Limit *= 2; p.Limit >= p.full {
		p.Limit = 0
	}
}

// Due tells whether an automatic checkpoint must be stored now.
func (p *Progress[P]) Due(now time.Time) bool {
	switch {
	case p.Unsaved == 0:
		return false
	case p.Items == 0 && p.Every == 0:
		return true
	case p.Items > 0 && p.Unsaved >= p.Items:
		return true
	}
	return p.Every > 0 && now.Sub(p.checkpointed) >= p.Every
}

// Wrote notes that Position and Attempts are stored as they were when so many changes were
// unsaved.
func (p *Progress[P]) Wrote(unsaved int, now time.Time) {
	if unsaved > 0 {
		p.Unsaved, p.checkpointed = p.Unsaved-unsaved, now
	}
}
