package program

import "syscall"

// apart gives a process its own group. The process dies with the thread that started it, and Go ends that thread only
// with the program.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
