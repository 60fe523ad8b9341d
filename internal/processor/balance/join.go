package balance

import (
	"cmp"
	"slices"
)

// Grid returns how many leases a new unit has: each partition is cut into equally many parts, so that there are at
// least as many leases as the instances ask for.
func Grid(partitions, least int) int {
	partitions = max(1, partitions)
	return partitions * max(1, (least+partitions-1)/partitions)
}

// Joins decides which leases are joined with the next lease, so that no more leases than most are left, and returns
// the indexes of the first leases of the pairs. widths are the widths of the ranges of the leases, in the order of the
// ranges. homes says which partition contains each lease; leases of different partitions are not joined, and neither
// is a lease with a home below 0, such as one that cannot be joined. The narrowest pairs are joined, and of equal ones
// the first. A lease is in one pair at most, so several calls may be necessary until no more than most leases are left.
//
// The decision does not depend on who decides, so instances with the same view choose the same pairs, and never join
// more leases than there are too many.
func Joins(widths []float64, homes []int, most int) (pairs []int) {
	var all []int
	for i := 1; i < len(widths); i++ {
		if homes[i] >= 0 && homes[i] == homes[i-1] {
			all = append(all, i-1)
		}
	}
	width := func(i int) float64 { return widths[i] + widths[i+1] }
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(width(a), width(b)) })
	paired := make([]bool, len(widths))
	for _, i := range all {
		if len(widths)-len(pairs) > most && !paired[i] && !paired[i+1] {
			paired[i], paired[i+1] = true, true
			pairs = append(pairs, i)
		}
	}
	return pairs
}
