package program

import "syscall"

// apart gives a process a group of its own. It dies with the thread that started it,
// which Go ends with the program only.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
