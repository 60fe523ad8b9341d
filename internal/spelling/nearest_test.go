package spelling

import (
	"slices"
	"testing"
)

func TestANameThatIsNearIsFound(t *testing.T) {
	names := []string{"tail", "serve", "run", "dlq", "export", "container"}
	for wrong, want := range map[string][]string{
		"tial": {"tail"}, "sevre": {"serve"}, "exp": {"export"}, "containr": {"container"}, "runn": {"run"},
		"ls": nil, "rm": nil, "put": nil, "man": nil, "x": nil, "nosuch": nil, "": nil,
	} {
		if got := Nearest(wrong, names); !slices.Equal(got, want) {
			t.Errorf("near %q are %q, want %q", wrong, got, want)
		}
	}
}

func TestADistanceCountsChanges(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"abc", "abc", 0},
		{"", "abc", 3},
		{"abc", "abd", 1},
		{"abc", "acb", 1},
		{"abc", "ac", 1},
		{"ab", "xy", 2},
		{"ab", "bc", 2}, // no swap
	} {
		if got, back := distance(tt.a, tt.b), distance(tt.b, tt.a); got != tt.want || back != tt.want {
			t.Errorf("%q and %q: got %d and %d, want %d", tt.a, tt.b, got, back, tt.want)
		}
	}
}
