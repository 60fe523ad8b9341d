//go:build !race

package sim

const (
	hasDetector    = false
	seedsByDefault = 40
)
