//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package deadletters

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// lockFile takes the lock of a file, which ends with the process at the latest.
func lockFile(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, ownerFile)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrInUse
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
