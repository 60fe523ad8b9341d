package delivery

import (
	"cmp"
	"slices"
	"time"

	"github.com/millrace/changefeed/internal/notes"
)

// Notes is the notes of the lease beside the position.
type Notes struct {
	Through int64 // every change up to this LSN is settled,
	Open    []int64
	Tried   []notes.Run
	First   int // how often the handler has received the first change, where Tried does not say; only for Restore
	Suspect *notes.Suspect
	Held    []notes.HeldKey
	Aside   []Aside
	Recalls []notes.Recall
	Skips   []notes.Skip // changes that are skipped and may come again
	Outage  bool         // there is one: so the recalls are for its end, and otherwise they may be
}

// Aside is a key set aside, and a position from which its changes can be read.
type Aside struct {
	notes.AsideKey
	From Position
}

// Notes returns the notes for the lease beside the position.
func (e *Engine) Notes() Notes {
	e.Position() // the changes belong to this key
	s := Notes{Suspect: e.guard.suspect, Outage: e.breaker.IsOpen()}
	if s.Suspect == nil && e.guard.crashed != nil { // the change was not read yet
		s.Suspect = e.guard.crashed
	}
	s.Through, s.Open = e.feed.settledAfter(notes.MaxOpen)
	s.Skips = openSkips(e)
	s.Tried = e.feed.tried()
	for key, l := range e.lanes.own {
		if e.held.keys == 0 {
			break // there may be thousands of lanes, and the lease is written after each page
		}
		if l.hold != notHeld {
			s.Held = append(s.Held, notes.HeldKey{Key: key, Since: l.heldSince})
		}
	}
	slices.SortFunc(s.Held, func(a, b notes.HeldKey) int { return cmp.Compare(a.Key, b.Key) })
	left := maxRuns
	for _, l := range e.asides.lanes {
		if k, noted := l.asideNote(&e.feed, left); noted {
			s.Aside = append(s.Aside, k)
			left -= len(k.Tried)
		}
	}
	for _, r := range e.recalls.listOpen(e) {
		s.Recalls = append(s.Recalls, notes.Recall{
			Key: r.key, Letter: r.letter, InHand: r.inHand, Done: r.done,
			Due: r.due,
		})
	}
	return s
}

// IsNotedAside reports whether the notes have a key among those set aside.
func IsNotedAside(e *Engine, key string) bool {
	l := e.lanes.own[key]
	if l == nil || l.aside.state == notAside {
		return false
	}
	from, _ := l.noteFrom(&e.feed)
	return from != nil
}

// noteFrom is where the key continues by its note; nil without a note.
func (l *lane) noteFrom(f *feed) (from Position, lsn int64) {
	from, lsn = l.continueFrom()
	// it is ahead of the feed
	if a := &l.aside; from == nil && a.state == caughtUp && a.after > f.last && a.empty < feedIsEmpty {
		from, lsn = a.from, a.after+1
	}
	return from, lsn
}

// asideNote returns the note about a key set aside, with so many runs of changes at most.
func (l *lane) asideNote(f *feed, most int) (k Aside, noted bool) {
	covered := f.atLSN
	from, lsn := l.noteFrom(f)
	if from == nil {
		return k, false
	}
	k.Key, k.LSN, k.From = l.key, lsn, from
	if !l.aside.restored { // otherwise there may be more of the key before the position than is known
		k.Last = max(l.aside.after, l.aside.dropped, l.lastLSN())
	}
	k.Passed, k.Covered = l.aside.passed || lsn <= covered, covered
	for _, b := range l.line {
		if b.request == nil {
			k.Tried = append(k.Tried, runsOf(l.changesOf(b), f.name)...)
		}
	}
	k.Tried = append(k.Tried, runsOf(l.waiting, f.name)...)
	last := l.lastLSN()
	for _, run := range l.tried {
		if run.To > last {
			run.From = max(run.From, last+1)
			k.Tried = append(k.Tried, run)
		}
	}
	if len(k.Tried) > most {
		k.Tried = k.Tried[:most]
	}
	return k, true
}

// changesOf are the changes of a lane in a batch, which may have those of others.
func (l *lane) changesOf(b *Batch) (changes []*Change) {
	for _, c := range b.Changes {
		if c.lane == l {
			changes = append(changes, c)
		}
	}
	return changes
}

// lastLSN is the LSN of the last change of a lane in memory.
func (l *lane) lastLSN() (lsn int64) {
	lsn = l.lastInLine()
	if n := len(l.waiting); n > 0 {
		lsn = l.waiting[n-1].LSN
	}
	if n := len(l.handled); n > 0 {
		lsn = max(lsn, l.handled[n-1].LSN)
	}
	return lsn
}

// Restore has the engine go on from the notes of the lease's last owner.
func (e *Engine) Restore(s Notes, now time.Time) {
	e.now = now
	e.skips = slices.Clone(s.Skips)
	e.feed.restored = restored{through: s.Through, open: s.Open, tried: s.Tried, attempts: s.First}
	if len(s.Tried) == 0 {
		e.feed.restored.first = s.First
	}
	for _, h := range s.Held {
		e.lanes.ownLaneFor(e, h.Key).holdFrom(e, h.Since)
	}
	for _, k := range s.Aside {
		e.feed.covered = max(e.feed.covered, k.Covered)
		e.feed.last, e.feed.atLSN = e.feed.covered, e.feed.covered
		e.asides.restoreKey(e, k.AsideKey, k.From)
	}
	for _, r := range s.Recalls {
		e.recalls.inherit(e, recall{key: r.Key, letter: r.Letter, inHand: r.InHand, done: r.Done}, s.Outage || r.Due)
	}
	if s.Outage {
		e.heir = true
		e.breaker.adopt(e.number)
	}
}

// maxRuns is how many runs of changes the lease says the calls of. Further changes count anew under the next owner.
const maxRuns = 100

// tried is how often the handler has received the changes for which the position waits.
func (f *feed) tried() (runs []notes.Run) {
	var last *Change
	f.each(func(c *Change) {
		switch {
		case c.passed:
			return
		case c.state == Handled: // the change may come again as a first attempt, so no run goes past it
			last = nil
			return
		}
		if c.calls > 0 {
			runs = addRun(runs, c.run(f.name), last != nil && last.calls > 0)
		}
		last = c
	})
	for _, run := range f.restored.tried { // changes not read yet
		if run.To > f.last && len(runs) < maxRuns {
			run.From = max(run.From, f.last+1)
			runs = append(runs, run)
		}
	}
	return runs
}

// Attempts is how often the handler has received the oldest change for which the position waits.
func (e *Engine) Attempts() int {
	if c := e.FirstOpen(); c != nil && c.state == Handled { // the change waits for a confirmation
		return 0
	} else if c != nil {
		return c.calls
	}
	return e.feed.restored.attempts // the change was not read yet
}

// Confirm notes that the handler has confirmed a batch, and all batches handled before: of the same keys or, with one
// batch at a time, of every key. Confirm reports whether this is new, and false for a batch coming again in parts.
func (e *Engine) Confirm(b *Batch, now time.Time) (fresh, valid bool) {
	e.now = now
	switch {
	case slices.ContainsFunc(b.Changes, func(c *Change) bool { return c.left }):
		return false, false
	case b.IsConfirmed():
		return false, true
	}
	if b.State == Over && slices.ContainsFunc(b.Changes, func(c *Change) bool {
		return c.state == Batched || c.state == Queued
	}) {
		return false, false
	}
	last := map[string]int64{} // LSNs, by keys
	for _, c := range b.Changes {
		last[c.Key] = c.LSN
		last[""] = max(last[""], c.LSN)
	}
	settle := func(c *Change) {
		until := last[c.Key]
		if e.rules.Concurrency == 1 {
			until = last[""]
		}
		if c.state == Handled && c.LSN <= until {
			c.settle(e)
		}
	}
	e.feed.each(settle)
	for _, l := range e.asides.lanes {
		for _, c := range slices.Clone(l.handled) {
			settle(c)
		}
	}
	for _, c := range b.Changes {
		c.settle(e)
	}
	e.feed.trim()
	e.guard.afterCall(b)
	if b.State == ToCall { // a retry is needless. Nothing is parked while batches are confirmed by hand
		b.replaceBy(e, ConfirmedByHand)
	}
	return true, true
}

// IsIdle reports whether nothing is in memory, in hand or to be done.
func (e *Engine) IsIdle() bool {
	return e.items == 0 && e.inHand == 0 && e.asides.reading == 0 && len(e.effects) == 0 && len(e.asides.lanes) == 0 &&
		(len(e.recalls.pending) == 0 || !e.rules.HasBox) && e.requests == 0 && !e.recalls.mayStart(e)
}

// IsSettled reports whether all changes read are done, and nothing beside the position would be lost if another lease
// began there.
func (e *Engine) IsSettled() bool {
	return e.IsIdle() && e.FirstOpen() == nil && e.held.keys == 0 && !e.breaker.IsOpen() && !e.feed.shared &&
		e.Position() == e.feed.read
}

// IsBlocked reports whether every change in memory has failed or is behind a failed change. Then another page may be
// read though one batch is in hand at a time. A batch confirmed by hand is in hand until the handler has returned.
func (e *Engine) IsBlocked() bool {
	if e.items == 0 {
		return e.inHand == 0
	}
	if e.rules.InOrder || e.inHand > 0 || e.lanes.hasReady() {
		return false
	}
	return !slices.ContainsFunc(e.batches, func(b *Batch) bool { return b.streak == 0 && b.State != ToPark })
}

// firstUnhandled is the oldest change for which the position waits and that the handler has not handled; nil is none.
func (f *feed) firstUnhandled() *Change {
	for _, p := range f.pages {
		for i := range p.changes {
			if c := &p.changes[i]; !c.passed && c.state != Handled {
				return c
			}
		}
	}
	return nil
}

// Oldest is how often the handler has received the oldest unfinished change in memory, and since when this change is
// here. A change that was handled and waits for a confirmation by hand does not fail.
func (e *Engine) Oldest() (calls int, since time.Time) {
	oldest := e.feed.firstUnhandled()
	for _, l := range e.asides.lanes { // the position has passed their changes
		if len(l.line) == 0 {
			continue
		}
		if c := l.line[0].Changes[0]; !c.letter && (oldest == nil || c.LSN < oldest.LSN) {
			oldest = c
		}
	}
	if oldest == nil {
		return 0, time.Time{}
	}
	return oldest.calls, oldest.Page.added
}
