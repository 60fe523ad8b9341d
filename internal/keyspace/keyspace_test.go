package keyspace

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestEdgesCutInto(t *testing.T) {
	digits := func(first string) string { return first + strings.Repeat("0", hashDigits-len(first)) }
	for _, c := range []struct {
		least, most string
		n           int
		want        []string
	}{
		{"", "FF", 1, nil},
		{"", "FF", 2, []string{digits("2")}}, // hashes end below 40
		{"", "FF", 4, []string{digits("1"), digits("2"), digits("3")}},
		{"10", "20", 2, []string{digits("18")}},
		{digits("1"), digits("1")[:hashDigits-1] + "1", 3, nil}, // too narrow
	} {
		if got := Edges(c.least, c.most, c.n); !slices.Equal(got, c.want) {
			t.Errorf("%q to %q in %d parts: edges %q, want %q", c.least, c.most, c.n, got, c.want)
		}
	}
}

func TestAComponentHasOneText(t *testing.T) {
	for _, c := range []struct {
		component any
		want      string
	}{
		{"<a&b>", `"<a&b>"`},
		{5, "5"},
		{math.Copysign(0, -1), "0"},
		{nil, "null"},
		{true, "true"},
		{[]int{1}, "[]int"},
		{func() {}, "func()"},
	} {
		if got := Text(c.component); got != c.want {
			t.Errorf("%s is written %s, want %s", fmt.Sprintf("%#v", c.component), got, c.want)
		}
	}
}
