//go:build unix

package program

import (
	"os"
	"syscall"
)

// terminate asks the group of a process to end.
// an error means that the group is gone already
func terminate(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGTERM) }

// kill ends the group of a process.
func kill(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
