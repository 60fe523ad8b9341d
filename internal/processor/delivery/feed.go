package delivery

import (
	"math"
	"slices"

	"github.com/millrace/changefeed/internal/notes"
)

// How far the feed is done
//
// The position of a lease is a place in the feed, and changes are settled out of order. So the position stays before
// the oldest page with an open change, and notes beside it say which changes after it are settled. A change of a key
// set aside is not open: the lease names the key, and the position from which the key continues.

// feed is the pages read and not settled as a whole.
type feed struct {
	pages    []*Page // in order, some of them settled
	read     Position
	last     int64 // LSN of the last change
	covered  int64 // LSN of the last change before the position
	unsaved  int   // settled changes before the position that the stored lease does not cover
	shared   bool  // another kind of processor, which knows only the position, may take the lease
	frozen   bool  // a split has begun: the position moves no more
	at       Position
	atLSN    int64 // LSN of the last change before it, or of an earlier change
	restored restored
	spare    []Change // of a page that was settled
	keeps    bool     // the owner may ask for changes that are settled
	after    func(end Position, lsn int64) (Position, bool)
	name     func(*Change) string
}

// restored is the notes of the last owner about unread changes.
type restored struct {
	through int64       // changes up to this LSN are settled,
	open    []int64     // but for these,
	tried   []notes.Run // and these were tried before
	first   int         // how often the handler has received the first of them, where tried does not say

	attempts int // attempts in the lease's notes, until something is read
}

// Begin sets where reading begins.
func (e *Engine) Begin(at Position) { e.feed.read, e.feed.at = at, at }

// ReadFrom is where the next page of the feed begins.
func (e *Engine) ReadFrom() Position { return e.feed.read }

// PageRead reports a page of the feed, read from where ReadFrom says.
type PageRead struct {
	Of      any // of the owner: see Page
	Next    Position
	Changes int // how many there are
	Meta    func(i int) Meta
}

func (v PageRead) applyTo(e *Engine) {
	n := v.Changes
	p := newPage(v.Of, e.feed.read, v.Next, n, v.Meta, e.feed.last, e.feed.takeSpare())
	p.added = e.now
	e.feed.pages = append(e.feed.pages, p)
	e.feed.read = v.Next
	e.items += n
	e.bytes += p.bytes
	if !e.isPlain() {
		p.addToLanes(e)
	} else if n > 0 {
		p.addToCommon(e)
	}
	if n > 0 {
		e.feed.last, e.feed.restored.attempts = p.changes[n-1].LSN, 0
	}
	e.feed.trim()
	e.guard.pageAdded(e, p)
}

// FeedPassed says: there is nothing in the feed up to a position.
type FeedPassed struct {
	Next  Position
	AtEnd bool // there is nothing after the position either
}

func (v FeedPassed) applyTo(e *Engine) {
	if v.Next != e.feed.read { // progress, so the next changes are not those that failed before
		e.feed.restored.first, e.feed.restored.attempts = 0, 0
	}
	e.feed.read = v.Next
	for _, l := range e.asides.lanes {
		l.aside.empty = min(l.aside.empty+1, feedIsEmpty)
	}
	if v.AtEnd && e.heir && e.items == 0 && len(e.asides.lanes) == 0 {
		e.heir = false
		e.breaker.disown(e.number, e.now)
	}
}

// Omit counts changes handed to nobody as settled, unless an earlier change is open.
func (e *Engine) Omit(changes int) bool {
	if e.rules.ByHand || e.feed.first() != nil {
		return false
	}
	e.feed.unsaved += changes
	return true
}

// trim drops settled pages from the front, and merges settled pages in the middle with those before them when they are
// most of all, so that a stuck page does not have all others remembered.
func (f *feed) trim() {
	n := 0
	for n < len(f.pages) && f.pages[n].open == 0 {
		p := f.pages[n]
		f.unsaved += p.covers - p.counted
		f.covered = max(f.covered, p.lastLSN())
		f.spareOf(p)
		n++
	}
	if n > 0 {
		f.pages = slices.Delete(f.pages, 0, n)
	}
	if len(f.pages) > 0 {
		f.countFront(f.pages[0])
	}
	if len(f.pages) < 16 {
		return
	}
	settled := 0
	for _, p := range f.pages {
		if p.open == 0 {
			settled++
		}
	}
	if 2*settled > len(f.pages) {
		f.merge()
	}
}

// spareOf keeps the changes of a page of which nothing is left, for the next page. A batch confirmed by hand may come
// back, so the changes of such a batch are kept unchanged.
func (f *feed) spareOf(p *Page) {
	if !f.keeps && p.inMemory == 0 {
		f.spare = p.changes
	}
}

// takeSpare returns changes no longer needed.
func (f *feed) takeSpare() []Change {
	spare := f.spare
	f.spare = nil
	return spare
}

// countFront counts the settled changes at the front of a page, up to a change from which reading can begin.
func (f *feed) countFront(p *Page) {
	for p.front < len(p.changes) && p.changes[p.front].passed {
		p.front++
	}
	n := p.front
	for n > 0 && p.changes[n-1].LSN == p.changes[p.front].LSN { // of a transaction that has an open change
		n--
	}
	if n > p.counted {
		if _, known := f.after(p.Next, p.changes[n-1].LSN); known {
			f.unsaved += n - p.counted
			p.counted = n
			f.covered = max(f.covered, p.changes[n-1].LSN)
		}
	}
}

// merge makes a single page of each open page and the settled pages after it.
func (f *feed) merge() {
	kept := f.pages[:0]
	for _, p := range f.pages {
		if p.open > 0 {
			kept = append(kept, p)
			continue
		}
		before := kept[len(kept)-1] // the first page is open
		before.covers += p.covers
		before.doneTo = max(before.doneTo, p.lastLSN())
	}
	clear(f.pages[len(kept):])
	f.pages = kept
}

// lastLSN is the LSN of the last change of a page, merged pages included.
func (p *Page) lastLSN() int64 {
	if n := len(p.changes); n > 0 {
		return max(p.doneTo, p.changes[n-1].LSN)
	}
	return p.doneTo
}

// first is the oldest page with an open change; nil is none.
func (f *feed) first() *Page {
	for _, p := range f.pages {
		if p.open > 0 {
			return p
		}
	}
	return nil
}

// FirstOpen is the oldest change for which the position waits; nil is none.
func (e *Engine) FirstOpen() *Change {
	p := e.feed.first()
	if p == nil {
		return nil
	}
	for i := p.front; i < len(p.changes); i++ {
		if c := &p.changes[i]; !c.passed {
			return c
		}
	}
	return nil
}

// each calls a function with the changes of all pages not settled as a whole, in their order.
func (f *feed) each(call func(c *Change)) {
	for _, p := range f.pages {
		for i := range p.changes {
			call(&p.changes[i])
		}
	}
}

// Position is the position for the lease: all changes before it are settled, or their key is set aside.
func (e *Engine) Position() Position {
	if e.feed.frozen {
		return e.feed.at
	}
	at, before, lsn := e.feed.read, e.feed.last+1, e.feed.covered
	c := e.FirstOpen()
	if c != nil {
		at, before = c.Page.From, c.LSN
		if n := c.Page.counted; n > 0 {
			at, _ = e.rules.After(c.Page.Next, c.Page.changes[n-1].LSN)
		}
	}
	// A processor of another kind does not know which keys are set aside: so the position waits for these keys, unless
	// the position has passed them already, or is right before them.
	if first := e.asides.firstOpen(); e.feed.shared && first < before {
		known := false
		if lsn = first - 1; lsn > e.feed.atLSN {
			at, known = e.rules.After(e.feed.read, lsn)
		}
		if !known {
			return e.feed.at
		}
	}
	if c != nil && lsn < e.feed.atLSN { // the position does not move back
		return e.feed.at
	}
	e.feed.at, e.feed.atLSN = at, max(lsn, e.feed.atLSN)
	return at
}

// firstOpen is the LSN of the oldest unsettled change whose key is set aside, or of an earlier change.
func (a *asides) firstOpen() int64 {
	first := int64(math.MaxInt64)
	for _, l := range a.lanes {
		if from, lsn := l.continueFrom(); from != nil {
			first = min(first, lsn)
		}
	}
	return first
}

// Share notes whether another kind of processor may take the lease.
func (e *Engine) Share(shared bool) { e.feed.shared = shared }

// Freeze ends the moves of the position.
func (e *Engine) Freeze() { e.Position(); e.feed.frozen = true }

// IsFrozen reports whether a split has begun.
func (e *Engine) IsFrozen() bool { return e.feed.frozen }

// LeaseStored reports a successful write of the lease.
type LeaseStored struct {
	Changes   int  // Counts.Unsaved at the write
	NamesNone bool // Notes named no batch then
}

func (v LeaseStored) applyTo(e *Engine) {
	if v.NamesNone {
		e.guard.named = e.guard.of != nil
	}
	e.feed.unsaved -= v.Changes
	e.skips = openSkips(e)
}

// end is the last LSN of which the notes say something.
func (r *restored) end() int64 {
	end := r.through
	for _, run := range r.tried {
		end = max(end, run.To)
	}
	return end
}

// isSettled reports whether a change was settled by the last owner.
func (r *restored) isSettled(lsn int64) bool {
	if lsn > r.through {
		return false
	}
	_, open := slices.BinarySearch(r.open, lsn)
	return !open
}

// count gives a change the calls counted by the last owner.
func (r *restored) count(c *Change, name func(*Change) string) {
	for _, run := range r.tried {
		if c.isIn(run, name) {
			c.restore(run)
			return
		}
	}
}

// settledAfter is the LSN through which changes are settled, except open changes. Beyond a limit of open changes,
// settledAfter ends earlier.
func (f *feed) settledAfter(most int) (through int64, open []int64) {
	through = f.restored.through
	if f.atLSN < f.covered { // the position waits for keys that are set aside
		through = max(through, f.covered)
	}
	var waiting []int64
	for _, p := range f.pages {
		for i := range p.changes {
			switch c := &p.changes[i]; {
			case c.passed && (len(waiting) > 0 || i >= p.counted): // the position is before it
				through = max(through, c.LSN)
			case c.passed:
			case len(waiting) == 0 || waiting[len(waiting)-1] != c.LSN:
				waiting = append(waiting, c.LSN)
			}
		}
		through = max(through, p.doneTo)
	}
	for _, lsn := range f.restored.open {
		if lsn > f.last {
			waiting = append(waiting, lsn)
		}
	}
	n, _ := slices.BinarySearch(waiting, through+1)
	if n > most {
		return waiting[most] - 1, waiting[:most]
	}
	return through, waiting[:n]
}
