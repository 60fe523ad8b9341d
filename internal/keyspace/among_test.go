package keyspace

import (
	"fmt"
	"slices"
	"testing"
)

// The cells among which a range lies are those that share keys with the range, wherever it begins and ends.
func TestAmongIsWhatSharesKeys(t *testing.T) {
	type cell struct{ Min, Max string }
	var cells []cell
	edges := []string{"", "10", "20", "28", "30", "FF"}
	for i := range edges[1:] {
		cells = append(cells, cell{edges[i], edges[i+1]})
	}
	points := append(slices.Clone(edges), "05", "10A", "1F", "29", "FE")
	slices.Sort(points)
	for i, from := range points {
		for _, to := range points[i+1:] {
			of := cell{from, to}
			want := slices.DeleteFunc(slices.Clone(cells), func(c cell) bool {
				_, shares := intersect(span(c), span(of))
				return !shares
			})
			if got := Among(of, cells); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("among %v are %v, want %v", of, got, want)
			}
		}
	}
	if got := Among(cell{"30", "30"}, cells); len(got) != 0 {
		t.Errorf("among no keys are %v", got)
	}
}
