//go:build unix

package child

import (
	"os"
	"syscall"
)

// Terminate asks the group of a process to end. An error means that the group is gone already.
func Terminate(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGTERM) }

// Kill ends the group of a process. An error means that the group is gone already.
func Kill(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
