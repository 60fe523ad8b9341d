// Package usage marks errors of a command line. For these the command has another exit code than for failures of the
// work, because nothing was done, and the same command line can never succeed.
package usage

import "fmt"

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
