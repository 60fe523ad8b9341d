package delivery

import (
	"slices"
	"time"

	"github.com/millrace/changefeed/internal/notes"
)

// Page is a page of changes: of the feed, of a key that is read again, or the single change of a letter.
type Page struct {
	Of         any      // of the owner
	From, Next Position // the page was read after From, and the next page begins at Next

	changes  []Change
	open     int   // changes for which the position waits at From
	inMemory int   // changes that are not handled
	bytes    int   // that the page keeps in memory
	left     int   // of which so many belong to changes that are not handled
	covers   int   // changes of this page and of pages merged with this page
	front    int   // changes at the front for which the position does not wait
	counted  int   // of these, those that count as before the position
	doneTo   int64 // LSN of the last change of these
	added    time.Time
	ofKey    bool // of a key that was read again, so the changes of other keys are missing in between
}

// Change is a change in the engine.
type Change struct {
	Page  *Page
	Index int // in the page, among the changes that were added together
	Place int // among the changes of the same LSN
	LSN   int64
	Key   string
	size  int

	state    ChangeState
	calls    int   // how often the handler has received the change and returned
	failures int   // calls that count as attempts: none during an outage or before the end of an outage
	failing  int64 // since when, in nanoseconds since 1970; 0 without a failure
	fraction fraction
	passed   bool // the position does not wait for the change
	left     bool // to a later read of its key
	letter   bool // a parked change that is handed over again
	lane     *lane
}

// IsSettled reports whether the change is done, parked, or left to a later read of the key.
func (c *Change) IsSettled() bool { return c.state == Settled || c.state == Handled }

// IsUnconfirmed reports whether the change is handled, and waits to be confirmed by hand.
func (c *Change) IsUnconfirmed() bool { return c.state == Handled }

// Calls is how often the handler has received the change.
func (c *Change) Calls() int { return c.calls }

// Meta is the owner's description of a change.
type Meta struct {
	LSN  int64
	Key  string
	Size int
}

// run is how often the handler has received the change, in the form of notes.
func (c *Change) run(name func(*Change) string) notes.Run {
	r := notes.Run{
		From: c.LSN, To: c.LSN, Calls: c.calls, Failures: c.failures,
		Failing: c.failing / int64(time.Second),
	}
	if c.fraction != isWhole {
		r.Letters = []string{name(c)}
	}
	return r
}

// addRun adds the run of a change to some runs: to the last run if both are alike and adjacent, or if both name changes
// of the same transaction.
func addRun(runs []notes.Run, r notes.Run, follows bool) []notes.Run {
	if n := len(runs); n > 0 && r.IsLike(runs[n-1]) {
		switch last := &runs[n-1]; {
		case len(r.Letters) > 0 && len(last.Letters) > 0 && last.From == r.From:
			last.Letters = append(last.Letters, r.Letters...)
			return runs
		case follows && len(r.Letters) == 0 && len(last.Letters) == 0:
			last.To = r.To
			return runs
		}
	}
	if len(runs) < maxRuns {
		runs = append(runs, r)
	}
	return runs
}

// isIn reports whether a run is about the change.
func (c *Change) isIn(r notes.Run, name func(*Change) string) bool {
	return r.Has(c.Key, c.LSN, func() string { return name(c) })
}

// hasFailedLike reports whether two changes have failed equally often and since the same time.
func (c *Change) hasFailedLike(o *Change) bool {
	return c.failures == o.failures && c.failing == o.failing
}

// restore gives the change the calls of a run that another owner has noted.
func (c *Change) restore(r notes.Run) {
	if len(r.Letters) > 0 {
		c.fraction = max(c.fraction, isNamed)
	}
	c.calls, c.failures = max(c.calls, r.Calls), max(c.failures, r.Failures)
	if since := r.Failing * int64(time.Second); since > 0 && (c.failing == 0 || since < c.failing) {
		c.failing = since
	}
}

// isBefore reports whether two changes of a key follow each other. A done change between the two comes again after a
// crash, with fewer calls.
func (c *Change) isBefore(o *Change) bool {
	if c.Page != o.Page || c.Index > o.Index {
		return c.LSN == o.LSN
	}
	return !slices.ContainsFunc(c.Page.changes[c.Index+1:o.Index], func(b Change) bool { return b.Key == c.Key })
}

// isSameTransaction reports whether two changes were committed together.
func (c *Change) isSameTransaction(o *Change) bool { return c.LSN == o.LSN && c.Key == o.Key }

// release has the position wait for the change no longer.
func (c *Change) release() {
	if !c.passed {
		c.passed = true
		c.Page.open--
	}
}

// settle notes that a change does not come again from here.
func (c *Change) settle(e *Engine) {
	if c.state != Handled && c.state != Settled {
		c.leaveMemory(e)
	}
	if c.state == Handled && c.passed {
		c.lane.handled = slices.DeleteFunc(c.lane.handled, func(o *Change) bool { return o == c })
	}
	if c.state != Settled {
		c.state = Settled
		c.release()
	}
}

// leaveMemory gives up the memory of a change.
func (c *Change) leaveMemory(e *Engine) {
	e.items--
	if freed := c.Page.shed(c); freed > 0 {
		e.bytes -= freed
		if c.Page.inMemory > 0 {
			e.queueEffect(Effect{Kind: Shed, Page: c.Page})
		}
	}
}

// newPage makes a page of changes, in a buffer if that has room for them.
func newPage(of any, from, next Position, n int, meta func(i int) Meta, before int64, buffer []Change) *Page {
	if cap(buffer) < n {
		buffer = make([]Change, n)
	}
	p := &Page{Of: of, From: from, Next: next, changes: buffer[:n], open: n, inMemory: n, covers: n}
	place := 0
	for i := range p.changes {
		m := meta(i)
		if place++; i == 0 || m.LSN != before {
			place = 0
		}
		before = m.LSN
		p.changes[i] = Change{Page: p, Index: i, Place: place, LSN: m.LSN, Key: m.Key, size: m.Size}
		p.bytes += m.Size
	}
	p.left = p.bytes
	return p
}

// shed gives up the memory of a change, and returns by how many bytes the page becomes smaller: after the last change
// all memory of the page is given up, and before that most memory now and then, because a few changes must not keep the
// rest of their page.
func (p *Page) shed(c *Change) (bytes int) {
	p.inMemory--
	p.left -= c.size
	// Only when three quarters are handled. The owner then copies the remaining changes, at most a third of the given
	// up memory.
	if p.inMemory > 0 && (p.left*4 > p.bytes || p.bytes == 0) {
		return 0
	}
	bytes = p.bytes - p.left
	p.bytes = p.left
	return bytes
}

// Kept calls f with the places of the changes that are still in memory.
func (p *Page) Kept(f func(index int)) {
	for i := range p.changes {
		if !p.changes[i].IsSettled() {
			f(i)
		}
	}
}

// sizeLimit is how many changes a batch may have after a batch took too long.
type sizeLimit struct {
	items int // 0 is no limit
	full  int // how many the batch had that took too long first
}

// shrink halves the limit after a batch of so many changes took too long. A transaction may have been larger than that.
func (l *sizeLimit) shrink(changes int) {
	if l.items == 0 {
		l.full = changes
	}
	l.items = min(positive(l.items), max(changes/2, 1))
}

// grow raises the limit after a batch of so many changes was quick. A half may be smaller than the limit.
func (l *sizeLimit) grow(changes int, quick bool) {
	if !quick || l.items == 0 || 2*changes < l.items {
		return
	}
	if l.items *= 2; l.items >= l.full {
		l.items = 0
	}
}

// age is for how long something has failed.
func age(since, now time.Time) time.Duration {
	if since.IsZero() {
		return 0
	}
	return now.Sub(since)
}
