package engine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ownerFS is the file system of the machine, on which new files are for their owner
// only: a store holds users' data, and the usual umask lets everybody read.
type ownerFS struct{ vfs.FS }

var machine FS = ownerFS{vfs.Default}

const (
	ownerFile = 0o600
	ownerDir  = 0o700
	others    = 0o077 // permissions that nobody else is to have
)

// Unwrap is the file system below.
func (fs ownerFS) Unwrap() vfs.FS { return fs.FS }

// Create makes a file anew. An existing file is removed first, since it would keep the
// permissions that it has.
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

// MkdirAll makes a directory and its parents.
func (fs ownerFS) MkdirAll(dir string, _ os.FileMode) error { return fs.FS.MkdirAll(dir, ownerDir) }

// Lock makes and locks a file.
func (fs ownerFS) Lock(name string) (io.Closer, error) {
	lock, err := fs.FS.Lock(name)
	if err == nil {
		err = closed(name)
	}
	if err != nil && lock != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return lock, err
}

// closed takes the permissions of others from a file.
func closed(name string) error {
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm()&others == 0 {
		return err
	}
	return os.Chmod(name, info.Mode().Perm()&^others)
}

// closeFiles takes the permissions of others from the files that an earlier version
// made. The directory stays as it is: an operator may have opened it on purpose, for a
// group say.
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

// CheckDir refuses a directory that lacks a store although it must have one, or that
// holds other files: a store made among them would be taken for part of them, and the
// other way round.
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
		return fmt.Errorf("open store %s: %w: it holds other files, want an empty directory or a store", dir, ErrNotStore)
	}
	return nil
}

// makeDir makes a directory and its parents, and syncs every directory that got a new
// name: a power loss would else take a parent, with the store in it.
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

// syncDir brings the names in a directory to the disk.
func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
