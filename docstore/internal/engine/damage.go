package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
)

// unusableError is that of a directory that cannot be made, or in which no file can be made. Nothing in it can be damaged,
// whatever the system calls the reason: in some places it says that a file does not exist.
type unusableError struct{ error }

// Error says which directory would do.
func (e unusableError) Error() string {
	return fmt.Sprintf("the directory cannot be used: %v: want one in which this user can make files", e.error)
}

// Unwrap returns the error of the system.
func (e unusableError) Unwrap() error { return e.error }

// openError maps the library's error to ours. The library exports no sentinel for a
// locked directory or an unknown format, so the text decides; a test opens each such
// directory, so a new text is noticed with the library's next version.
func openError(err error) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "lock held by current process"):
		return fmt.Errorf("%w: it is open in this process already", ErrInUse)
	case strings.Contains(text, "resource temporarily unavailable"):
		return fmt.Errorf("%w: it is open in another process", ErrInUse)
	case strings.Contains(text, "format major version"):
		return fmt.Errorf("%w: %w", ErrFormat, err)
	case errors.Is(err, ErrCorrupt), errors.As(err, new(unusableError)):
		return err
	case isCorrupt(err) || errors.Is(err, os.ErrNotExist):
		return damage{err: err}
	}
	return err
}

// openFailure is the error of an open that came to nothing because of the disk, or
// because ctx ended.
func openFailure(ctx context.Context, reason error) error {
	if ctx.Err() != nil && errors.Is(reason, context.Cause(ctx)) || isCorrupt(reason) {
		return reason
	}
	return fmt.Errorf("%w: %w", ErrFailed, reason)
}

// isCorrupt reports whether the library calls an error damage.
func isCorrupt(err error) bool {
	return pebble.IsCorruptionError(err) || errors.Is(err, pebble.ErrCorruption)
}

// readError maps the error of a read to ours. After a failure the library misses tables
// that were never written, which looks like damage and is none.
func (e *Engine) readError(err error) error {
	switch {
	case err == nil:
		return nil
	case e.guard.isBroken():
		return fmt.Errorf("%w: %w", ErrFailed, e.guard.err())
	case isCorrupt(err):
		return damage{err: err}
	}
	return err
}

// damage is the [ErrCorrupt] of a file. The name is empty where the library's error has
// it.
type damage struct {
	file string
	err  error
}

// Error is one line, although the library's error may have several, and says how to go
// on.
func (d damage) Error() string {
	return fmt.Sprintf("%v: %s: nothing was changed; restore the directory from a copy, or read what is left with changefeed export --salvage", ErrCorrupt, d.describeDamage())
}

// describeDamage names the file and the damage.
func (d damage) describeDamage() string {
	file := d.file
	if info := pebble.ExtractDataCorruptionInfo(d.err); info != nil && file == "" {
		file = path.Base(info.Path)
	}
	what, _, _ := strings.Cut(strings.TrimPrefix(d.err.Error(), "pebble: "), "\n")
	return strings.TrimPrefix(file+": "+what, ": ")
}

// Unwrap returns the class and the library's error.
func (d damage) Unwrap() []error { return []error{ErrCorrupt, d.err} }

// damaged is the [ErrCorrupt] of a file. A file that the disk does not give is none: the same files may be read another time,
// and whoever is told to restore a copy would lose what was written since.
func damaged(name, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if isOfDisk(err) {
		return fmt.Errorf("%s: %w", name, err)
	}
	return damage{name, err}
}

// isOfDisk reports whether an error is one of the operating system's, other than that there is no such file.
func isOfDisk(err error) bool {
	number, ok := errors.AsType[syscall.Errno](err)
	return ok && number != syscall.ENOENT
}
