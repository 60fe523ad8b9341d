package functions

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/trigger/function"
)

// Mistakes divides an error of [function.ReadApp], or of the flags, into the mistakes of the app. A mistake is a
// [usage.Error] or, if it names a function that does not exist, a [usage.Missing].
func Mistakes(err error) (all []error) {
	mistakes := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		mistakes = joined.Unwrap()
	}
	for _, one := range mistakes {
		all = append(all, mistakeOf(one))
	}
	return all
}

// mistakeOf marks a mistake, unless a file is missing or cannot be read.
func mistakeOf(err error) error {
	_, system := errors.AsType[syscall.Errno](err)
	switch {
	case errors.Is(err, function.ErrNoFunction):
		return usage.Missing{Err: fmt.Errorf("--function: %w", err)}
	case system, errors.Is(err, fs.ErrNotExist), errors.As(err, new(usage.Error)):
		return err
	}
	return usage.Error{Err: err}
}
