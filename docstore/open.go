package docstore

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// checkDir refuses a directory that lacks a store although it must have one, or that
// holds other files: a store made among them would be taken for part of them, and the
// other way round.
func checkDir(dir string, mustExist bool) error {
	if dir == "" {
		return refuse("name of the directory is empty: want a path, or Options.InMemory")
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return fmt.Errorf("open store %s: %w: it is a file, want a directory", dir, ErrNotStore)
	}
	entries, err := os.ReadDir(dir)
	if mustExist && errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("open store %s: %w: there is no such directory", dir, ErrNotStore)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("open store: %w", err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	store, other := look(names)
	switch {
	case store:
		return nil
	case mustExist:
		return fmt.Errorf("open store %s: %w", dir, ErrNotStore)
	case other:
		return fmt.Errorf("open store %s: %w: it holds other files, want an empty directory or a store", dir, ErrNotStore)
	}
	return nil
}

// unusableError is that of a directory that cannot be made, or in which no file can be made. Nothing in it can be damaged,
// whatever the system calls the reason: in some places it says that a file does not exist.
type unusableError struct{ error }

// Error says which directory would do.
func (e unusableError) Error() string {
	return fmt.Sprintf("the directory cannot be used: %v: want one in which this user can make files", e.error)
}

// Unwrap returns the error of the system.
func (e unusableError) Unwrap() error { return e.error }

// openError maps the engine's error to ours. The engine exports no sentinel for a
// locked directory or an unknown format, so the text decides; a test opens each such
// directory, so a new text is noticed with the engine's next version.
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
