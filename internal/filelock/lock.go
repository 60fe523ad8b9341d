// Package filelock keeps other processes, and other users in this one, from files that have one writer.
package filelock

import "errors"

// ErrHeld: somebody else has the lock.
var ErrHeld = errors.New("lock is held")
