package keyspace

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestRangesAreCutIntoEqualParts(t *testing.T) {
	digits := func(first string) string { return first + strings.Repeat("0", hashDigits-len(first)) }
	for _, c := range []struct {
		of   span
		n    int
		want []span
	}{
		{span{"", "FF"}, 1, []span{{"", "FF"}}},
		{span{"", "FF"}, 2, []span{{"", digits("2")}, {digits("2"), "FF"}}}, // hashes end below 40
		{span{"", "FF"}, 4, []span{
			{"", digits("1")},
			{digits("1"), digits("2")},
			{digits("2"), digits("3")},
			{digits("3"), "FF"},
		}},
		{span{"10", "20"}, 2, []span{{"10", digits("18")}, {digits("18"), "20"}}},
		// too narrow
		{
			span{digits("1"), digits("1")[:hashDigits-1] + "1"},
			3,
			[]span{{digits("1"), digits("1")[:hashDigits-1] + "1"}},
		},

		{span{"1F", "1F00"}, 2, []span{{"1F", "1F00"}}}, // has no hash
	} {
		if got := Cut(c.of, c.n); !slices.Equal(got, c.want) {
			t.Errorf("%v in %d parts: %v, want %v", c.of, c.n, got, c.want)
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
		{new(string), "*string"},
		{func() {}, "func()"},
	} {
		if got := Text(c.component); got != c.want {
			t.Errorf("%s is written %s, want %s", fmt.Sprintf("%#v", c.component), got, c.want)
		}
	}
}
