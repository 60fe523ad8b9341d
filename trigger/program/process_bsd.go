//go:build unix && !linux

package program

import "syscall"

// apart gives a process a group of its own.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
