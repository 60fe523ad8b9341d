package balance

import (
	"cmp"
	"slices"
)

// Parts decides into how many parts each lease is cut, so that there are least leases. widths are the widths of the
// ranges of the leases, in the order of the ranges. Each further part goes to the lease whose parts are the widest so
// far, and of equal ones to the first (the highest averages method, d'Hondt 1878).
//
// Each owner cuts only its own leases, and may see that others have cut theirs already. This changes nothing for the
// leases that are still whole: the new parts are not wider than the parts that are still to be made.
func Parts(widths []float64, least int) []int {
	parts, total := make([]int, len(widths)), 0.0
	for i, width := range widths {
		parts[i], total = 1, total+width
	}
	further := least - len(widths)
	if further <= 0 {
		return parts
	}
	type cut struct {
		lease int
		width float64 // of the parts before the cut
	}
	var cuts []cut
	narrowest := total / float64(least+1) // there are enough cuts of parts that are not narrower
	for i, width := range widths {
		for n := 1; width > 0 && width/float64(n) >= narrowest; n++ {
			cuts = append(cuts, cut{i, width / float64(n)})
		}
	}
	slices.SortStableFunc(cuts, func(a, b cut) int { return cmp.Compare(b.width, a.width) })
	for _, c := range cuts[:min(further, len(cuts))] {
		parts[c.lease]++
	}
	return parts
}
