package cosmosrest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Groups in an order are paged like other sorted rows: also if their keys are too long for a continuation, and the rows
// must be computed again for each page.
func TestSortedGroupsComeInPages(t *testing.T) {
	w, _ := newContainer(t, Options{})
	long := strings.Repeat("long ", 200)
	const groups = 7
	for i, text := range []string{"c", "a", "b", "a", "d", "c", "a"} {
		body := fmt.Sprintf(`{"id":"%d","pk":"p","n":%d,"s":"%s%s"}`, i, i%2, long, text)
		w.do(t, "POST", docs, under("p"), body).want(t, http.StatusCreated)
	}
	for query, want := range map[string]string{
		"SELECT RIGHT(c.s, 1) AS id FROM c GROUP BY c.s ORDER BY c.s DESC":           "d c b a",
		"SELECT RIGHT(c.s, 1) AS id, COUNT(1) AS n FROM c GROUP BY c.s ORDER BY c.s": "a b c d",
		"SELECT CONCAT(RIGHT(c.s, 1), ToString(c.n)) AS id FROM c GROUP BY c.s, c.n ORDER BY c.n DESC": "a1 c1 " +
			"a0 b0 c0 d0",
		"SELECT DISTINCT ToString(c.n) AS id FROM c GROUP BY c.s, c.n ORDER BY c.n DESC": "1 0",
		"SELECT TOP 3 RIGHT(c.s, 1) AS id FROM c GROUP BY c.s ORDER BY c.s DESC":         "d c b",
		"SELECT RIGHT(c.s, 1) AS id FROM c GROUP BY c.s ORDER BY c.s OFFSET 1 LIMIT 2":   "b c",
	} {
		var got []string
		for next := ""; ; {
			a := w.ask(t, across("x-ms-documentdb-partitionkeyrangeid", "0", "x-ms-max-item-count", "1",
				"x-ms-continuation", next), query)
			got = append(got, strings.Fields(column(t, a.list(t, "Documents"), "id"))...)
			if next = a.header.Get("x-ms-continuation"); next == "" || len(got) > groups {
				break
			}
			w.restart(t)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

// The service sorts by paths into the document alone. A lenient server also sorts groups by their aggregates.
func TestGroupsAreSortedByAggregatesIfTheServerIsLenient(t *testing.T) {
	const query = "SELECT c.k AS id FROM c GROUP BY c.k ORDER BY COUNT(1) DESC, MIN(c.id)"
	for _, lenient := range []bool{false, true} {
		w, _ := newContainer(t, Options{Lenient: lenient})
		for i, k := range []string{"a", "b", "b", "c", "a", "b", "d"} {
			w.do(t, "POST", docs, under("p"), fmt.Sprintf(`{"id":"%d","pk":"p","k":%q}`, i, k)).want(t, http.StatusCreated)
		}
		a := w.ask(t, across("x-ms-documentdb-partitionkeyrangeid", "0"), query)
		if !lenient {
			if m := a.refused(t, http.StatusBadRequest, "0", "BadRequest"); !strings.Contains(m, "2206") {
				t.Errorf("refused with %s", m)
			}
			continue
		}
		if got := column(t, a.list(t, "Documents"), "id"); got != "b a c d" {
			t.Errorf("groups %s, want b a c d", got)
		}
	}
}
