//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd || windows)

package filelock

import (
	"errors"
	"io"
)

// Take fails where package syscall has no lock: two processes would write over each other's files.
func Take(string) (io.Closer, error) { return nil, errors.ErrUnsupported }

// TakeTemporary fails as [Take] does.
func TakeTemporary(string) (io.Closer, error) { return nil, errors.ErrUnsupported }
