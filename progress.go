package changefeed

import (
	"fmt"
	"time"
)

// How far a lease has come
//
// A page that was read is delivered, and is done when its handler returns nil or, with
// [Options.Manual], when the handler checkpoints it or a later one. The lease says where
// the pages end that are done without a gap, so that a crash skips nothing, and how often
// the page after that has failed.
//
// A page that took longer than [Options.HandlerTimeout] is void: it is read again with half
// as many changes at most, down to one transaction, because only the source knows the
// position after a part of a page. The limit doubles again as soon as a page of that size
// takes less than half of the time.

// progress is how far the work on one lease has come: what was read, what of that is done,
// and what the lease is to say. It is a plain value: it waits for nobody and stores nothing.
// The keeper has it, and writes what it says with whatever else it writes.
type progress struct {
	manual bool          // Options.Manual
	items  int           // Options.CheckpointItems
	every  time.Duration // Options.CheckpointEvery

	read     Position    // after the last page: the next read begins here
	open     []*delivery // pages that the handler has, in the order of the feed
	number   int64       // of the last page delivered
	failures int         // of the oldest page in open or, before it is read, of the next one
	failing  time.Time   // when that page was first delivered here

	done      int64    // pages up to this number are done
	confirmed int64    // and up to this one stored, or done without a checkpoint by hand
	position  Position // after done, and after the empty pages that follow: the lease says this,
	attempts  int      // and so many failures of what comes next
	frozen    bool     // a split has begun: the parts of the lease begin at position

	unsaved      int       // changes done that the stored lease does not cover
	checkpointed time.Time // when a write last covered some

	limit int // changes that a page may have, after one took too long; 0 is the limit of the options
	full  int // how many that one had
}

// delivery is one page on its way through the handler.
type delivery struct {
	number   int64
	from, to Position
	changes  int
	done     bool
	void     bool // it comes again in smaller parts
}

func newProgress(l Record, o Options, now time.Time) progress {
	return progress{
		manual: o.Manual, items: o.CheckpointItems, every: o.CheckpointEvery, checkpointed: now,
		read: l.Position, failures: l.Attempts,
		position: l.Position, attempts: l.Attempts, frozen: l.State == StateSplitting,
	}
}

// anchor sets where a lease without a token begins.
func (p *progress) anchor(at Position) { p.read, p.position = at, at }

// deliver notes that a page was read and goes to the handler.
func (p *progress) deliver(page Page, now time.Time) *delivery {
	p.number++
	d := &delivery{number: p.number, from: p.read, to: page.Next, changes: len(page.Changes)}
	p.open, p.read = append(p.open, d), page.Next
	if p.failing.IsZero() {
		p.failing = now
	}
	return d
}

// finish notes that the handler has returned nil. Pages may be finished in any order.
func (p *progress) finish(d *delivery) {
	d.done = true
	for len(p.open) > 0 && p.open[0].done {
		first := p.open[0]
		p.open = p.open[1:]
		p.failures, p.failing = 0, time.Time{}
		if !p.manual {
			p.advance(first)
			p.confirmed = first.number
			p.unsaved += first.changes
		}
	}
}

// advance moves the lease to the end of a page that is done, and all before it.
func (p *progress) advance(d *delivery) {
	p.done, p.position, p.attempts = d.number, d.to, 0
}

// pass notes that there was nothing up to next. The lease says so if every page before
// is known to be stored: else a checkpoint by hand is to come.
func (p *progress) pass(next Position) {
	if next == p.read {
		return
	}
	p.read, p.failures, p.failing = next, 0, time.Time{}
	if p.confirmed == p.number {
		p.position, p.attempts = next, 0
	}
}

// fail counts a failure of the handler, and tells whether the lease changes: it counts the
// failures of the page that comes next there. A handler may have asked for the checkpoint
// of the page before it failed; then that is still to be stored.
func (p *progress) fail(d *delivery) (changes bool) {
	p.failures++
	if p.confirmed != d.number-1 {
		return false
	}
	if p.done < d.number {
		p.attempts = p.failures
	}
	return true
}

// checkpoint notes that by its handler's word a page is done, and all before it. Nothing is
// to be written if that is stored already.
func (p *progress) checkpoint(d *delivery) (stored bool, err error) {
	switch {
	case d.void:
		return false, fmt.Errorf("%w: this batch comes again in smaller parts", ErrHandlerTimeout)
	case d.number <= p.confirmed:
		return true, nil
	case p.frozen:
		return false, fmt.Errorf("%w: its range was split", ErrLeaseLost)
	case d.number > p.done: // progress never moves back
		p.advance(d)
	}
	return false, nil
}

// confirm notes that a checkpoint by hand is stored.
func (p *progress) confirm(d *delivery) { p.confirmed = max(p.confirmed, d.number) }

// freeze ends the moves of the lease: from now on checkpoints by hand are refused.
func (p *progress) freeze() { p.frozen = true }

// shrink makes the last page void, which took too long. It is not, but done, if the handler
// has checkpointed it meanwhile.
func (p *progress) shrink(d *delivery) (void bool) {
	if p.done >= d.number {
		return false
	}
	if p.limit == 0 {
		p.full = d.changes
	}
	d.void, p.limit = true, d.changes/2
	p.open, p.read, p.number = p.open[:len(p.open)-1], d.from, d.number-1
	return true
}

// grow raises the limit that shrink has set, after a page that took less than half of the
// time that it may take.
func (p *progress) grow(d *delivery) {
	if p.limit == 0 || d.changes < p.limit {
		return
	}
	if p.limit *= 2; p.limit >= p.full {
		p.limit = 0
	}
}

// due tells whether an automatic checkpoint must be stored now.
func (p *progress) due(now time.Time) bool {
	switch {
	case p.unsaved == 0:
		return false
	case p.items == 0 && p.every == 0:
		return true
	case p.items > 0 && p.unsaved >= p.items:
		return true
	}
	return p.every > 0 && now.Sub(p.checkpointed) >= p.every
}

// mark writes into a lease what it is to say, and tells how many changes that covers anew.
func (p *progress) mark(l *Record) (unsaved int) {
	l.Position, l.Attempts = p.position, p.attempts
	return p.unsaved
}

// wrote notes that a lease is stored as mark made it.
func (p *progress) wrote(unsaved int, now time.Time) {
	if unsaved > 0 {
		p.unsaved, p.checkpointed = p.unsaved-unsaved, now
	}
}
