// Package usage marks errors with separate exit codes, so that scripts can distinguish them: the command line is wrong,
// a named object does not exist, or the command has found a fault.
package usage

import (
	"errors"
	"fmt"
	"io/fs"
)

// Error is a mistake in a command line, with a special exit code.
type Error struct{ Err error }

// Error returns the text of Err.
func (e Error) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e Error) Unwrap() error { return e.Err }

// Flag returns the Error of a flag, with the value and the accepted values.
func Flag(flag, value, want string) error {
	return Error{Err: fmt.Errorf("--%s is %s: want %s", flag, value, want)}
}

// Path returns the error of a file or directory that the command line names in a field. Errors of the system repeat the
// path, so only their cause is shown.
func Path(field, path string, err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return fmt.Errorf("%s is %s: %w", field, path, err)
}

// Missing says that something does not exist that the command line names, such as a unit, a letter or a partition.
type Missing struct{ Err error }

// Error returns the text of Err.
func (e Missing) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e Missing) Unwrap() error { return e.Err }

// Found says that a command has done its work, and has found faults, such as violations.
type Found struct{ Err error }

// Error returns the text of Err.
func (e Found) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e Found) Unwrap() error { return e.Err }
