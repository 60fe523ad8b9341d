//go:build !unix

package web

// Descriptors returns 0, because this system does not report how many files may be open.
func Descriptors() int64 { return 0 }
