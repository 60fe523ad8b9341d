package sql

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// run returns the rows that a query makes of documents, a line each.
func run(t *testing.T, query string, docs []string, params ...Parameter) (string, error) {
	t.Helper()
	q, err := Parse(query)
	if err != nil {
		return "", err
	}
	b, err := q.Bind(params)
	if err != nil {
		return "", err
	}
	var rows []string
	if b.Streams() {
		for _, d := range docs {
			doc := []byte(d)
			err := b.Rows(doc, func(row []byte) error {
				rows = append(rows, string(row))
				return nil
			})
			if clear(doc); err != nil { // the caller uses its bytes again
				return "", err
			}
		}
		offset, limit := b.Limit()
		rows = rows[min(int(offset), len(rows)):]
		if limit >= 0 {
			rows = rows[:min(int(limit), len(rows))]
		}
		return strings.Join(rows, "\n"), nil
	}
	r := b.NewRun()
	for _, d := range docs {
		doc := []byte(d)
		err := r.Add(doc)
		if clear(doc); err != nil { // the caller uses its bytes again
			return "", err
		}
	}
	out, err := r.Finish()
	for _, row := range out {
		rows = append(rows, string(row.JSON))
	}
	return strings.Join(rows, "\n"), err
}

func TestPointFilter(t *testing.T) {
	docs := []string{`{"id":"1", "x":"a"}`, `{"id":"2","x":5}`, `{"id":"3"}`}
	got, err := run(t, "SELECT * FROM c WHERE c.x = @p", docs, Parameter{"@p", []byte(`"a"`)})
	if err != nil || got != docs[0] {
		t.Errorf("got %q, %v", got, err)
	}
}

var families = []string{
	`{"id":"1", "pk":"a", "n": 3,   "tags":["x","y"], "kids":[{"name":"Ann","pets":[{"p":"cat"}]},{"name":"Bob"}]}`,
	`{"id":"2", "pk":"b", "n": 1.0, "tags":[], "name":"two"}`,
	`{"id":"3", "pk":"a", "n": "s", "tags":["y"], "name":"Three"}`,
	`{"id":"4", "pk":"b"}`,
	`{"id":"5", "pk":"a", "n": null, "tags":["x"], "kids":[{"name":"Cid"}]}`,
	`{"id":"6", "pk":"a", "n": 1,   "name":"two"}`,
}

var queries = []struct{ query, want string }{
	{"SELECT * FROM c WHERE c.id = '4'", families[3]},
	{"select * from docs c where c.id = '4'", families[3]},
	{"SELECT * FROM root WHERE root.id = '4' -- that one", families[3]},
	{
		"SELECT VALUE [1, 'a', -2, null, @two, +3, - 4, c.id, [], [true, [-0.5]]] FROM c WHERE c.id IN ('1', -1, '9')",
		`[1,"a",-2,null,2,3,-4,"1",[],[true,[-0.5]]]`,
	},
	{"SELECT * -- all\nFROM root AS r WHERE r.id IN ('4')", families[3]},
	{
		"SELECT c.id, c.name FROM c",
		`{"id":"1"} {"id":"2","name":"two"} {"id":"3","name":"Three"} {"id":"4"} {"id":"5"} {"id":"6","name":"two"}`,
	},
	{`SELECT c["id"], c.n + 1, c.n AS m, c.tags[0] FROM c WHERE c.n = 3`, `{"id":"1","$1":4,"m":3,"$2":"x"}`},
	{"SELECT c.id i FROM c WHERE c.id = '1'", `{"i":"1"}`},
	{"SELECT c FROM c WHERE c.id = '4'", `{"c":` + families[3] + `}`},
	{"SELECT VALUE c.name FROM c", `"two" "Three" "two"`},
	{"SELECT VALUE c FROM c WHERE c.id = '4'", families[3]},
	{"SELECT VALUE {'i': c.id} FROM c WHERE c.n = 1", `{"i":"2"} {"i":"6"}`},
	{"SELECT VALUE c.id FROM c WHERE c.n != null", `"1" "2" "3" "6"`},
	{"SELECT VALUE c.id FROM c WHERE NOT (c.n = 1)", `"1" "3" "5"`},
	{"SELECT VALUE c.id FROM c WHERE c.n", ``},
	{"SELECT VALUE 1", `1`},
	{"SELECT 1 AS one, 'x'", `{"one":1,"$1":"x"}`},
	// FROM and JOIN.
	{"SELECT * FROM c.kids", `[{"name":"Ann","pets":[{"p":"cat"}]},{"name":"Bob"}] [{"name":"Cid"}]`},
	{"SELECT VALUE kids[0].name FROM c.kids", `"Ann" "Cid"`},
	{"SELECT * FROM c.kids[0]", `{"name":"Ann","pets":[{"p":"cat"}]} {"name":"Cid"}`},
	{"SELECT VALUE k.name FROM c.kids[0] k", `"Ann" "Cid"`},
	{"SELECT * FROM k IN c.kids WHERE k.name >= 'B'", `{"name":"Bob"} {"name":"Cid"}`},
	{
		"SELECT c.id, t FROM c JOIN t IN c.tags",
		`{"id":"1","t":"x"} {"id":"1","t":"y"} {"id":"3","t":"y"} {"id":"5","t":"x"}`,
	},
	{"SELECT VALUE [k.name, p.p] FROM c JOIN k IN c.kids JOIN p IN k.pets", `["Ann","cat"]`},
	{
		"SELECT VALUE CONCAT(t, k.name) FROM c JOIN t IN c.tags JOIN k IN c.kids WHERE c.id = '1'",
		`"xAnn" "xBob" "yAnn" "yBob"`,
	},
	{"SELECT VALUE t FROM c JOIN t IN (SELECT VALUE t FROM t IN c.tags WHERE t = 'y')", `"y" "y"`},
	{"SELECT c.id, s.n FROM c JOIN (SELECT COUNT(1) AS n FROM t IN c.tags) AS s WHERE s.n > 1", `{"id":"1","n":2}`},
	{"SELECT VALUE s.id FROM (SELECT c.id, c.n FROM c) AS s WHERE s.n = 3", `"1"`},
	{"SELECT c.id, (SELECT VALUE COUNT(1) FROM k IN c.kids) AS kids FROM c WHERE EXISTS(SELECT VALUE k FROM k IN c.kids WHERE k.name = 'Cid')", `{"id":"5","kids":1}`},
	{"SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.pk FROM c)", `2`},
	{
		"SELECT s.pk, s.n FROM (SELECT c.pk, COUNT(1) AS n FROM c GROUP BY c.pk) AS s WHERE s.n > 1 ORDER BY s.n",
		`{"pk":"b","n":2} {"pk":"a","n":4}`,
	},
	{"SELECT VALUE t FROM (SELECT TOP 3 * FROM c ORDER BY c.id DESC) AS c JOIN t IN c.tags", `"x"`}, // of 6, 5 and 4
	// ORDER BY: undefined, null, booleans, numbers, strings; ties as they came.
	{"SELECT VALUE c.id FROM c ORDER BY c.n", `"4" "5" "2" "6" "1" "3"`},
	{"SELECT VALUE c.id FROM c ORDER BY c.n DESC", `"3" "1" "2" "6" "5" "4"`},
	{"SELECT VALUE c.id FROM c ORDER BY c.pk DESC, c.id ASC", `"2" "4" "1" "3" "5" "6"`},
	{"SELECT VALUE c.name FROM c ORDER BY c.id DESC", `"two" "Three" "two"`},
	{"SELECT VALUE c.name FROM c ORDER BY LOWER(c.name)", `"Three" "two" "two"`},
	{"SELECT VALUE v FROM v IN c.vals ORDER BY v", ``},
	// TOP, OFFSET LIMIT.
	{"SELECT TOP 2 VALUE c.id FROM c", `"1" "2"`},
	{"SELECT TOP @two VALUE c.id FROM c ORDER BY c.id DESC", `"6" "5"`},
	{"SELECT VALUE c.id FROM c OFFSET 1 LIMIT 2", `"2" "3"`},
	{"SELECT VALUE c.id FROM c ORDER BY c.id OFFSET @two LIMIT @two", `"3" "4"`},
	{"SELECT VALUE c.id FROM c ORDER BY c.id OFFSET 10 LIMIT 5", ``},
	{"SELECT TOP 0 * FROM c ORDER BY c.id", ``},
	// DISTINCT.
	{"SELECT DISTINCT VALUE c.n FROM c", `3 1 "s" null`},
	{"SELECT DISTINCT c.pk FROM c", `{"pk":"a"} {"pk":"b"}`},
	{"SELECT DISTINCT VALUE c.pk FROM c ORDER BY c.pk DESC", `"b" "a"`},
	{"SELECT DISTINCT TOP 1 VALUE c.pk FROM c", `"a"`},
	// Aggregates.
	{"SELECT VALUE COUNT(1) FROM c", `6`},
	{"SELECT VALUE COUNT(c.n) FROM c", `5`},
	{"SELECT COUNT(1) AS n, MIN(c.id) AS a, MAX(c.id) AS z FROM c", `{"n":6,"a":"1","z":"6"}`},
	{"SELECT COUNT(1), SUM(c.n) FROM c", `{"$1":6}`},
	{"SELECT VALUE SUM(c.n) FROM c WHERE IS_NUMBER(c.n)", `5`},
	{"SELECT VALUE AVG(c.n) FROM c WHERE c.n = 1", `1`},
	{"SELECT VALUE SUM(c.n) FROM c", ``},
	{"SELECT VALUE AVG(c.none) FROM c", ``},
	{"SELECT VALUE [COUNT(1), SUM(c.n), COUNTIF(c.n = 1), MIN(c.n)] FROM c WHERE c.id = 'none'", `[0,0,0]`},
	{"SELECT VALUE MIN(c.n) FROM c WHERE false", ``},
	{"SELECT VALUE MAX(c.n) FROM c", `"s"`},
	{"SELECT VALUE MIN(c.n) FROM c", `null`},
	{"SELECT VALUE MIN(c.kids) FROM c", ``},
	{"SELECT VALUE COUNTIF(c.n = 1) FROM c", `2`},
	{"SELECT VALUE MAKELIST(c.n) FROM c", `[3,1,"s",null,1]`},
	{"SELECT VALUE MAKESET(c.n) FROM c", `[3,1,"s",null]`},
	{
		"SELECT VALUE MAKESET(x) FROM x IN (SELECT VALUE [{'a': 1, 'b': 2}, {'b': 2, 'a': 1}, [1], [1.0], 1, 1.0])",
		`[{"a":1,"b":2},[1],1]`,
	},
	{"SELECT VALUE MAKELIST(c.none) FROM c", `[]`},
	{"SELECT c.pk, MakeSet(c.n) AS ns FROM c GROUP BY c.pk", `{"pk":"a","ns":[3,"s",null,1]} {"pk":"b","ns":[1]}`},
	{"SELECT VALUE MAX(c.n) - MIN(c.n) FROM c WHERE IS_NUMBER(c.n)", `2`},
	{"SELECT VALUE COUNT(1) FROM c JOIN t IN c.tags", `4`},
	{"SELECT VALUE [(SELECT VALUE COUNT(1) FROM t IN (SELECT VALUE [1, 2])), COUNT(1)] FROM c", `[2,6]`},
	// GROUP BY.
	{"SELECT c.pk, COUNT(1) AS n FROM c GROUP BY c.pk", `{"pk":"a","n":4} {"pk":"b","n":2}`},
	{"SELECT COUNT(1) AS n, c.name FROM c GROUP BY c.name", `{"n":3} {"n":1,"name":"Three"} {"n":2,"name":"two"}`},
	{"SELECT VALUE COUNT(1) FROM c GROUP BY c.pk, c.name", `2 1 1 1 1`},
	{"SELECT LOWER(c.name) AS l, CONCAT(LOWER(c.name), '!') AS x FROM c WHERE IS_DEFINED(c.name) GROUP BY LOWER(c.name)", `{"l":"three","x":"three!"} {"l":"two","x":"two!"}`},
	// one within the other
	{"SELECT VALUE [c.pk || c.id, c.pk] FROM c WHERE c.n = 1 GROUP BY c.pk || c.id, c.pk", `["a6","a"] ["b2","b"]`},
	{
		"SELECT -c.n AS n, NOT (c.n = 3) AS o FROM c GROUP BY -c.n, NOT (c.n = 3)",
		`{} {"o":true} {"n":-3,"o":false} {"n":-1,"o":true}`,
	},
	{"SELECT c.pk || c.id || 'x' AS x, c.pk || c.id AS i FROM c WHERE c.id = '1' GROUP BY c.pk || c.id || 'x', c.pk || c.id, c.pk", `{"x":"a1x","i":"a1"}`},
	{"SELECT VALUE c.pk FROM c GROUP BY c.pk OFFSET 1 LIMIT 1", `"b"`},
	{"SELECT VALUE COUNT(1) FROM c WHERE false GROUP BY c.pk", ``},
	{"SELECT DISTINCT VALUE COUNT(1) FROM c GROUP BY c.id", `1`},
	{"SELECT t, COUNT(1) AS n FROM c JOIN t IN c.tags GROUP BY t", `{"t":"x","n":2} {"t":"y","n":2}`},
	// IN over a subquery without FROM goes over the elements of its value, with FROM over its rows.
	{"SELECT VALUE x FROM c JOIN x IN (SELECT VALUE c.tags) WHERE c.id = '1'", `"x" "y"`},
	{"SELECT VALUE x.k FROM c JOIN x IN (SELECT VALUE ObjectToArray({'a': 1, 'b': 2})) WHERE c.id = '1'", `"a" "b"`},
	{
		"SELECT VALUE x.unit FROM c JOIN x IN (SELECT VALUE [{'unit': 'ng'}, {'unit': 'mg'}]) WHERE c.id = '1'",
		`"ng" "mg"`,
	},
	{"SELECT VALUE x FROM c JOIN x IN (SELECT VALUE c.id) WHERE c.id = '1'", ``},
	{"SELECT VALUE x FROM c JOIN x IN (SELECT VALUE c.none) WHERE c.id = '1'", ``},
	{"SELECT VALUE x FROM c JOIN x IN (SELECT c.id) WHERE c.id = '1'", `{"id":"1"}`},
	{"SELECT VALUE x FROM c JOIN x IN (SELECT VALUE [t] FROM t IN c.tags) WHERE c.id = '1'", `["x"] ["y"]`},
	{"SELECT VALUE x FROM x IN (SELECT VALUE [1, 2])", `1 2`},
	{"SELECT VALUE x FROM c JOIN (SELECT VALUE c.tags) x WHERE c.id = '1'", `["x","y"]`},
	// In a query without FROM, that of a subquery is the container.
	{"SELECT VALUE EXISTS(SELECT 1 FROM root c WHERE c.id = '2')", `true`},
	{"SELECT VALUE EXISTS(SELECT 1 FROM root c WHERE c.id = 'none')", `false`},
	{"SELECT VALUE EXISTS(SELECT 1 FROM c OFFSET 6 LIMIT 1)", `false`},
	{"SELECT VALUE EXISTS(SELECT 1 FROM c OFFSET 5 LIMIT 1)", `true`},
	{"SELECT VALUE (SELECT VALUE c.id FROM c OFFSET 2 LIMIT 1)", `"3"`},
	{"SELECT VALUE (SELECT VALUE COUNT(1) FROM root c)", `6`},
	{"SELECT VALUE ARRAY(SELECT VALUE c.id FROM c ORDER BY c.id DESC OFFSET 1 LIMIT 2)", `["5","4"]`},
	{"SELECT (SELECT VALUE MAX(c.id) FROM c) AS z, (SELECT VALUE c.id FROM c) AS first", `{"z":"6","first":"1"}`},
	{"SELECT VALUE ARRAY_CONTAINS(ARRAY(SELECT VALUE c.id FROM c), '3')", `true`},
	{
		"SELECT VALUE (SELECT VALUE EXISTS(SELECT 1 FROM c WHERE EXISTS(SELECT 1 FROM t IN c.tags WHERE t = 'x')))",
		`true`,
	},
	{"SELECT VALUE s FROM (SELECT VALUE (SELECT VALUE COUNT(1) FROM c)) s", `6`},
	{"SELECT VALUE 1 WHERE EXISTS(SELECT 1 FROM c)", `1`},
	{"SELECT VALUE (SELECT VALUE COUNT(1) FROM (SELECT DISTINCT c.pk FROM c))", `2`},
	// Numbers that stand alone are written short.
	{"SELECT c.n FROM c WHERE c.n = 1", `{"n":1} {"n":1}`},
	// What clients make of a query plan.
	{
		`SELECT c._rid, [{"item": c.n}] AS orderByItems, c.id AS payload FROM c WHERE ({documentdb-formattableorderbyquery-filter}) ORDER BY c.n OFFSET 0 LIMIT 2`,
		`{"orderByItems":[{}],"payload":"4"} {"orderByItems":[{"item":null}],"payload":"5"}`,
	},
}

func TestRows(t *testing.T) {
	for _, test := range queries {
		got, err := run(t, test.query, families, Parameter{"@two", []byte("2")})
		if got = strings.ReplaceAll(got, "\n", " "); err != nil || got != test.want {
			t.Errorf("%s\n got %s, %v\nwant %s", test.query, got, err, test.want)
		}
	}
}

func TestRowsAreTheDocumentsBytes(t *testing.T) {
	doc := []byte(" {\"b\" : 1.000,\n \"a\":\"\\u0041\"}\n")
	err := bound(t, "SELECT * FROM c").Rows(doc, func(row []byte) error {
		if string(row) != strings.TrimSpace(string(doc)) {
			t.Errorf("row %q of document %q", row, doc)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestRowsEndWithEmitsError(t *testing.T) {
	full := errors.New("page is full")
	calls := 0
	err := bound(t, "SELECT VALUE t FROM c JOIN t IN c.tags").Rows([]byte(families[0]), func([]byte) error {
		calls++
		return full
	})
	if !errors.Is(err, full) || calls != 1 {
		t.Errorf("%d calls, error %v", calls, err)
	}
}

func TestCondition(t *testing.T) {
	tests := []struct {
		text string
		want bool
	}{
		{"from c where c.n = 3", true},
		{"FROM c WHERE c.n > 3", false},
		{"FROM root r WHERE r.none = 1 OR r.pk = 'a'", true},
		{"FROM c", true},
	}
	for _, test := range tests {
		q, err := ParseCondition(test.text)
		if err != nil {
			t.Fatal(err)
		}
		b, err := q.Bind(nil)
		if err != nil {
			t.Fatal(err)
		}
		if met, err := b.Condition([]byte(families[0])); err != nil || met != test.want {
			t.Errorf("%s: %v, %v", test.text, met, err)
		}
	}
	if _, err := Parse("from c"); err == nil {
		t.Error("a condition is taken for a query")
	}
	for _, text := range []string{"SELECT * FROM c", "from c where", "from c order by c.x"} {
		if _, err := ParseCondition(text); err == nil {
			t.Errorf("%s: is taken for a condition", text)
		}
	}
}

func TestCrossPartition(t *testing.T) {
	tests := []struct {
		query, want string
		streams     bool
	}{
		{"SELECT * FROM c", "", true},
		{"SELECT c.id FROM c JOIN t IN c.tags WHERE EXISTS(SELECT TOP 1 t FROM t)", "", true},
		{"SELECT TOP 1 * FROM c", "TOP", true},
		{"SELECT * FROM c OFFSET 0 LIMIT 1", "OFFSET LIMIT", true},
		{"SELECT * FROM c ORDER BY c.id", "ORDER BY", false},
		{"SELECT DISTINCT c.id FROM c", "DISTINCT", false},
		{"SELECT COUNT(1) FROM c", "aggregate", false},
		{"SELECT c.id FROM c GROUP BY c.id", "GROUP BY", false},
		{"SELECT VALUE 1", "", false},
	}
	for _, test := range tests {
		b := bound(t, test.query)
		if got := b.q.CrossPartition(); got != test.want || b.Streams() != test.streams {
			t.Errorf("%s: %q, streams %v; want %q, %v", test.query, got, b.Streams(), test.want, test.streams)
		}
	}
}

func TestHeldMemoryIsBounded(t *testing.T) {
	doc := []byte(`{"x":"` + strings.Repeat("a", 1<<20) + `"}`)
	r := bound(t, "SELECT * FROM c ORDER BY c.id").NewRun()
	var err error
	n := 0
	for ; err == nil && n < 300; n++ {
		err = r.Add(doc)
	}
	if want := "The query needs more than 160 MB of memory."; err == nil || err.Error() != want || n < 150 {
		t.Errorf("after %d MB: %v, want %s", n, err, want)
	}
}

func TestSortedRowsBeyondTheLimitAreDropped(t *testing.T) {
	for _, test := range []struct{ query, want string }{
		{"SELECT VALUE c.id FROM c ORDER BY c.n OFFSET 1 LIMIT 2", "4999 4996"}, // the last documents
		{"SELECT VALUE c.id FROM c ORDER BY c.n DESC OFFSET 1 LIMIT 2", "1 2"},
	} {
		r := bound(t, test.query).NewRun()
		for i := range 5 * pruneSlack {
			if err := r.Add(fmt.Appendf(nil, `{"id":%d,"n":%d}`, i, -i/2)); err != nil {
				t.Fatal(err)
			}
		}
		size := 0
		for _, kept := range r.query.c.rows {
			size += kept.size()
		}
		if kept := len(r.query.c.rows); kept > 2*pruneSlack || r.Held() != size {
			t.Errorf("%s: %d rows are kept, of %d bytes: counted are %d", test.query, kept, size, r.Held())
		}
		rows, err := r.Finish()
		if got := joinJSON(rows); err != nil || got != test.want {
			t.Errorf("%s: rows %s, %v, want %s", test.query, got, err, test.want)
		}
	}
}

func joinJSON(rows []Row) string {
	var texts []string
	for _, r := range rows {
		texts = append(texts, string(r.JSON))
	}
	return strings.Join(texts, " ")
}

func TestWorkIsBounded(t *testing.T) {
	doc := []byte(`{"s":"` + strings.Repeat("a", 100_000) + `","a":[` + strings.Repeat("1,", 100) + `1]}`)
	tests := []string{
		"SELECT VALUE 1 FROM c JOIN a IN c.a JOIN b IN c.a WHERE c.s LIKE '" + strings.Repeat("b", 1000) + "'",
		"SELECT VALUE 1 FROM c JOIN a IN c.a JOIN b IN c.a WHERE REGEXMATCH(c.s, '" + strings.Repeat("b", 1000) + "')",
		"SELECT VALUE 1 FROM c JOIN a IN c.a JOIN b IN c.a JOIN d IN c.a WHERE LOWER(c.s) = 'b'",
	}
	for _, query := range tests {
		err := bound(t, query).Rows(doc, func([]byte) error { return nil })
		if want := "The query takes too long on one document."; err == nil || err.Error() != want {
			t.Errorf("%.70s: got %v, want %s", query, err, want)
		}
	}
}

// The rows of a subquery in FROM have each as much work as a document has: each of these takes a fifth of that.
func TestTheWorkOfOneRowIsNotThatOfAll(t *testing.T) {
	const query = "SELECT VALUE s.id FROM (SELECT DISTINCT c.id, c.s FROM c) AS s WHERE NOT (s.s LIKE '"
	r := bound(t, query+strings.Repeat("b", 1000)+"')").NewRun()
	for i := range 10 {
		if err := r.Add(fmt.Appendf(nil, `{"id":%d,"s":%q}`, i, strings.Repeat("a", 100_000))); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := r.Finish()
	if got := joinJSON(rows); err != nil || got != "0 1 2 3 4 5 6 7 8 9" {
		t.Errorf("rows %s, %v", got, err)
	}
}

// What a query makes is as bounded as what it looks at: this one would take 200 GB.
func TestValuesAreBounded(t *testing.T) {
	doc := []byte(`{"a":[0,1,2,3,4,5,6,7],"s":"` + strings.Repeat("a", 2<<20) + `"}`)
	for _, query := range []string{
		"SELECT VALUE [c" + strings.Repeat(",c", 100_000) + "] FROM c",
		"SELECT c AS a, c AS b, c AS d, c AS e, c AS f, c AS g, c AS h, c AS i FROM c",
		"SELECT VALUE ARRAY(SELECT VALUE c FROM x IN c.a) FROM c",
	} {
		err := bound(t, query).Rows(doc, func([]byte) error { return nil })
		if want := "The query makes a value of more than 16 MB."; err == nil || err.Error() != want {
			t.Errorf("%.70s: got %v, want %s", query, err, want)
		}
	}
}

// A string that a document has no room for is undefined, as in the service.
func TestATextThatNoDocumentHasRoomForIsUndefined(t *testing.T) {
	for size, want := range map[int]string{maxText / 2: "[true,true]", maxText/2 + 1: "[false,false]"} {
		doc := fmt.Sprintf(`{"s":%q}`, strings.Repeat("a", size))
		got, err := run(t, "SELECT VALUE [IS_DEFINED(c.s || c.s), IS_DEFINED(CONCAT(c.s, c.s))] FROM c", []string{doc})
		if err != nil || got != want {
			t.Errorf("twice %d bytes: %s, %v, want %s", size, got, err, want)
		}
	}
}

// What the functions do within is counted, too. Each of these would take minutes.
func TestWorkOfFunctionsIsBounded(t *testing.T) {
	members := func(first int) string {
		var b strings.Builder
		for i := first; i < 50_000; i++ {
			fmt.Fprintf(&b, `,"k%d":1`, i)
		}
		return "{" + b.String()[1:] + "}"
	}
	many := "[" + strings.Repeat("1,", 500_000) + "1]"
	for _, c := range []struct{ query, doc, want string }{
		{
			"SELECT VALUE ARRAY_CONTAINS(c.a, c.w, true) FROM c", `{"a":[` + members(0) + `],"w":` + members(1) + `}`,
			"too long",
		},
		{"SELECT VALUE FULLTEXTCONTAINSANY(c.a" + strings.Repeat(",'no'", 50_000) + ") FROM c", `{"a":"` +
			strings.Repeat("q ", 500_000) + `"}`, "too long"},
		{
			"SELECT VALUE 1 FROM c JOIN b IN c.a WHERE ARRAY_LENGTH(SETUNION(c.a, c.a)) = 7", `{"a":` + many + `}`,
			"too long",
		},
		{
			"SELECT VALUE REGEXMATCH(c.a, '(.?){1000}z') FROM c", `{"a":"` + strings.Repeat("q", 1<<20) + `"}`,
			"too long",
		},
		{
			"SELECT VALUE REGEXMATCH(c.a, '(" + strings.Repeat("(a?){1000}|", 300) + "b)') FROM c", `{"a":"q"}`,
			"want at most 10000",
		},
	} {
		err := bound(t, c.query).Rows([]byte(c.doc), func([]byte) error { return nil })
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.70s: got %v, want %s", c.query, err, c.want)
		}
	}
	begun := time.Now()
	pattern := []byte(`"` + strings.Repeat("[", 900_000) + `"`)
	got, err := run(t, "SELECT VALUE c.a LIKE @p FROM c", []string{`{"a":"x"}`}, Parameter{"@p", pattern})
	if took := time.Since(begun); err != nil || got != "false" || took > 30*time.Second {
		t.Errorf("a pattern of brackets: %s, %v, after %v", got, err, took)
	}
}

func TestRunsEndWithTheirContext(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	gone := errors.New("client has gone")
	stop(gone)
	doc := []byte(`{"a":[1` + strings.Repeat(",1", 10_000) + `]}`)
	streaming := bound(t, "SELECT VALUE 1 FROM c JOIN a IN c.a JOIN b IN c.a WHERE a = 2")
	streaming.Until(ctx)
	if err := streaming.Rows(doc, func([]byte) error { return nil }); !errors.Is(err, gone) {
		t.Errorf("rows: got %v, want %v", err, gone)
	}
	counting := bound(t, "SELECT COUNT(1) FROM c JOIN a IN c.a JOIN b IN c.a")
	counting.Until(ctx)
	if err := counting.NewRun().Add(doc); !errors.Is(err, gone) {
		t.Errorf("run: got %v, want %v", err, gone)
	}
	many := bound(t, "SELECT VALUE s.n FROM (SELECT VALUE c FROM c ORDER BY c.n) AS s WHERE s.n LIKE '%a%b%c'")
	run := many.NewRun()
	for range 10_000 {
		if err := run.Add([]byte(`{"n":"aaaaaaaaaaaaaaaaaaaaaaaaaaaa"}`)); err != nil {
			t.Fatal(err)
		}
	}
	many.Until(ctx)
	if rows, err := run.Finish(); !errors.Is(err, gone) {
		t.Errorf("the end of a run: got %d rows, %v, want %v", len(rows), err, gone)
	}
}

// All writers wait while a condition is asked.
func TestConditionsAreQuick(t *testing.T) {
	q, err := ParseCondition("FROM c WHERE c.s LIKE '" + strings.Repeat("b", 1000) + "'")
	if err != nil {
		t.Fatal(err)
	}
	b, err := q.Bind(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Condition([]byte(`{"s":"` + strings.Repeat("a", 100_000) + `"}`))
	if want := "The query takes too long on one document."; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// To find a member in a large document takes more work than a condition has for a small one.
func TestAConditionIsAskedOfALargeDocument(t *testing.T) {
	q, err := ParseCondition("FROM c WHERE c.v = 1")
	if err != nil {
		t.Fatal(err)
	}
	b, err := q.Bind(nil)
	if err != nil {
		t.Fatal(err)
	}
	if met, err := b.Condition([]byte(`{"s":"` + strings.Repeat("a", 2<<20) + `","v":1}`)); !met || err != nil {
		t.Errorf("met %v, %v, want it to be met", met, err)
	}
}

// One parsed query serves many requests at once.
func TestQueriesAreShared(t *testing.T) {
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			id := fmt.Sprintf(`"%d"`, i%6+1)
			got, err := run(t, "SELECT VALUE c.id FROM c WHERE c.id = @id AND REGEXMATCH(c.id, '.') ORDER BY c.id",
				families, Parameter{"@id", []byte(id)})
			if err != nil || got != id {
				t.Errorf("got %s, %v, want %s", got, err, id)
			}
		})
	}
	all.Wait()
}

func TestRecentQueriesStayParsed(t *testing.T) {
	c := &cache{entries: map[cacheKey]*list.Element{}}
	first, err := c.get(cacheKey{text: "SELECT 0 FROM c"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 * maxCached {
		if _, err := c.get(cacheKey{text: fmt.Sprintf("SELECT %d FROM c WHERE 'x' != '%s'", i,
			strings.Repeat("y", 20*i))}); err != nil {
			t.Fatal(err)
		}
		if again, _ := c.get(cacheKey{text: "SELECT 0 FROM c"}); again != first {
			t.Fatalf("the query in use was parsed again after %d others", i)
		}
	}
	if c.recent.Len() != len(c.entries) || len(c.entries) > maxCached || c.bytes > maxCachedBytes {
		t.Errorf("%d entries of %d bytes", len(c.entries), c.bytes)
	}
}

// Rows beyond the limit take the place of those that are equal to one before.
func TestDistinctRowsOfALimitAreFoundAmongThousands(t *testing.T) {
	docs := []string{`{"v":2}`, `{"v":1}`}
	for range 2*pruneSlack + 100 {
		docs = append(docs, `{"v":0}`)
	}
	for _, query := range []string{
		"SELECT DISTINCT VALUE c.v FROM c ORDER BY c.v OFFSET 0 LIMIT 3",
		"SELECT DISTINCT TOP 3 VALUE c.v FROM c ORDER BY c.v",
	} {
		if got, err := run(t, query, docs); got != "0\n1\n2" || err != nil {
			t.Errorf("%s: %q, %v, want 0, 1 and 2", query, got, err)
		}
	}
}

// The service serves it; the tests of the .NET SDK ask for it.
func TestAnAggregateMayBeSorted(t *testing.T) {
	docs := []string{`{"n":3}`, `{"n":1}`, `{"n":2}`}
	for query, want := range map[string]string{
		"SELECT VALUE COUNT(1) FROM c ORDER BY c.n":              "3",
		"SELECT VALUE MAX(c.n) FROM c ORDER BY c.n DESC, c.x":    "3",
		"SELECT COUNT(1) AS n FROM c WHERE c.n > 1 ORDER BY c.n": `{"n":2}`,
	} {
		if got, err := run(t, query, docs); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", query, got, err, want)
		}
		plan := planOf(t, query)
		if len(plan.OrderBy)+len(plan.OrderByExpressions) > 0 || strings.Contains(plan.RewrittenQuery, "ORDER BY") {
			t.Errorf("%s: the plan sorts: %+v", query, plan)
		}
	}
}
