//go:build !unix

package program

import (
	"os"
	"syscall"
)

// apart does nothing if processes have no groups.
func apart() *syscall.SysProcAttr { return nil }

// terminate ends a process, because there is no gentler way.
func terminate(p *os.Process) { kill(p) }

// kill ends a process.
func kill(p *os.Process) { _ = p.Kill() } // an error means that the process is gone already
