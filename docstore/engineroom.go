package docstore

import (
	"errors"
	"fmt"
	"syscall"
)

// A disk without any room left is more than the engine bears: it cannot write the tables that its logs must become, nor
// the manifest that names them. So the store keeps a reserve for what is written already. With less than that on the disk it
// refuses writes, each by itself, and reads go on; with more, writes go on by themselves. What gives room back, the end of
// a container and the work of the reclaimer, may use a part of the reserve.

const (
	reserve     = 2 * mostBuffer // bytes: for the tables of a full buffer, and for the merge of some tables
	reservePart = 16             // of the disk: the reserve is no larger part of it
	givesBack   = 4              // what gives room back needs so much less
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

// needRoom returns [ErrDiskFull] while the disk has less than a part of the store's reserve. One look is enough for a group.
func (g *group) needRoom(part uint64) error {
	if g.roomy {
		return nil
	}
	err := g.db.eng.guard.lacksRoom(part)
	g.roomy = err == nil
	return err
}
