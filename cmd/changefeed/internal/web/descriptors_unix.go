//go:build unix

package web

import "syscall"

// Descriptors returns how many files and connections this process may have open, or 0 if unknown. The runtime has
// raised the limit as far as possible.
func Descriptors() int64 {
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) != nil {
		return 0
	}
	return int64(min(uint64(r.Cur), 1<<30)) // may be unlimited
}
