package lanes

import (
	"slices"
	"time"
)

// With lanes, changes are done out of order, but a checkpoint is a place in the feed.
// The ledger keeps both together: a place up to which all is done, and the changes
// beyond it that are not to come again. It knows done changes by their LSN, since that
// is all that a checkpoint can store of them.

// ledger knows which changes of the feed are done, in the order of the feed.
type ledger[C, P any] struct {
	single  bool            // keys are not handled in parallel
	order   []*Change[C, P] // all that are not confirmed, and some that are
	stale   int             // how many of order are confirmed
	last    int64           // the LSN of the last change that was added
	through int64           // changes up to this one were done before they were added,
	open    []int64         // but for these
}

// Restored is the LSN through which Add leaves things out.
func (g *ledger[C, P]) Restored() int64 { return g.through }

// Restore has Add leave out what is done already: every change up to the LSN through but for those with the LSNs open, in
// their order.
func (g *ledger[C, P]) Restore(through int64, open []int64) { g.through, g.open = through, open }

// confirm notes that a change is done for good: it does not come again after a crash.
func (g *ledger[C, P]) confirm(c *Change[C, P]) {
	if !c.confirmed {
		c.confirmed = true
		c.Page.unconfirmed--
		g.stale++
	}
}

// Confirm notes that by its handler's word a batch is done, and all that was handled before it: of its key or, where keys
// are not handled in parallel, of every key.
func (g *ledger[C, P]) Confirm(b *Batch[C, P]) {
	last := b.Changes[len(b.Changes)-1]
	if last.confirmed { // by a later batch, or twice
		return
	}
	for _, c := range b.Changes {
		g.confirm(c)
	}
	for _, c := range g.order {
		if c == last {
			break
		}
		if c.handled && (g.single || c.Key == last.Key) {
			g.confirm(c)
		}
	}
	g.trim()
}

// trim drops confirmed changes from the front of the order, and the others when they are most of it.
func (g *ledger[C, P]) trim() {
	n := 0
	for n < len(g.order) && g.order[n].confirmed {
		n++
	}
	g.order, g.stale = g.order[n:], g.stale-n
	if 2*g.stale > len(g.order) {
		g.order = slices.DeleteFunc(slices.Clone(g.order), func(c *Change[C, P]) bool { return c.confirmed })
		g.stale = 0
	}
}

// wasDone reports whether a change was done before it was added.
func (g *ledger[C, P]) wasDone(lsn int64) bool {
	return lsn <= g.through && !slices.Contains(g.open, lsn)
}

// find returns the first change of a kind that is not handled; nil is none.
func (g *ledger[C, P]) find(is func(*Change[C, P]) bool) *Change[C, P] {
	i := slices.IndexFunc(g.order, func(c *Change[C, P]) bool { return !c.handled && is(c) })
	if i < 0 {
		return nil
	}
	return g.order[i]
}

// First is the first change of the feed that is not done; nil is none.
func (g *ledger[C, P]) First() *Change[C, P] {
	if g.trim(); len(g.order) == 0 {
		return nil
	}
	return g.order[0]
}

// Oldest is the first batch of the feed that is not done, if it has failed: its failures, and since when.
func (g *ledger[C, P]) Oldest() (failures int, failing time.Time) {
	if len(g.order) == 0 {
		return 0, time.Time{}
	}
	c := g.order[0]
	for _, b := range c.lane.batches {
		if slices.Contains(b.Changes, c) {
			return b.Failures, b.Failing
		}
	}
	return c.failures, time.Time{}
}

// IsOldest reports whether a batch has the first change of the feed that is not done.
func (g *ledger[C, P]) IsOldest(b *Batch[C, P]) bool {
	return len(g.order) > 0 && len(b.Changes) > 0 && slices.Contains(b.Changes, g.order[0])
}

// Done is what is done, also after changes that are not: every change up to the LSN through, but for those with the
// LSNs open. There are at most so many of these, and where there would be more it reaches less far.
func (g *ledger[C, P]) Done(most int) (through int64, open []int64) {
	add := func(lsn int64) (fits bool) {
		if len(open) > 0 && open[len(open)-1] == lsn {
			return true
		}
		if len(open) == most {
			through = lsn - 1
			return false
		}
		open = append(open, lsn)
		return true
	}
	through = max(g.last, g.through)
	for _, c := range g.order {
		if !c.confirmed && !add(c.LSN) {
			return through, open
		}
	}
	for _, lsn := range g.open {
		if lsn > g.last && !add(lsn) {
			return through, open
		}
	}
	return through, open
}
