//go:build unix && !linux

package program

import "syscall"

// apart gives a process its own group.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
