package sql_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/changefeed/cosmosrest/internal/sql"
)

// A query and its text in the form of the service's planner have the same rows, and the form of the form is the form.
func TestRandomQueriesAreRenderedTruly(t *testing.T) {
	eachPair(t, *differRuns/differShare, newPair, (*pair).rendersTruly)
}

func (p *pair) rendersTruly() string {
	want, err := p.engine()
	if err != nil {
		return ""
	}
	form, err := sql.Rendered(p.q.text())
	if err != nil {
		return p.tell(err.Error())
	}
	if again, err := sql.Rendered(form); err != nil || again != form {
		return p.tell(fmt.Sprintf("in the form\n%s\nand again\n%s: %v", form, again, err))
	}
	q, err := sql.Parse(form)
	if err != nil {
		return p.tell(fmt.Sprintf("in the form\n%s: %v", form, err))
	}
	b, err := q.Bind(p.q.parameters())
	if err != nil {
		return p.tell(err.Error())
	}
	rows, err := rowsOf(b, p.docs)
	if err != nil {
		return p.tell(fmt.Sprintf("in the form\n%s: %v", form, err))
	}
	if got, err := decode(rows); err != nil || !alike(got, want, false) {
		return p.tell(fmt.Sprintf("in the form\n%s\n%s, %v\nbefore: %s", form, write(got), err, write(want)))
	}
	return ""
}

func TestTheFormOfThePlanner(t *testing.T) {
	tests := []struct{ query, want string }{
		{"select value 1", "SELECT VALUE 1"},
		{"SELECT c.a b, 'it''s' FROM root c", ""},
		{`SELECT c["a"], c['x y'], c.l[0] FROM c`, `SELECT c["a"], c["x y"], c.l[0] | FROM c`},
		{`SELECT * FROM c WHERE c.s = 'a"b\\'`, `SELECT * | FROM c | WHERE (c.s = "a\"b\\")`},
		{
			"SELECT * FROM c WHERE c.a = 1 AND c.b = 2 OR NOT c.d = 3",
			"SELECT * | FROM c | WHERE (((c.a = 1) AND (c.b = 2)) OR (NOT (c.d = 3)))",
		},
		{
			"SELECT * FROM c WHERE c.a BETWEEN 1 AND 2 AND c.b NOT IN (1, 'x') AND c.s LIKE 'a!%' ESCAPE '!'",
			`SELECT * | FROM c | WHERE (((c.a BETWEEN 1 AND 2) AND (c.b NOT IN (1, "x"))) AND (c.s LIKE "a!%" ESCAPE "!"))`,
		},
		{"SELECT VALUE c.a + 1 * 2 - -3 FROM c", "SELECT VALUE ((c.a + (1 * 2)) - -3) | FROM c"},
		{"SELECT VALUE (1).x + (c.a + 1).y + -(.5) FROM c", "SELECT VALUE (((1).x + (c.a + 1).y) + -0.5) | FROM c"},
		{"SELECT VALUE -(-1) + - - c.a FROM c", "SELECT VALUE ((- -1) + (-(-c.a))) | FROM c"},
		{"SELECT VALUE c.a ? c.b : c.d ?? c.e FROM c", "SELECT VALUE (c.a ? c.b : (c.d ?? c.e)) | FROM c"},
		{
			"SELECT VALUE [0.1, 1e2, 1.0, 007, 9007199254740993, 1e300, 0.005676387343555689, TRUE, Null, undefined] FROM c",
			"SELECT VALUE [0.1, 100, 1, 7, 9007199254740993, 1e+300, 0.0056763873435556889, true, null, undefined] | FROM c",
		},
		{"SELECT VALUE {a: 1, 'b': {}, \"c\": [@p]} FROM c", `SELECT VALUE {"a": 1, "b": {}, "c": [@p]} | FROM c`},
		{
			"SELECT VALUE EXISTS(SELECT 1 FROM t IN c.l WHERE t <> 1) FROM c",
			"SELECT VALUE EXISTS( |     SELECT 1 |     FROM t IN c.l |     WHERE (t != 1) | ) | FROM c",
		},
		{
			"SELECT TOP 3 x FROM c JOIN (SELECT VALUE t FROM t IN c.l) AS x ORDER BY x ASC, c.a, c.b DESC",
			"SELECT TOP 3 x | FROM c | JOIN ( |     SELECT VALUE t |     FROM t IN c.l | ) AS x | ORDER BY x ASC, c.a, c.b DESC",
		},
		{
			"SELECT c.a, Count(1) AS n FROM c GROUP BY c.a OFFSET @o LIMIT 5",
			"SELECT c.a, Count(1) AS n | FROM c | GROUP BY c.a | OFFSET @o LIMIT 5",
		},
	}
	for _, test := range tests {
		got, err := sql.Rendered(test.query)
		if want := strings.ReplaceAll(test.want, " | ", "\n"); got != want || (err != nil) != (want == "") {
			t.Errorf("%s\n got %s, %v\nwant %s", test.query, got, err, want)
		}
	}
}

// A chain of thousands of terms has brackets around the whole chain only, because brackets may not nest so deep.
func TestALongChainIsRenderedWithoutNesting(t *testing.T) {
	long := "SELECT * FROM c WHERE c.a = 0" + strings.Repeat(" OR c.a = 1", 5000)
	form, err := sql.Rendered(long)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sql.Parse(form); err != nil || !strings.HasPrefix(form, "SELECT *\nFROM c\nWHERE ((c.a = 0) OR (c.a = 1) OR") {
		t.Errorf("the form is %.80s…: %v", form, err)
	}
	deep := "SELECT VALUE c.a" + strings.Repeat(" + 1", 400) + " FROM c"
	if form, err = sql.Rendered(deep); err != nil {
		t.Fatal(err)
	}
	if _, err := sql.Parse(form); err != nil {
		t.Errorf("the form of a long sum is %.80s…: %v", form, err)
	}
}
