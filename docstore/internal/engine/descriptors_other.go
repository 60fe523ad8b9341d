//go:build !unix

package engine

// descriptorLimit returns how many descriptors the process may have; 0 means any number.
func descriptorLimit() int { return 0 }
