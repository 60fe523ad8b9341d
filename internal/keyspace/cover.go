package keyspace

import (
	"cmp"
	"slices"
)

// span is a range of keys, from Min to below Max. The functions here take every type of its shape.
type span struct{ Min, Max string }

// Uncovered lists the parts of a range that none of others covers, in their order.
func Uncovered[R ~struct{ Min, Max string }](of R, by []R) (open []R) {
	sorted := slices.SortedFunc(slices.Values(by), func(a, b R) int { return cmp.Compare(span(a).Min, span(b).Min) })
	at, end := span(of).Min, span(of).Max
	for _, r := range sorted {
		part, ok := intersect(span(of), span(r))
		if !ok {
			continue
		}
		if at < part.Min {
			open = append(open, R{at, part.Min})
		}
		at = max(at, part.Max) // a wide range may cover what lies after a narrow one
	}
	if at < end {
		open = append(open, R{at, end})
	}
	return open
}

// Among returns those of the cells that share keys with a range. The cells tile the key space, in their order.
func Among[R ~struct{ Min, Max string }](of R, cells []R) []R {
	first, _ := slices.BinarySearchFunc(cells, span(of).Min, func(cell R, at string) int {
		if span(cell).Max <= at {
			return -1
		}
		return 1
	})
	last, _ := slices.BinarySearchFunc(cells, span(of).Max, func(cell R, end string) int {
		if span(cell).Min < end {
			return -1
		}
		return 1
	})
	return cells[first:max(first, last)]
}

// CutAt cuts ranges at the edges of cells that tile the key space.
func CutAt[R ~struct{ Min, Max string }](ranges, cells []R) (parts []R) {
	for _, r := range ranges {
		for _, cell := range cells {
			if part, ok := intersect(span(r), span(cell)); ok {
				parts = append(parts, R(part))
			}
		}
	}
	return parts
}

// intersect is the part that two ranges share, if they share a key.
func intersect(a, b span) (part span, ok bool) {
	part = span{max(a.Min, b.Min), min(a.Max, b.Max)}
	return part, part.Min < part.Max
}
