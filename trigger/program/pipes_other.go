//go:build !unix

package program

import (
	"os"
	"os/exec"
)

// connectPipes gives a program the pipes of its contract as standard input and output, because a process inherits no
// others. So the program must not print to its standard output.
func connectPipes(cmd *exec.Cmd, input, output *os.File) (in, out int) {
	cmd.Stdin, cmd.Stdout = input, output
	return 0, 1
}
