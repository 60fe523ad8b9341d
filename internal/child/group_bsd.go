//go:build unix && !linux

package child

import "syscall"

// Apart gives a process a group of its own.
func Apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
