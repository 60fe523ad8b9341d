package filelock

import (
	"errors"
	"io"
	"os"
	"syscall"
)

const sharingViolation syscall.Errno = 32

// Take opens a file that nobody else can open meanwhile, which it creates, or fails with [ErrHeld]. Closing ends
// that, and so does the end of the process.
func Take(path string) (io.Closer, error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	h, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil, syscall.OPEN_ALWAYS,
		syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, sharingViolation) {
		return nil, ErrHeld
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(h), path), nil
}

// TakeTemporary is [Take] for a file that Closing also removes.
func TakeTemporary(path string) (io.Closer, error) {
	lock, err := Take(path)
	if err != nil {
		return nil, err
	}
	return temporary{lock, path}, nil
}

// temporary is a lock whose file is removed at its end.
type temporary struct {
	io.Closer
	path string
}

// Close ends the lock and then removes the file, because the system removes no file that is open like this.
func (t temporary) Close() error {
	err := t.Closer.Close()
	_ = os.Remove(t.path) // if somebody else has the lock since, the file stays
	return err
}
