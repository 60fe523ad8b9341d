package engine

import "errors"

// The errors of the engine. Package docstore exports them under the same names, and describes them in more detail.
var (
	ErrInUse    = errors.New("directory is in use")
	ErrCorrupt  = errors.New("store is corrupt")
	ErrNotStore = errors.New("not a store")
	ErrFormat   = errors.New("unknown format")
	ErrClosed   = errors.New("store is closed")
	ErrFailed   = errors.New("store has failed")
	ErrDiskFull = errors.New("disk is full")
)
