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

// unusableError is the error of a directory that cannot be created, or in which no file can be created. Such an error
// is never damage, whatever reason the system gives: on some systems the reason is a missing file.
type unusableError struct{ error }

// Error describes a directory that would be suitable.
func (e unusableError) Error() string {
	return fmt.Sprintf("the directory cannot be used: %v: want one in which this user can make files", e.error)
}

// Unwrap returns the error of the system.
func (e unusableError) Unwrap() error { return e.error }

// openError maps the library's error to ours. The library exports no sentinel for a locked directory or an unknown
// format, so openError compares texts. A test opens each such directory, so the test fails if the library's next
// version changes a text.
func openError(err error) error {
	text := err.Error()
	switch {
	case errors.Is(err, errHeldHere), strings.Contains(text, "lock held by current process"):
		return errHeldHere
	case strings.Contains(text, "resource temporarily unavailable"):
		return fmt.Errorf("%w: it is open in another process", ErrInUse)
	case errors.Is(err, ErrFormat):
		return err
	case strings.Contains(text, "format major version"):
		return newerFormat(err)
	case errors.Is(err, ErrCorrupt), errors.As(err, new(unusableError)):
		return err
	case isCorrupt(err) || errors.Is(err, os.ErrNotExist):
		return damage{err: err}
	}
	return err
}

// newerFormat is the [ErrFormat] of a store whose files a newer version of the library wrote.
func newerFormat(err error) error {
	return fmt.Errorf("%w: %w: nothing was changed; open the store with the version that wrote it", ErrFormat, err)
}

// openFailure is the error of an open that came to nothing because of the disk, or
// because ctx ended.
func openFailure(ctx context.Context, reason error) error {
	if ctx.Err() != nil && errors.Is(reason, context.Cause(ctx)) || isCorrupt(reason) {
		return reason
	}
	return fmt.Errorf("%w: %w", ErrFailed, reason)
}

// isCorrupt reports whether the library's error means damage.
func isCorrupt(err error) bool {
	return pebble.IsCorruptionError(err) || errors.Is(err, pebble.ErrCorruption)
}

// readError maps the error of a read to ours. After a failure of the disk, the library misses tables that were never
// written. This looks like damage but is not.
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

// damage is the [ErrCorrupt] of a file. The name is empty if the library's error contains the name.
type damage struct {
	file string
	err  error
}

// Error returns one line that also says how to continue. The library's error may have several lines.
func (d damage) Error() string {
	return fmt.Sprintf("%v: %s: nothing was changed; restore the directory from a copy, or read what is left with "+
		"changefeed export --salvage", ErrCorrupt, d.describeDamage())
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

// damaged returns the [ErrCorrupt] of a file. If the disk cannot read a file, the file does not count as damaged: a
// later read may succeed, and an operator who restored a copy would lose the writes since that copy.
func damaged(name, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if isOfDisk(err) {
		return fmt.Errorf("%s: %w", name, err)
	}
	return damage{name, err}
}

// isOfDisk reports whether an error comes from the operating system and does not mean a missing file.
func isOfDisk(err error) bool {
	number, ok := errors.AsType[syscall.Errno](err)
	return ok && number != syscall.ENOENT
}
