package engine

import (
	"errors"
	"fmt"
	"syscall"
)

// A disk without any room left is more than the library bears: it cannot write the tables that its logs must become, nor
// the manifest that names them. So the store keeps a reserve for what is written already. With less than that on the disk it
// refuses writes, each by itself, and reads go on; with more, writes go on by themselves. What gives room back, the end of
// a container and the work of the reclaimer, may use a part of the reserve.

const (
	reserve     = 2 * mostBuffer // bytes: for the tables of a full buffer, and for the merge of some tables
	reservePart = 16             // of the disk: the reserve is no larger part of it
)

// lacksRoom returns [ErrDiskFull] while the disk has less than the reserve, or a part of it. A file system that does not
// know has room.
func (g *guard) lacksRoom(part uint64) error {
	usage, err := g.GetDiskUsage(g.dir)
	if err != nil {
		return nil
	}
	least := min(reserve, usage.TotalBytes/reservePart) / part
	if usage.AvailBytes >= least {
		return nil
	}
	return fmt.Errorf("%w: the disk of %s has %d KB left, and the store keeps %d KB for what it has: free some, then writes go on; reads do meanwhile",
		ErrDiskFull, g.dir, usage.AvailBytes>>10, least>>10)
}

// isLackOfRoom reports whether an error of the disk is that it is full, and it makes sense to wait for room. A store that is
// opened or closed ends instead, after 10 seconds at most: its files are then as after a kill.
func (g *guard) isLackOfRoom(err error) bool {
	if g.opening.Load() || g.leaving.Load() {
		return false
	}
	return (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) && g.lacksRoom(1) != nil
}

// GivesBack is the part of the reserve that has to be there for work that gives room back.
const GivesBack = 4

// LacksRoom returns [ErrDiskFull] while the disk has less than the reserve divided by part, which is 1 or [GivesBack].
func (e *Engine) LacksRoom(part uint64) error { return e.guard.lacksRoom(part) }

// WritesStall returns [ErrDiskFull] while a write has waited for room for long, so that the next need not.
func (e *Engine) WritesStall() error {
	if !e.guard.stalled.Load() {
		return nil
	}
	return e.guard.lacksRoom(1)
}

// PrepareClose is called before the store is closed: from now on a write waits for room on a full disk
// no longer than for a disk that fails.
func (e *Engine) PrepareClose() { e.guard.leaving.Store(true) }
