//go:build !race

package detector

// On tells if the race detector is on.
const On = false
