//go:build !unix

package engine

// descriptorLimit is how many descriptors the process may have; 0 is any number.
func descriptorLimit() int { return 0 }
