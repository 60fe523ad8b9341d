//go:build unix

package bench

import (
	"syscall"
	"time"
)

// busy returns the processor time of this process, user and system together.
func busy() time.Duration {
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
