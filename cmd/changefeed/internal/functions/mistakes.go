package functions

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/millrace/changefeed/cmd/changefeed/internal/usage"
	"github.com/millrace/changefeed/trigger/function"
)

// Mistakes divides an error of [function.ReadApp] into the mistakes of the app, which are the lines of its text. A
// mistake is a [usage.Error] or, if it names a function that does not exist, a [usage.Missing].
func Mistakes(err error) (all []error) {
	lines := strings.Split(err.Error(), "\n")
	if len(lines) == 1 {
		return []error{mistakeOf(err)}
	}
	for _, line := range lines {
		all = append(all, usage.Error{Err: errors.New(line)})
	}
	return all
}

// mistakeOf marks a mistake, unless a file is missing or cannot be read.
func mistakeOf(err error) error {
	_, system := errors.AsType[syscall.Errno](err)
	switch {
	case errors.Is(err, function.ErrNoFunction):
		return usage.Missing{Err: fmt.Errorf("--function: %w", err)}
	case system, errors.Is(err, fs.ErrNotExist):
		return err
	}
	return usage.Error{Err: err}
}
