// Package spelling suggests the names that a misspelled name can mean.
package spelling

import "strings"

// Nearest returns the names that a misspelled name can mean, in capitals or small letters: names that begin with it,
// and names at a distance of a third of its length, because every short name is near to some other.
func Nearest(wrong string, names []string) (near []string) {
	const least, third, most = 1, 3, 2
	wrong = strings.ToLower(wrong)
	for _, name := range names {
		right, allowed := strings.ToLower(name), min(max(len(wrong)/third, least), most)
		if len(wrong) > least && (strings.HasPrefix(right, wrong) || distance(wrong, right) <= allowed) {
			near = append(near, name)
		}
	}
	return near
}

// distance returns how many characters must be inserted, removed, replaced or swapped with their neighbour to make one
// text of the other (optimal string alignment).
func distance(a, b string) int {
	var before, above []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, above, row = above, row, make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replaced := above[j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			row[j] = min(above[j]+1, row[j-1]+1, replaced)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
