package cosmosrest

import (
	"fmt"
	"strings"
	"testing"
)

// A batch gives its documents one LSN. A page may end between them, and any of them may be written or deleted before
// the next one: the others come once all the same.
func TestPagesWithinABatchShowEachDocumentThatStaysOnce(t *testing.T) {
	key := map[string]string{"x-ms-documentdb-partitionkey": `["p"]`}
	create := func(ids ...string) string {
		var all []string
		for _, id := range ids {
			all = append(all, fmt.Sprintf(`{"operationType":"Create","resourceBody":{"id":%q,"pk":"p"}}`, id))
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	for _, asked := range []string{"", "SELECT * FROM c", "SELECT * FROM c WHERE c.pk = 'p'"} {
		for _, victim := range []string{"a", "b", "c", "d", "e"} {
			for _, deletes := range []bool{false, true} {
				for size := 1; size < 5; size++ {
					w, _ := newContainer(t, Options{})
					headers := map[string]string{
						"x-ms-cosmos-is-batch-request": "True",
						"x-ms-cosmos-batch-atomic":     "True", "x-ms-documentdb-partitionkey": `["p"]`,
					}
					w.do(t, "POST", docs, headers, create("a", "b", "c", "d", "e")).want(t, 200)
					page := func(next string, size int) (ids, more string) {
						h := map[string]string{
							"x-ms-documentdb-partitionkey": `["p"]`,
							"x-ms-max-item-count":          fmt.Sprint(size), "x-ms-continuation": next,
						}
						if asked == "" {
							a := w.do(t, "GET", docs, h, "").want(t, 200)
							return column(t, a.list(t, "Documents"), "id"), a.header.Get("x-ms-continuation")
						}
						a := w.ask(t, across("x-ms-documentdb-partitionkey", `["p"]`, "x-ms-max-item-count",
							fmt.Sprint(size), "x-ms-continuation", next), asked).want(t, 200)
						return column(t, a.list(t, "Documents"), "id"), a.header.Get("x-ms-continuation")
					}
					first, next := page("", size)
					if deletes {
						w.do(t, "DELETE", docs+"/"+victim, key, "").want(t, 204)
					} else {
						w.do(t, "PUT", docs+"/"+victim, key, fmt.Sprintf(`{"id":%q,"pk":"p","n":2}`, victim)).want(t,
							200)
					}
					rest, _ := page(next, 100)
					for _, id := range []string{"a", "b", "c", "d", "e"} {
						if n := strings.Count(first+" "+rest, id); id != victim && n != 1 ||
							id == victim && (n > 2 || n == 0 && !deletes) {
							t.Errorf("%q in pages of %d, %s is written (deleted %v) after the first: %s | %s", asked,
								size, victim, deletes, first, rest)
						}
					}
				}
			}
		}
	}
}

// Numbers that are out of range are sorted, and a page may end at them.
func TestAPageMayEndAtANumberOutOfRange(t *testing.T) {
	w, _ := newContainer(t, Options{Lenient: true})
	for i, n := range []string{"1", "-1e400", "1e400", `"x"`, "2e400"} {
		w.item(t, string(rune('a'+i)), `,"n":`+n)
	}
	for query, want := range map[string]string{
		"SELECT c.id FROM c ORDER BY c.n":            "b a c e d",
		"SELECT c.id FROM c ORDER BY c.n DESC":       "d e c a b",
		"SELECT MIN(c.id) AS id FROM c GROUP BY c.n": "b a c d",
	} {
		got := w.pages(t, "POST", across("x-ms-documentdb-partitionkeyrangeid", "0", "x-ms-max-item-count", "1"), query)
		if got = strings.ReplaceAll(got, "|", " "); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

// The place of a row of a DISTINCT is none among the rows of an aggregate.
func TestAPlaceOfADistinctIsNoneOfAnAggregate(t *testing.T) {
	w := ties(t)
	_, next := w.last(t, "SELECT DISTINCT c.id FROM c", 2)
	for query, status := range map[string]int{
		"SELECT VALUE COUNT(1) FROM c": 400, "SELECT VALUE SUM(c.n) FROM c": 400, "SELECT c.n FROM c GROUP BY c.n": 400,
		"SELECT DISTINCT c.id FROM c WHERE c.n > 0": 200,
	} {
		w.ask(t, across("x-ms-documentdb-partitionkeyrangeid", "0", "x-ms-continuation", next), query).want(t, status)
	}
}
