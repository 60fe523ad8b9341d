package function

import "strings"

// nearest returns the known name that a misspelled name most likely means, or "" if none is near: at most a third of
// its letters differ, or one of the two begins with the other.
func nearest(wrong string, known []string) (near string) {
	const third, short = 3, 3
	wrong = strings.ToLower(wrong)
	least := len(wrong)/third + 1
	for _, name := range known {
		right := strings.ToLower(name)
		d := distance(wrong, right)
		if min(len(wrong), len(right)) > short && (strings.HasPrefix(wrong, right) || strings.HasPrefix(right, wrong)) {
			d = min(d, 1)
		}
		if d < least {
			near, least = name, d
		}
	}
	return near
}

// distance returns how many letters must be inserted, removed or replaced to make one text of the other.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		above := row
		row = make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replaced := above[j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			row[j] = min(above[j]+1, row[j-1]+1, replaced)
		}
	}
	return row[len(b)]
}
