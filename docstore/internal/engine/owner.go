package engine

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ownerFS is the file system of the machine, but only the owner can read and write new files. A store contains users'
// data, and with the usual umask everyone could read the files.
type ownerFS struct{ vfs.FS }

var machine FS = ownerFS{vfs.Default}

const (
	ownerFile = 0o600
	ownerDir  = 0o700
	others    = 0o077 // permissions that others must not have
)

// Unwrap returns the underlying file system.
func (fs ownerFS) Unwrap() vfs.FS { return fs.FS }

// Create creates a new file. An existing file is removed first, because an old file would keep its permissions.
func (fs ownerFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, ownerFile)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	return fs.OpenReadWrite(name, category)
}

// MkdirAll creates a directory and its parents.
func (fs ownerFS) MkdirAll(dir string, _ os.FileMode) error { return fs.FS.MkdirAll(dir, ownerDir) }

// locks are the lock files that this process has open. The library knows them by their paths only, and the lock of the
// system is one of the process: it does not keep the process from a second opening by another path, and the end of the
// second opening would end the lock of the first.
var locks struct {
	mu   sync.Mutex
	held []*lock
}

// lock is a lock file that this process has open.
type lock struct {
	io.Closer
	info os.FileInfo
}

// Close ends the lock.
func (l *lock) Close() error {
	locks.mu.Lock()
	defer locks.mu.Unlock()
	locks.held = slices.DeleteFunc(locks.held, func(held *lock) bool { return held == l })
	return l.Closer.Close()
}

// errHeldHere means that this process has the lock of a directory.
var errHeldHere = fmt.Errorf("%w: it is open in this process already", ErrInUse)

// Lock creates and locks a file, unless this process has locked it, by whatever path.
func (fs ownerFS) Lock(name string) (io.Closer, error) {
	locks.mu.Lock()
	defer locks.mu.Unlock()
	isSame := func(info os.FileInfo) func(*lock) bool {
		return func(held *lock) bool { return os.SameFile(held.info, info) }
	}
	if info, err := os.Stat(name); err == nil && slices.ContainsFunc(locks.held, isSame(info)) {
		return nil, errHeldHere
	}
	taken, err := fs.FS.Lock(name)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(name)
	if err = cmp.Or(err, closed(name)); err != nil {
		return nil, errors.Join(err, taken.Close())
	}
	l := &lock{taken, info}
	locks.held = append(locks.held, l)
	return l, nil
}

// closed removes the permissions of others from a file.
func closed(name string) error {
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm()&others == 0 {
		return err
	}
	return os.Chmod(name, info.Mode().Perm()&^others)
}

// closeFiles removes the permissions of others from files that an earlier version created. The directory keeps its
// permissions, because an operator may have opened the directory on purpose, for example for a group.
func closeFiles(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		err := closed(filepath.Join(dir, e.Name()))
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission) {
			return err
		}
	}
	return nil
}

// CheckDir refuses a directory without a store if a store must exist. CheckDir also refuses a directory with other
// files, because a store among them could be mistaken for part of them, and they for part of the store.
func CheckDir(dir string, mustExist bool) error {
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
		return fmt.Errorf("open store %s: %w: it holds other files, want an empty directory or a store", dir,
			ErrNotStore)
	}
	return nil
}

// makeDir creates a directory and its parents, and syncs every directory that got a new name. Otherwise a power loss
// could remove a parent together with the store.
func makeDir(fs vfs.FS, dir string) error {
	var made []string
	for d := fs.PathJoin(dir); ; d = fs.PathDir(d) {
		if _, err := fs.Stat(d); !errors.Is(err, os.ErrNotExist) {
			break
		}
		made = append(made, d)
	}
	if len(made) == 0 {
		return nil
	}
	if err := fs.MkdirAll(dir, ownerDir); err != nil {
		return unusableError{err}
	}
	for _, d := range made {
		if err := syncDir(fs, fs.PathDir(d)); err != nil {
			return unusableError{err}
		}
	}
	return nil
}

// syncDir syncs the names in a directory to the disk.
func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
