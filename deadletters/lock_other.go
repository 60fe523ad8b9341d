//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd || windows)

package deadletters

import (
	"errors"
	"io"
)

// lockFile fails where package syscall has no lock: two processes would write over each
// other's letters.
func lockFile(string) (io.Closer, error) { return nil, errors.ErrUnsupported }
