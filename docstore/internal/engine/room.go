package engine

import (
	"errors"
	"fmt"
	"math"
	"syscall"
)

// The library cannot handle a disk without any room: the library can write neither the tables that its logs must
// become, nor the manifest that names them. So the store keeps a reserve for the data written already. If the disk
// has less free space than the reserve, the store refuses each write, and reads go on. When the disk has more, writes
// go on by themselves. Work that frees space, such as the deletion of a container and the work of the reclaimer, may
// use a part of the reserve.

const (
	reserve     = 2 * mostBuffer // bytes, for the tables of a full buffer and for the merge of some tables
	reservePart = 16             // the reserve is at most this part of the disk
)

// lacksRoom returns [ErrDiskFull] if the disk has less free space than the reserve divided by part. If the file
// system does not know its free space, lacksRoom returns nil.
func (g *guard) lacksRoom(part uint64) error {
	usage, err := g.GetDiskUsage(g.dir)
	if err != nil {
		return nil
	}
	least := min(reserve, usage.TotalBytes/reservePart) / part
	if usage.AvailBytes >= least {
		return nil
	}
	return fmt.Errorf("%w: the disk of %s has %d KB left, and the store keeps %d KB for what it has: free some, then "+
		"writes go on; reads do meanwhile",
		ErrDiskFull, g.dir, usage.AvailBytes>>10, least>>10)
}

// Space returns the free space and the size of the volume, in bytes; 0 and 0 if the file system does not know them.
func (e *Engine) Space() (free, size int64) {
	usage, err := e.guard.GetDiskUsage(e.guard.dir)
	if err != nil {
		return 0, 0
	}
	return int64(min(usage.AvailBytes, math.MaxInt64)), int64(min(usage.TotalBytes, math.MaxInt64))
}

// Size returns the size of the store's files, in bytes, or 0 if they cannot be listed. The library is not asked,
// because its figures are locked while it writes a manifest, which may take as long as the disk hangs or is full.
func (e *Engine) Size() (bytes int64) {
	names, err := e.guard.FS.List(e.guard.dir)
	if err != nil {
		return 0
	}
	for _, name := range names {
		info, err := e.guard.FS.Stat(e.guard.PathJoin(e.guard.dir, name))
		if err == nil && !info.IsDir() { // otherwise it was deleted meanwhile, or is no file of the store
			bytes += info.Size()
		}
	}
	return bytes
}

// isLackOfRoom reports whether an error of the disk means that the disk is full, and waiting for room makes sense. A
// store being opened or closed does not wait: such a store ends after 10 seconds at most, and its files are then as
// after a kill.
func (g *guard) isLackOfRoom(err error) bool {
	if g.opening.Load() || g.leaving.Load() {
		return false
	}
	return (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) && g.lacksRoom(1) != nil
}

// GivesBack divides the reserve for work that frees space.
const GivesBack = 4

// LacksRoom returns [ErrDiskFull] if the disk has less free space than the reserve divided by part. part is 1 or
// [GivesBack].
func (e *Engine) LacksRoom(part uint64) error { return e.guard.lacksRoom(part) }

// WritesStall returns [ErrDiskFull] if a write has already waited a long time for room, so the next write need not
// wait.
func (e *Engine) WritesStall() error {
	if !e.guard.stalled.Load() {
		return nil
	}
	return e.guard.lacksRoom(1)
}

// PrepareClose must be called before the store is closed. From then on a write waits no longer for room on a full
// disk than for a disk that fails.
func (e *Engine) PrepareClose() { e.guard.leaving.Store(true) }
