package cosmosrest

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cosmosrest/internal/wire"
)

// ties is a container with four documents of one key in one range that sort the same by n,
// two by two, and arrays to join.
func ties(t *testing.T) *world {
	t.Helper()
	w, _ := newContainer(t, Options{Lenient: true})
	for i, n := range []string{"1", "2", "1", "2"} {
		w.item(t, string(rune('a'+i)), `,"n":`+n+`,"xs":[{"x":1},{"x":2}]`)
	}
	return w
}

// last is the place where a page of so many rows ended.
func (w *world) last(t *testing.T, query string, rows int, headers ...string) (ids, next string) {
	t.Helper()
	a := w.ask(t, across(append([]string{
		"x-ms-documentdb-partitionkeyrangeid", "0", "x-ms-max-item-count",
		fmt.Sprint(rows),
	}, headers...)...), query)
	return column(t, a.list(t, "Documents"), "id"), a.header.Get("x-ms-continuation")
}

// A client may take the word that another page follows for a row, and then never ends.
func TestALastPageThatIsFullHasNoContinuation(t *testing.T) {
	w := ties(t)
	for query, rows := range map[string]int{
		"SELECT * FROM c":                                 4,
		"SELECT * FROM c WHERE c.n = 1":                   2,
		"SELECT c.id FROM c JOIN x IN c.xs":               8,
		"SELECT * FROM c WHERE c.pk = 'p'":                4,
		"SELECT * FROM c WHERE c.pk = 'p' AND c.id = 'a'": 1,
		"SELECT * FROM c ORDER BY c.n":                    4,
		"SELECT TOP 3 * FROM c":                           3,
		"SELECT TOP 9 * FROM c":                           4,
		"SELECT * FROM c OFFSET 1 LIMIT 3":                3,
		"SELECT VALUE COUNT(1) FROM c":                    1,
		"SELECT c.n AS id FROM c GROUP BY c.n":            2,
		"SELECT DISTINCT c.n AS id FROM c":                2,
		"SELECT DISTINCT VALUE c.n FROM c ORDER BY c.n":   2,
	} {
		for _, key := range []string{"", `["p"]`} {
			a := w.ask(t, across("x-ms-documentdb-partitionkeyrangeid", "0", "x-ms-documentdb-partitionkey", key,
				"x-ms-max-item-count", fmt.Sprint(rows)), query).want(t, 200)
			if n, next := a.header.Get("x-ms-item-count"), a.header.Get("x-ms-continuation"); n != fmt.Sprint(rows) ||
				next != "" {
				t.Errorf("%s: a page of %s rows and the continuation %q, want all %d and none", query, n, next, rows)
			}
		}
	}
	for _, key := range []string{"", `["p"]`} {
		headers := map[string]string{"x-ms-max-item-count": "4", "x-ms-documentdb-partitionkey": key}
		if got := w.pages(t, "GET", headers, ""); got != "a b c d" {
			t.Errorf("the feed has %s, want one page", got)
		}
	}
	w.do(t, "POST", "/dbs/db/colls", nil,
		`{"id":"b","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}`).want(t, 201)
	a := w.do(t, "POST", "/dbs/db/colls", across("x-ms-max-item-count", "1"),
		`{"query":"SELECT * FROM r WHERE r.id = 'b'"}`).want(t, 200)
	if next := a.header.Get("x-ms-continuation"); next != "" {
		t.Errorf("the only container that a query finds has another page after it: %q", next)
	}
	changes := w.do(t, "GET", docs, map[string]string{"A-IM": "Incremental feed", "x-ms-max-item-count": "4"},
		"").want(t, 200)
	if changes.header.Get("etag") == "" {
		t.Error("a full page of the change feed has no ETag to go on from")
	}
}

func TestAFullPageOfAQueryThroughTheGatewayHasAnEmptyOneAfterIt(t *testing.T) {
	w := ties(t)
	headers := across("x-ms-max-item-count", "2")
	var pages []string
	for next := "-"; next != "" && len(pages) < 5; {
		a := w.ask(t, headers, "SELECT * FROM c").want(t, 200)
		pages = append(pages, a.header.Get("x-ms-item-count"))
		next = a.header.Get("x-ms-continuation")
		headers["x-ms-continuation"] = next
	}
	if got := strings.Join(pages, " "); got != "2 2 0" {
		t.Errorf("the pages have %s rows, want 2 2 0", got)
	}
}

// Such a filter leaves one partition, whose pages the gateway passes on as they are.
func TestAFullPageOfOneKeyIsTheLast(t *testing.T) {
	w := ties(t)
	if got := w.pages(t, "POST", across("x-ms-max-item-count", "2"),
		"SELECT * FROM c WHERE c.pk = 'p'"); got != "a b|c d" {
		t.Errorf("pages are %s, want none after c d", got)
	}
}

// A query that has some rows of a document has it, as far as a feed of whole documents is concerned.
func TestAFeedGoesOnBehindTheDocumentWhoseRowsAQueryHas(t *testing.T) {
	w := ties(t)
	had, next := w.last(t, "SELECT c.id FROM c JOIN x IN c.xs", 3)
	got := column(t, w.do(t, "GET", docs, map[string]string{"x-ms-continuation": next}, "").list(t, "Documents"), "id")
	if had != "a a b" || got != "c d" {
		t.Errorf("after the rows of %s the feed has %s, want c d", had, got)
	}
}

func TestAContinuationHoldsUnderAnotherText(t *testing.T) {
	w := ties(t)
	for _, test := range []struct {
		first string
		rows  int
		had   string
		next  string
		want  string
	}{
		{"SELECT * FROM c WHERE (true) ORDER BY c.n", 3, "a c b", "SELECT * FROM c WHERE (c.n >= 2) ORDER BY c.n", "d"},
		{"SELECT * FROM c ORDER BY c.n DESC", 1, "d", "SELECT c.id FROM c WHERE c.id != 'b' ORDER BY c.n DESC", "c a"},
		{"SELECT TOP 3 * FROM c ORDER BY c.n", 1, "a", "SELECT TOP 3 * FROM c WHERE c.n = 1 ORDER BY c.n", "c"},
		{"SELECT TOP 3 * FROM c ORDER BY c.n", 2, "a c", "SELECT TOP 3 * FROM c WHERE c.n > 0 ORDER BY c.n", "b"},
		{
			"SELECT * FROM c ORDER BY c.n OFFSET 1 LIMIT 2", 1, "c",
			"SELECT * FROM c WHERE c.n > 0 ORDER BY c.n OFFSET 1 LIMIT 2", "b",
		},
		{
			"SELECT c.id FROM c JOIN x IN c.xs ORDER BY x.x DESC, c.n", 3, "c a d",
			"SELECT c.id FROM c JOIN x IN c.xs WHERE c.id != 'd' ORDER BY x.x DESC, c.n", "b c a b",
		},
		{"SELECT c.id FROM c JOIN x IN c.xs", 3, "a a b", "SELECT c.id FROM c JOIN x IN c.xs WHERE x.x = 2", "b c d"},
		{"SELECT * FROM c", 1, "a", "SELECT ToString(COUNT(1)) AS id FROM c WHERE c.n > 0", "3"},
		{
			"SELECT DISTINCT ToString(c.n) AS id FROM c", 1, "1",
			"SELECT DISTINCT ToString(c.n) AS id FROM c WHERE c.id != 'x'", "2",
		},
		{
			"SELECT ToString(c.n) AS id FROM c GROUP BY ToString(c.n)", 1, "1",
			"SELECT ToString(c.n) AS id FROM c WHERE c.n > 0 GROUP BY ToString(c.n)", "2",
		},
		{"SELECT * FROM c WHERE c.pk = 'p'", 2, "a b", "SELECT * FROM c", "c d"},
	} {
		had, next := w.last(t, test.first, test.rows)
		if had != test.had {
			t.Errorf("%s: the first page has %s, want %s", test.first, had, test.had)
			continue
		}
		if got, _ := w.last(t, test.next, 100, "x-ms-continuation", next); got != test.want {
			t.Errorf("%s after %d rows of %s: %s, want %s", test.next, test.rows, test.first, got, test.want)
		}
	}
}

func TestAContinuationOfAnotherOrderIsRefused(t *testing.T) {
	w := ties(t)
	_, next := w.last(t, "SELECT * FROM c ORDER BY c.n", 1)
	for _, query := range []string{
		"SELECT * FROM c", "SELECT * FROM c ORDER BY c.n DESC", "SELECT * FROM c ORDER BY c.id",
		"SELECT * FROM c ORDER BY c.n, c.id",
		"SELECT VALUE COUNT(1) FROM c", "SELECT c.n FROM c GROUP BY c.n", "SELECT DISTINCT c.n FROM c",
		"SELECT * FROM (SELECT * FROM c ORDER BY c.n) AS s",
	} {
		m := w.ask(t, across("x-ms-documentdb-partitionkeyrangeid", "0", "x-ms-continuation", next), query).refused(t,
			400, "0", "BadRequest")
		if !strings.Contains(m, "x-ms-continuation") || !strings.Contains(m, next[:10]) {
			t.Errorf("%s: %s: want it to name the continuation", query, m)
		}
	}
	w.do(t, "GET", docs, map[string]string{"x-ms-continuation": next}, "").refused(t, 400, "0", "BadRequest")
}

// The fields of another version of the server may mean something else.
func TestAContinuationOfAnotherVersionIsRefused(t *testing.T) {
	w := ties(t)
	_, next := w.last(t, "SELECT * FROM c", 1)
	token, err := base64.RawURLEncoding.DecodeString(next)
	if err != nil {
		t.Fatal(err)
	}
	token[0]++
	other := base64.RawURLEncoding.EncodeToString(token)
	headers := across("x-ms-documentdb-partitionkeyrangeid", "0", "x-ms-continuation", other)
	w.ask(t, headers, "SELECT * FROM c").refused(t, 400, "0", "BadRequest")
}

func TestAContinuationOfImpossibleNumbersIsRefused(t *testing.T) {
	w := ties(t)
	for query, members := range map[string][]string{
		"SELECT * FROM c ORDER BY c.n": {`"n":-1`, `"o":-1`, `"t":-1`},
		"SELECT * FROM c":              {`"s":[{"e":"FF","a":-1}]`, `"s":[{"e":"FF","a":1,"d":1,"r":-2}]`},
	} {
		_, next := w.last(t, query, 1)
		text, ok := wire.DecodeContinuation(next)
		if !ok {
			t.Fatalf("%s is no continuation", next)
		}
		for _, member := range members { // the last of two counts
			wrong := wire.EncodeContinuation([]byte(strings.TrimSuffix(string(text), "}") + "," + member + "}"))
			headers := across("x-ms-documentdb-partitionkeyrangeid", "0", "x-ms-continuation", wrong)
			w.ask(t, headers, query).refused(t, 400, "0", "BadRequest")
		}
	}
}

// The value of a parameter that rows are sorted by is part of their order.
func TestAContinuationOfAnotherParameterIsRefused(t *testing.T) {
	w := ties(t)
	const query = "SELECT * FROM c ORDER BY c.n * @sign"
	h := across("x-ms-documentdb-partitionkeyrangeid", "0", "x-ms-max-item-count", "1")
	h["x-ms-continuation"] = w.ask(t, h, query, "@sign", "1").want(t, 200).header.Get("x-ms-continuation")
	w.ask(t, h, query, "@sign", "1").want(t, 200)
	w.ask(t, h, query, "@sign", "-1").refused(t, 400, "0", "BadRequest")
}

// The rows of a filter are told by the ids and xs of documents that are sorted by n.
func TestAResumeFilterLeavesOutWhatTheClientHas(t *testing.T) {
	w := ties(t)
	rid := func(id string) string {
		_, row := w.do(t, "GET", docs+"/"+id, under("p"), ""), struct {
			RID string `json:"_rid"`
		}{}
		w.do(t, "GET", docs+"/"+id, under("p"), "").into(t, &row)
		return row.RID
	}
	const up, down, join = "SELECT * FROM c ORDER BY c.n", "SELECT * FROM c ORDER BY c.n DESC",
		"SELECT c.id, x.x FROM c JOIN x IN c.xs ORDER BY c.n DESC, x.x"
	for _, test := range []struct{ query, filter, want string }{
		{up, `"value":[1],"exclude":true`, "b d"},
		{up, `"value":[1],"exclude":false`, "a c b d"},
		{up, `"value":[1],"rid":"` + rid("a") + `","exclude":false`, "a c b d"},
		{up, `"value":[1],"rid":"` + rid("c") + `","exclude":false`, "c b d"},
		{up, `"value":[2],"rid":"` + rid("c") + `"`, "d"},
		{up, `"value":[1.5],"exclude":false`, "b d"},
		{up, `"value":["x"]`, ""},
		{up, `"value":[[]]`, "a c b d"},
		{up, `"value":[null],"exclude":true`, "a c b d"},
		{down, `"value":[[]]`, ""},
		{down, `"value":[2],"rid":"` + rid("b") + `","exclude":false`, "b c a"},
		{down, `"value":[2],"exclude":true`, "c a"},
		{join, `"value":[2,2],"exclude":true`, "c a c a"},
		{join, `"value":[2,2],"rid":"` + rid("b") + `"`, "b c a c a"},
	} {
		body := fmt.Sprintf(`{"query":%q,"resumeFilter":{%s}}`, test.query, test.filter)
		a := w.do(t, "POST", docs, across("x-ms-documentdb-partitionkeyrangeid", "0"), body)
		if got := column(t, a.list(t, "Documents"), "id"); got != test.want {
			t.Errorf("%s with %s: %s, want %s", test.query, test.filter, got, test.want)
		}
	}
}

func TestOfATokenAndAResumeFilterTheLaterPlaceCounts(t *testing.T) {
	w := ties(t)
	const query = "SELECT * FROM c ORDER BY c.n"
	for rows, want := range map[int]string{1: "b d", 3: "d"} {
		_, next := w.last(t, query, rows)
		body := fmt.Sprintf(`{"query":%q,"resumeFilter":{"value":[1],"exclude":true}}`, query)
		a := w.do(t, "POST", docs, across("x-ms-documentdb-partitionkeyrangeid", "0", "x-ms-continuation", next), body)
		if got := column(t, a.list(t, "Documents"), "id"); got != want {
			t.Errorf("after %d rows: %s, want %s", rows, got, want)
		}
	}
}

func TestResumeFiltersThatCannotBeReadAreRefused(t *testing.T) {
	w := ties(t)
	for _, test := range []struct{ query, filter, names string }{
		{"SELECT * FROM c", `{"value":[1]}`, "resumeFilter"},
		{"SELECT c.n FROM c GROUP BY c.n", `{"value":[1]}`, "resumeFilter"},
		{"SELECT * FROM c ORDER BY c.n", `{"value":[]}`, "want 1"},
		{"SELECT * FROM c ORDER BY c.n", `{"value":[1,2]}`, "2 sort values"},
		{"SELECT * FROM c ORDER BY c.n", `{}`, "want 1"},
		{"SELECT * FROM c ORDER BY c.n", `{"value":[[1]]}`, "[1]"},
		{"SELECT * FROM c ORDER BY c.n", `{"value":[{"type":"map","low":1,"high":2}]}`, "map"},
		{"SELECT * FROM c ORDER BY c.n", `{"value":[{"low":"x"}]}`, "low"},
		{"SELECT * FROM c ORDER BY c.n", `{"value":[1],"rid":"x"}`, "resumeFilter.rid"},
		{"SELECT * FROM c ORDER BY c.n", `"x"`, "body"},
	} {
		body := fmt.Sprintf(`{"query":%q,"resumeFilter":%s}`, test.query, test.filter)
		if m := w.do(t, "POST", docs, across("x-ms-documentdb-partitionkeyrangeid", "0"), body).refused(t, 400, "0",
			"BadRequest"); !strings.Contains(m, test.names) {
			t.Errorf("%s with %s: %q does not name %s", test.query, test.filter, m, test.names)
		}
	}
}

// SDKs merge rows that sort the same in the order of resource ids, which grow.
func TestRowsThatSortTheSameComeInTheOrderOfCreation(t *testing.T) {
	w, cont := newContainer(t, Options{Lenient: true})
	upsert(t, cont, "p/z", "p/m", "p/a", "p/z") // the first is written again
	for query, want := range map[string]string{
		"SELECT * FROM c ORDER BY c.pk":                "z m a",
		"SELECT * FROM c ORDER BY c.pk DESC":           "a m z",
		"SELECT * FROM c ORDER BY c.pk, c.none DESC":   "z m a",
		"SELECT DISTINCT c.id FROM c":                  "z m a",
		"SELECT * FROM c ORDER BY [c.pk, 1], {'a':[]}": "z m a",
	} {
		if got, _ := w.last(t, query, 10); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

// A continuation has no room for long strings. The document with the row is looked for; if
// it is gone, rows whose strings begin alike come again, and the query ends.
func TestPagesGoOnAtStringsThatAreTooLongForAContinuation(t *testing.T) {
	for _, gone := range []bool{false, true} {
		for _, query := range []string{
			"SELECT * FROM c ORDER BY c.s", "SELECT * FROM c ORDER BY c.s DESC, c.t, c.s",
			"SELECT * FROM c ORDER BY c.t DESC, c.id, c.s DESC",
		} {
			w, cont := newContainer(t, Options{Lenient: true})
			long := strings.Repeat(`\u0001`, 500)
			if gone { // and characters of two bytes, in one of which it is cut
				long = "x" + strings.Repeat("é", 500)
			}
			for i := range 6 {
				w.item(t, fmt.Sprint(i), fmt.Sprintf(`,"s":"%s%d","t":"%s"`, long, i*7%6, long))
			}
			seen := map[string]int{}
			for next, page := "", 0; page == 0 || next != ""; page++ {
				var ids string
				if ids, next = w.last(t, query, 2, "x-ms-continuation", next); len(next) > 1024 {
					t.Fatalf("%s: the continuation has %d bytes", query, len(next))
				}
				for id := range strings.FieldsSeq(ids) {
					seen[id]++
				}
				w.restart(t) // and so without the rows that were kept
				if rows := strings.Fields(ids); gone && page == 1 {
					if err := cont.Delete(t.Context(), `["p"]`, rows[1], ""); err != nil {
						t.Fatal(err)
					}
				}
				if page > 10 {
					t.Fatalf("%s has no end", query)
				}
			}
			for id := range 6 {
				if n := seen[fmt.Sprint(id)]; n == 0 || n > 1 && !gone {
					t.Errorf("%s: item %d came %d times", query, id, n)
				}
			}
		}
	}
}

// The documents among which a row is looked for are read, too.
func TestToLookForARowIsCharged(t *testing.T) {
	w, _ := newContainer(t, Options{})
	for _, id := range []string{"a", "b", "c"} {
		w.item(t, id, `,"s":"`+strings.Repeat("long", 200)+id+`"`)
	}
	const query = "SELECT * FROM c ORDER BY c.s"
	_, next := w.last(t, query, 1)
	w.restart(t) // and so without the rows that were kept
	a := w.ask(t, across("x-ms-documentdb-partitionkeyrangeid", "0", "x-ms-continuation", next), query).want(t, 200)
	if n := a.read(t); n <= 3 {
		t.Errorf("%d documents were read, want the three that are sorted and those before", n)
	}
}

// Keys of version 1 that begin with the same 100 characters share their place in the key
// space, so a page cannot end between them.
func TestKeysWithOnePlaceArePagedTogether(t *testing.T) {
	w := newWorld(t, Options{})
	cont := w.create(t, "db", `{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash"}}`, nil)
	long := strings.Repeat("x", 200)
	upsert(t, cont, long+"a/1", long+"b/2", long+"a/3", long+"b/4", "other/5", long+"a/6")
	query := fmt.Sprintf("SELECT * FROM c WHERE c.pk IN ('%sa', '%sb', 'other')", long, long)
	for _, size := range []string{"1", "2", "3", "6"} {
		if got := w.pages(t, "POST", across("x-ms-max-item-count", size),
			query); sortedWords(got) != sortedWords("1 2 3 4 5 6") {
			t.Errorf("pages of %s are %s", size, got)
		}
	}
}

// After a split, the row where the page ended is in one of the ranges, and both need it.
func TestPagesGoOnAtLongStringsInBothRangesOfASplit(t *testing.T) {
	w, cont := newContainer(t, Options{})
	for i := range 12 {
		if _, err := cont.Upsert(t.Context(), fmt.Appendf(nil, `{"id":"%d","pk":"k%d","s":"%s%02d"}`, i, i,
			strings.Repeat("long", 200), i)); err != nil {
			t.Fatal(err)
		}
	}
	const query = "SELECT * FROM c ORDER BY c.s"
	had, next := w.last(t, query, 5)
	parts, err := cont.Split(t.Context(), "0")
	if err != nil {
		t.Fatal(err)
	}
	w.restart(t) // and so without the rows that were kept
	for _, part := range parts {
		rest, _ := w.last(t, query, 50, "x-ms-continuation", next, "x-ms-documentdb-partitionkeyrangeid", part.ID)
		had += " " + rest
	}
	if sortedWords(had) != sortedWords("0 1 2 3 4 5 6 7 8 9 10 11") {
		t.Errorf("the pages have %s, want each once", had)
	}
}

// Of equal rows the one of the oldest document has the place, whichever is read first.
func TestADistinctRowKeepsItsPlaceWhenADocumentIsWrittenAgain(t *testing.T) {
	w, cont := newContainer(t, Options{})
	docs := []string{`{"id":"a","pk":"p","v":"x"}`, `{"id":"b","pk":"p","v":"y"}`, `{"id":"c","pk":"p","v":"x"}`}
	for _, body := range docs {
		if _, err := cont.Upsert(t.Context(), []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	const query = "SELECT DISTINCT c.v AS id FROM c"
	first, next := w.last(t, query, 1)
	if _, err := cont.Upsert(t.Context(), []byte(docs[0])); err != nil {
		t.Fatal(err)
	}
	w.restart(t) // and so without the rows that were kept
	if rest, _ := w.last(t, query, 5, "x-ms-continuation", next); first != "x" || rest != "y" {
		t.Errorf("pages are %s and %s, want x and y", first, rest)
	}
}

// The Python SDK's tests go on from a token that the service once gave for a container of another account, and want
// rows on every page.
func TestATokenOfTheServiceBeginsAnew(t *testing.T) {
	w, cont := newContainer(t, Options{})
	upsert(t, cont, "p/a", "p/b", "q/c")
	const token = "-RID:~a0NPAOszCpOChB4AAAAAAA==#RT:1#TRC:2#ISV:2#IEO:65567#QCF:8"
	for method, headers := range map[string]map[string]string{
		"POST": across("x-ms-continuation", token), "GET": {"x-ms-continuation": token},
	} {
		first := w.do(t, method, docs, headers, `{"query":"SELECT * FROM c"}`).want(t, http.StatusOK)
		if n := len(first.list(t, "Documents")); n != 3 {
			t.Errorf("%s: %d documents, want 3", method, n)
		}
	}
	for _, wrong := range []string{"-RID:", "-RID:~a#", "-RID:~a#RT", token[1:], token + "#"} {
		w.ask(t, across("x-ms-continuation", wrong), "SELECT * FROM c").refused(t, http.StatusBadRequest, "0",
			"BadRequest")
	}
}
