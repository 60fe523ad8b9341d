//go:build unix

package web

import "syscall"

// Descriptors is how many files and connections this process may have open; 0 where the system does not tell. The
// runtime has raised the limit as far as it may.
func Descriptors() int64 {
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) != nil {
		return 0
	}
	return int64(min(uint64(r.Cur), 1<<30)) // may be infinite
}
