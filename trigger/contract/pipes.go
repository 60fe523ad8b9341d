package contract

import (
	"fmt"
	"os"
	"strconv"
)

// The variables of the environment from which a program knows the descriptors of its pipes.
const (
	EnvRead  = "CHANGEFEED_READ_FD"
	EnvWrite = "CHANGEFEED_WRITE_FD"
)

// Pipes returns the pipes of a program that a processor has started: the program reads from in and writes to out.
func Pipes() (in, out *os.File, err error) {
	if in, err = pipe(EnvRead); err != nil {
		return nil, nil, err
	}
	if out, err = pipe(EnvWrite); err != nil {
		return nil, nil, err
	}
	return in, out, nil
}

// pipe returns the pipe whose descriptor a variable has.
func pipe(variable string) (*os.File, error) {
	text := os.Getenv(variable)
	descriptor, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return nil, fmt.Errorf("$%s is %q: want the number of a descriptor, which the processor sets when it starts the program",
			variable, text)
	}
	return os.NewFile(uintptr(descriptor), variable), nil
}
