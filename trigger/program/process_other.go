//go:build !unix

package program

import (
	"os"
	"syscall"
)

// apart is nothing where processes have no groups.
func apart() *syscall.SysProcAttr { return nil }

// terminate ends a process: there is no way to ask it.
func terminate(p *os.Process) { kill(p) }

// kill ends a process.
func kill(p *os.Process) { _ = p.Kill() } // gone already is as good
