// Package detector tells tests if Go's race detector is on. It makes them five to twenty times slower and looks for one
// kind of defect, which shows in a few rounds of a test as well as in many.
package detector

// Rounds is how many rounds a test plays: all, or fewer with the detector.
func Rounds(all, fewer int) int {
	if On {
		return fewer
	}
	return all
}
