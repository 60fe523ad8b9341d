// Package usage marks errors of a command line, which the command answers with another exit code than failures of
// its work: nothing was done, and the same line can never succeed.
package usage

import "fmt"

// Error is a mistake in a command line, which has an exit code of its own.
type Error struct{ Err error }

// Error is the text of Err.
func (e Error) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e Error) Unwrap() error { return e.Err }

// Flag returns the Error of a flag: the value that it was given, and which it wants.
func Flag(flag, value, want string) error {
	return Error{Err: fmt.Errorf("--%s is %s: want %s", flag, value, want)}
}
