package changefeed_test

import (
	"slices"
	"time"

	"github.com/millrace/changefeed"
	"github.com/millrace/changefeed/feed"
)

// What a process does with a lease, change by change
//
//   - a page is handed over in portions: as many whole transactions as fit, and at least one
//   - a portion that fails comes again as it is; one that takes too long comes again in two
//     halves, if it has several transactions, and none after it is larger than half of it: what
//     is already cut is cut again, until one of at least half that size is quick
//   - a change is done when its handler has succeeded or, with checkpoints by hand, when one
//     covers it; then it does not come again
//   - the lease is at the end of the last transaction before which all is done, and counts the
//     calls of the change after that; a change that waits for its checkpoint counts none

// told is a change, and what its handlers have done with it.
type told struct {
	entry
	calls int // that have returned, with success or without
	is    handling
}

// handling is how far a change is.
type handling uint8

const (
	isOpen    handling = iota // it is to be handled
	isHandled                 // with success, and no checkpoint covers it yet
	isDone
)

// sheet is a page that was read.
type sheet struct {
	from    int64
	changes []*told
}

// portion is the changes of one batch, which may come again.
type portion struct {
	changes []*told
	begun   time.Time // its last call
	over    bool      // it does not come again as it is
}

// status is what a lease says.
type status struct {
	lsn      int64
	attempts int
}

// saying is what a lease must say, and how many changes are done by that.
type saying struct {
	status
	total int
}

// tenure is a lease while one process holds it.
type tenure struct {
	anchored bool  // its position is a token
	read     int64 // where the next page begins
	inherits int   // calls of the change that comes first
	sheets   []*sheet
	passed   int        // changes of the sheets that are done as a whole, and forgotten
	line     []*portion // that have failed, and come before what waits
	waiting  []*told
	limit    int // changes of a portion, after one took too long; 0 is none
	full     int // changes of the first portion that took too long
	cuts     int // of portions

	frozen *saying   // while it is split it moves no more
	was    []saying  // what it was to say before, at this same instant
	at     time.Time // this instant
	turn   int       // counted when a call has returned
	asks   int       // the last turn, if the lease may have to be written for it; otherwise 0
	due    int       // the last turn for which the lease must be written
	before int       // the last turn for which it must be written before the next batch
	known  int       // the turn up to which it is
	saved  int       // changes that are stored
	stored time.Time // when they were, or when the tenure began
	last   sent
}

// sent is a write on its way.
type sent struct {
	t       *tenure
	saying  saying
	turn    int
	undue   bool // only a renewal is written without a reason
	ignored bool
}

// begun is a tenure of a lease.
func begun(s status, anchored bool) *tenure {
	return &tenure{anchored: anchored, read: s.lsn, inherits: s.attempts, stored: time.Now()}
}

// says is what the lease must say now.
func (t *tenure) says() saying {
	if t.frozen != nil {
		return *t.frozen
	}
	if len(t.sheets) == 0 {
		return saying{status{t.read, t.inherits}, t.passed}
	}
	s := t.sheets[0]
	first := slices.IndexFunc(s.changes, func(c *told) bool { return c.is != isDone })
	n := first
	for n > 0 && s.changes[n-1].lsn == s.changes[first].lsn {
		n--
	}
	say := saying{status{s.from, s.changes[first].calls}, t.passed + n}
	if n > 0 {
		say.lsn = s.changes[n-1].lsn
	}
	if s.changes[first].is == isHandled {
		say.attempts = 0
	}
	return say
}

// moves changes the tenure. A write that is begun at the same instant may be of before.
func (t *tenure) moves(change func()) {
	if now := time.Now(); t.at != now {
		t.at, t.was = now, nil
	}
	t.was = append(t.was, t.says())
	change()
	for len(t.sheets) > 0 && !slices.ContainsFunc(t.sheets[0].changes, func(c *told) bool { return c.is != isDone }) {
		t.passed += len(t.sheets[0].changes)
		t.sheets = t.sheets[1:]
	}
}

// mayHaveSaid reports whether the lease was to say so until this instant.
func (t *tenure) mayHaveSaid(s status) (saying, bool) {
	if t.at.Equal(time.Now()) {
		for _, say := range t.was {
			if say.status == s {
				return say, true
			}
		}
	}
	return saying{}, false
}

// anchor is the first read of a lease without a token: it shows where the lease begins.
func (t *tenure) anchor(page feed.Page) {
	t.anchored = true
	next := positionOf(page.Next.Token)
	n := len(page.Changes)
	switch {
	case n == 0:
		t.read, t.inherits = next, 0
	case page.Changes[n-1].LSN == next:
		t.read = page.Changes[0].LSN - 1
	}
}

// pass goes on from the end of an empty page.
func (t *tenure) pass(next int64) {
	if next != t.read {
		t.read, t.inherits = next, 0
	}
}

// turns goes on from the end of a page with changes.
func (t *tenure) turns(page feed.Page) {
	s := &sheet{from: t.read}
	for _, ch := range page.Changes {
		s.changes = append(s.changes, &told{entry: entry{ch.LSN, ch.ID}})
	}
	s.changes[0].calls, t.inherits = t.inherits, 0
	t.sheets, t.waiting = append(t.sheets, s), append(t.waiting, s.changes...)
	t.read = positionOf(page.Next.Token)
}

// next takes what must be handed over now.
func (t *tenure) next(most int) *portion {
	if t.limit > 0 {
		most = min(most, t.limit)
	}
	if len(t.line) > 0 {
		p := t.line[0]
		t.line = t.line[1:]
		if t.limit > 0 && len(p.changes) > t.limit && t.halves(p) {
			return t.next(most)
		}
		return p
	}
	n := 0
	for _, end := range transactions(t.waiting) {
		// A change that others have failed with is not put together with those after it.
		if n > 0 && (end > most || t.waiting[n].calls != t.waiting[0].calls) {
			break
		}
		n = end
	}
	p := &portion{changes: t.waiting[:n:n]}
	t.waiting = t.waiting[n:]
	return p
}

// transactions are where the transactions of some changes end.
func transactions(changes []*told) (ends []int) {
	for i := range changes {
		if i+1 == len(changes) || changes[i+1].lsn != changes[i].lsn {
			ends = append(ends, i+1)
		}
	}
	return ends
}

// succeeds notes that the handler is done with a portion.
func (t *tenure) succeeds(p *portion, manual, quick bool) {
	p.over = true
	for _, c := range p.changes {
		switch c.calls++; {
		case c.is == isDone:
		case manual:
			c.is = isHandled
		default:
			c.is = isDone
		}
	}
	if n := len(p.changes); quick && t.limit > 0 && 2*n >= t.limit {
		if t.limit *= 2; t.limit >= t.full {
			t.limit = 0
		}
	}
}

// fails notes that the handler has failed with a portion. What a checkpoint has covered does not come again.
func (t *tenure) fails(p *portion, late bool) {
	for _, c := range p.changes {
		c.calls++
	}
	if p.isDone() {
		p.over = true
		return
	}
	if n := len(p.changes); late {
		if t.limit == 0 {
			t.limit, t.full = n, n
		}
		t.limit = min(t.limit, max(n/2, 1))
	}
	if !late || !t.halves(p) {
		t.line = slices.Insert(t.line, 0, p)
	}
}

// halves puts the two parts of a portion first in line, if it has several transactions.
func (t *tenure) halves(p *portion) bool {
	ends, half := transactions(p.changes), len(p.changes)/2
	if len(ends) == 1 {
		return false
	}
	cut := slices.MinFunc(ends[:len(ends)-1], func(a, b int) int { return max(a-half, half-a) - max(b-half, half-b) })
	p.over = true
	t.cuts++
	t.line = slices.Insert(t.line, 0, &portion{changes: p.changes[:cut]}, &portion{changes: p.changes[cut:]})
	return true
}

func (p *portion) isDone() bool {
	return !slices.ContainsFunc(p.changes, func(c *told) bool { return c.is != isDone })
}

// isDivided reports whether a portion comes again in parts.
func (p *portion) isDivided() bool {
	return p.over && slices.ContainsFunc(p.changes, func(c *told) bool { return c.is == isOpen })
}

// confirms notes that a portion is done, and all that was handled before it, and returns what is new.
func (t *tenure) confirms(p *portion) (fresh []entry) {
	last := p.changes[len(p.changes)-1].lsn
	confirm := func(c *told) {
		if c.is != isDone {
			c.is, fresh = isDone, append(fresh, c.entry)
		}
	}
	for _, s := range t.sheets {
		for _, c := range s.changes {
			if c.is == isHandled && c.lsn <= last {
				confirm(c)
			}
		}
	}
	for _, c := range p.changes {
		confirm(c)
	}
	t.line = slices.DeleteFunc(t.line, func(waits *portion) bool { return waits == p })
	return fresh
}

// isDue reports whether the lease must be written for what is done.
func (t *tenure) isDue(o changefeed.Options) bool {
	unsaved := t.says().total - t.saved
	switch {
	case unsaved == 0:
		return false
	case o.CheckpointItems == 0 && o.CheckpointEvery == 0:
		return true
	}
	return o.CheckpointItems > 0 && unsaved >= o.CheckpointItems || o.CheckpointEvery > 0 &&
		time.Since(t.stored) >= o.CheckpointEvery
}

// returns notes that a call or a read has returned, after which the lease is written if it must be. The next batch is
// handled during that write, unless the write is urgent.
func (t *tenure) returns(o changefeed.Options, urgent bool) {
	t.judge(o)
	t.turn++
	switch {
	case urgent:
		t.before, t.due = t.turn, t.turn
	case t.isDue(o):
		t.asks = t.turn
	}
}

// judge decides whether the lease must be written for the last turn. That depends on the write before, which may have
// ended after the turn.
func (t *tenure) judge(o changefeed.Options) {
	if t.asks > 0 && t.isDue(o) {
		t.before, t.due = max(t.before, t.due), t.asks
	}
	t.asks = 0
}

// isUndue reports whether there is no reason to write the lease.
func (t *tenure) isUndue() bool {
	due := max(t.before, t.due)
	return t.turn > due && t.known >= due
}
