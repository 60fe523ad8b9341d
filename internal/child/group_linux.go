package child

import "syscall"

// Apart gives a process a group of its own. The process dies with its parent thread, and Go ends this thread only with
// the program.
func Apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
