//go:build linux || darwin

package doctor

import (
	"fmt"
	"syscall"
)

// diskSpace returns how many bytes of the disk of a directory are free for this user, and how many it has.
func diskSpace(dir string) (free, size uint64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, 0, fmt.Errorf("ask the disk of %s: %w", dir, err)
	}
	return s.Bavail * uint64(s.Bsize), s.Blocks * uint64(s.Bsize), nil
}
