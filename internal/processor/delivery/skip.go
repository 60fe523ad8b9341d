package delivery

import (
	"slices"

	"github.com/millrace/changefeed/internal/notes"
)

// How a change is skipped
//
// An operator names the changes to skip in the lease, while nobody has the lease: see package notes. The next engine
// counts a change with such a name as done at the read, from the feed or by key. The name stays until nobody can read
// the change again: the position has passed the change, and so has the key's position if the key is set aside.

// isSkipped reports whether an operator has had a change skipped.
func (c *Change) isSkipped(e *Engine) bool {
	return slices.ContainsFunc(e.skips, func(s notes.Skip) bool {
		return s.LSN == c.LSN && s.Key == c.Key && s.ID == e.rules.ID(c)
	})
}

// skip settles a change that was read, and is to be skipped. The handler must be able to know that the transaction is
// not whole.
func (c *Change) skip(e *Engine) {
	for i := range c.Page.changes {
		if o := &c.Page.changes[i]; o != c && o.isSameTransaction(c) {
			o.fraction = isCut
		}
	}
	c.settle(e)
}

// openSkips returns the names of changes that may come again.
func openSkips(e *Engine) []notes.Skip {
	return slices.DeleteFunc(slices.Clone(e.skips), func(s notes.Skip) bool {
		if s.LSN > e.feed.atLSN {
			return false
		}
		l := e.lanes.own[s.Key]
		if l == nil {
			return true
		}
		from, lsn := l.continueFrom()
		return from == nil || lsn > s.LSN
	})
}
