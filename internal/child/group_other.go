//go:build !unix

package child

import (
	"os"
	"syscall"
)

// Apart does nothing if processes have no groups.
func Apart() *syscall.SysProcAttr { return nil }

// Terminate ends a process, because there is no gentler way.
func Terminate(p *os.Process) { Kill(p) }

// Kill ends a process.
func Kill(p *os.Process) { _ = p.Kill() } // an error means that the process is gone already
