//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package filelock

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Take takes the lock of a file, which it creates, or fails with [ErrHeld]. Closing ends the lock, and so does the end
// of the process.
func Take(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrHeld
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// TakeTemporary is [Take] for a lock file that Closing also removes. A process that has opened the file before the
// removal locks a file that nobody else can find, so TakeTemporary compares the file with the one at the path, and
// begins anew if they differ.
func TakeTemporary(path string) (io.Closer, error) {
	for {
		lock, err := Take(path)
		if err != nil {
			return nil, err
		}
		isThere, err := isAt(path, lock.(*os.File))
		if isThere {
			return temporary{lock, path}, nil
		}
		if err := errors.Join(err, lock.Close()); err != nil {
			return nil, err
		}
	}
}

// isAt reports whether a file is the one at a path.
func isAt(path string, f *os.File) (bool, error) {
	mine, err := f.Stat()
	if err != nil {
		return false, err
	}
	there, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(mine, there), err
}

// temporary is a lock whose file is removed at its end.
type temporary struct {
	io.Closer
	path string
}

// Close removes the file, and ends the lock after that: later the path may be the lock file of somebody else.
func (t temporary) Close() error { return errors.Join(os.Remove(t.path), t.Closer.Close()) }
