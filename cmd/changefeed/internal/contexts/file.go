package contexts

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace/changefeed/internal/filelock"
	"github.com/millrace/changefeed/internal/pause"
)

// The file is replaced as a whole, under a lock, so that readers see the old or the new contexts, and two commands at
// the same time lose nothing. A file that cannot be read is never replaced.

// version is the version of the file's form.
const version = 1

// How long a command waits for another command that changes the file, and how often it tries.
const (
	lockPatience = 10 * time.Second
	lockRetry    = 10 * time.Millisecond
)

// Read reads a file. A missing file contains no contexts.
func Read(path string) (Contexts, error) {
	// A pipe would block until somebody writes, and a command reads the contexts several times.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return Contexts{}, fmt.Errorf("read contexts: %s is no regular file: want the path of one in $%s", path,
			FileVariable)
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Contexts{Version: version, ByName: map[string]Context{}}, nil
	}
	if err != nil {
		return Contexts{}, fmt.Errorf("read contexts: %w", err)
	}
	// The version comes first, because a later version may have other members.
	var head struct{ Version int }
	if err := json.Unmarshal(text, &head); err != nil {
		return Contexts{}, corruptError(path, text, 0, err)
	}
	if head.Version != version {
		return Contexts{}, fmt.Errorf("contexts in %s have version %d, and this changefeed reads version %d: want the "+
			"changefeed that wrote the file, or another file in $%s", path, head.Version, version, FileVariable)
	}
	var all Contexts
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&all); err != nil {
		return Contexts{}, corruptError(path, text, d.InputOffset(), err)
	}
	if all.ByName == nil {
		all.ByName = map[string]Context{}
	}
	return all, nil
}

// corruptError says where a file is wrong, and the next step.
func corruptError(path string, text []byte, offset int64, err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		offset = syntax.Offset
	} else if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		offset = kind.Offset
	}
	before := text[:min(offset, int64(len(text)))]
	line := 1 + bytes.Count(before, []byte("\n"))
	return fmt.Errorf("contexts in %s cannot be read, line %d, byte %d: %w: correct the file, or move it away to "+
		"begin without contexts", path, line, len(before), withoutValue(err))
}

// withoutValue returns an error that quotes no value of the file, because a value may be a key.
func withoutValue(err error) error {
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s is of the wrong type: want %s", cmp.Or(kind.Field, "the text"), kind.Type)
	}
	return err
}

// Change reads a file, lets f change the contexts, and writes the file. If f fails, the file stays unchanged.
func Change(ctx context.Context, path string, f func(*Contexts) error) (err error) {
	path = behindLinks(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("write contexts: %w", err)
	}
	unlock, err := takeLock(ctx, path+".lock")
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, unlock.Close()) }()
	all, err := Read(path)
	if err != nil {
		return err
	}
	if err := f(&all); err != nil {
		return err
	}
	if err := replaceFile(path, all); err != nil {
		return fmt.Errorf("write contexts: %w", err)
	}
	return nil
}

// takeLock takes the lock of a file, and waits for another command that has the lock.
func takeLock(ctx context.Context, path string) (io.Closer, error) {
	for begun := time.Now(); ; {
		lock, err := filelock.TakeTemporary(path)
		switch {
		case err == nil:
			return lock, nil
		case !errors.Is(err, filelock.ErrHeld) || time.Since(begun) > lockPatience:
			return nil, fmt.Errorf("write contexts: lock %s: %w", path, err)
		case pause.For(ctx, lockRetry) != nil:
			return nil, ctx.Err()
		}
	}
}

// maxLinks is how many links lead to a file at most; with more of them, they lead to each other.
const maxLinks = 40

// behindLinks returns the path to which symbolic links lead, so that the links stay. The file need not exist.
func behindLinks(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	for range maxLinks {
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return path
}

// nextSuffix ends the name of the new file, which then replaces the contexts. The name is always the same, so that the
// next command removes the file of a killed command, which may contain keys.
const nextSuffix = ".next"

// replaceFile writes the contexts beside the file, and renames the new file, which only its owner can read. If the new
// file cannot be written as a whole, the old file stays. The caller has the lock.
func replaceFile(path string, all Contexts) (err error) {
	name := path + nextSuffix
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	next, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(name))
		}
	}()
	e := json.NewEncoder(next)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false) // people read the file
	if err := cmp.Or(e.Encode(all), next.Sync(), next.Close()); err != nil {
		return err
	}
	return os.Rename(name, path)
}
