//go:build race

package sim

// With the race detector each world takes ten times longer.
const (
	hasDetector    = true
	seedsByDefault = 10
)
