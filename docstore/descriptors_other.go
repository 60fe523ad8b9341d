//go:build !unix

package docstore

// descriptorLimit is how many descriptors the process may have; 0 is any number.
func descriptorLimit() int { return 0 }
