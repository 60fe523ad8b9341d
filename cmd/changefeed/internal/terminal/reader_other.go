//go:build !linux

package terminal

// hasNoReader reports whether the reading end of a pipe has been closed, if the system can tell.
func hasNoReader(uintptr) bool { return false }
