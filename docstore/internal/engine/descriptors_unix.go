//go:build unix

package engine

import "syscall"

// descriptorLimit returns how many descriptors the process may have; 0 means any number.
func descriptorLimit() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil || limit.Cur > 1<<30 {
		return 0
	}
	return int(limit.Cur)
}
