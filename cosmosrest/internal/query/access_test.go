package query

import (
	"strconv"
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

// Clients abandon queries without a word, and begin new ones.
func TestTheRowsOfSoManyQueriesAreKept(t *testing.T) {
	var r Results
	for i := range maxResults + 1 {
		r.putRows(strconv.Itoa(i), 1, nil)
	}
	if _, queries := r.Kept(); queries != maxResults {
		t.Errorf("the rows of %d queries are kept, want %d", queries, maxResults)
	}
	for name, want := range map[string]bool{"0": false, "1": true, strconv.Itoa(maxResults): true} {
		if _, found := r.getRows(name, 1); found != want {
			t.Errorf("query %s is kept: %v", name, found)
		}
	}
}
