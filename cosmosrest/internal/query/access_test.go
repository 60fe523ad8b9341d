package query

import (
	"strings"
	"testing"
)

func TestCommonPrefix(t *testing.T) {
	for _, test := range []struct{ ids, want string }{
		{"", ""}, {"ab", "ab"}, {"ab1 ab2 abc", "ab"}, {"ab1 ab2 c", ""}, {"a ab abc", "a"}, {"ax bx", ""},
	} {
		if got := commonPrefix(strings.Fields(test.ids)); got != test.want {
			t.Errorf("of %s: %q, want %q", test.ids, got, test.want)
		}
	}
}
