package sql

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The codes and places are those of the service's planner, as others recorded them.
func TestErrorsHaveTheServicesCodesAndPlaces(t *testing.T) {
	for query, want := range map[string]string{
		"SELECT *\nFROM c\nGROUP BY c.age": `{"severity":"Error","location":{"start":7,"end":8},"code":"SC2041","message":"'SELECT *' is not allowed with GROUP BY."}`,
		"SELECT c.name, s.score, s.repeat FROM c JOIN s IN c.scores GROUP BY c.name": `{"severity":"Error","location":{"start":15,"end":22},"code":"SC2102","message":"Property reference 's.score' is invalid in the select list because it is not contained in either an aggregate function or the GROUP BY clause."},` +
			`{"severity":"Error","location":{"start":24,"end":32},"code":"SC2102","message":"Property reference 's.repeat' is invalid in the select list because it is not contained in either an aggregate function or the GROUP BY clause."}`,
		"SELECT BADFUNC(r.age) FROM Root r":                           `{"severity":"Error","location":{"start":7,"end":14},"code":"SC2005","message":"'BADFUNC' is not a recognized built-in function name."}`,
		"SELECT * FROM Root r WHERE STARTSWITH(r.key, 'a', 'b', 'c')": `{"severity":"Error","location":{"start":27,"end":59},"code":"SC2050","message":"The STARTSWITH function requires 2 to 3 argument(s)."}`,
		"SELECT c.name FROM c OFFSET -1 LIMIT 10":                     `{"severity":"Error","location":{"start":28,"end":29},"code":"SC1001","message":"Syntax error, incorrect syntax near '-'."}`,
		"SELECT c.name FROM c OFFSET 10 LIMIT 4294967296":             `{"severity":"Error","location":{"start":37,"end":47},"code":"SC2061","message":"The LIMIT count value exceeds the maximum allowed value."}`,
		"SELECT c.name FROM c OFFSET 4294967296 LIMIT 10":             `{"severity":"Error","location":{"start":28,"end":38},"code":"SC2062","message":"The OFFSET count value exceeds the maximum allowed value."}`,
		"SELECT TOP 4294967296 c.name FROM c":                         `{"severity":"Error","location":{"start":11,"end":21},"code":"SC2060","message":"The count value provided for a TOP clause must be an integer."}`,
		"SELECT VALUE root FROM c":                                    `{"severity":"Error","location":{"start":13,"end":17},"code":"SC2001","message":"Identifier 'root' could not be resolved."}`,
		"SELECT c.n FROM c ORDER BY c.n + 1":                          `{"severity":"Error","code":2206,"message":"Unsupported ORDER BY clause. ORDER BY item expression could not be mapped to a document path."}`,
		"SELECT VALUE r0 FROM (SELECT VALUE root FROM root ORDER BY root[\"Int\"] ASC OFFSET 3 LIMIT 11) AS r0": `{"severity":"Error","location":{"start":50,"end":74},"code":"SC2202","message":"'ORDER BY' is not supported in subqueries."},` +
			`{"severity":"Error","location":{"start":75,"end":92},"code":"SC2204","message":"'OFFSET LIMIT' clause is not supported in subqueries."}`,
		"SELECT VALUE [1,2,3][c.x] FROM c": `{"severity":"Error","location":{"start":21,"end":24},"code":"SC2990","message":"The index of an array or object must be a constant."}`,
		"SELECT * FROM c WHERE c[ c.a ? 'x' : 'y' ].z = c.l[c.n]": `{"severity":"Error","location":{"start":25,"end":40},"code":"SC2990","message":"The index of an array or object must be a constant."},` +
			`{"severity":"Error","location":{"start":51,"end":54},"code":"SC2990","message":"The index of an array or object must be a constant."}`,
		"SELECT VALUE ARRAY(SELECT TOP 1 t FROM t IN c.x) FROM c": `{"severity":"Error","location":{"start":26,"end":31},"code":"SC2203","message":"'TOP' is not supported in subqueries."}`,
	} {
		refused, _ := errors.AsType[*Error](refusedBy(query))
		if refused == nil {
			t.Errorf("%s: no error of a query", query)
		} else if got := string(refused.JSON()); got != want {
			t.Errorf("%s:\n%s, want\n%s", query, got, want)
		}
	}
}

// refusedBy is why a strict server does not run a query.
func refusedBy(query string) error {
	q, err := Parse(query)
	if err == nil {
		_, err = q.Bind(nil)
	}
	if err == nil {
		err = q.Refused()
	}
	return err
}

func TestWhatAStrictServerServes(t *testing.T) {
	for _, query := range []string{
		"SELECT TOP 1 c.n FROM c ORDER BY c.n DESC", "SELECT * FROM c ORDER BY (c.a.b)",
		`SELECT * FROM c ORDER BY c["a"][0]`,
		"SELECT * FROM root r ORDER BY r.n", "SELECT * FROM c OFFSET 1 LIMIT 2",
		"SELECT VALUE s FROM c JOIN (SELECT VALUE t FROM t IN c.x WHERE t > 1) s",
		"SELECT VALUE COUNT(1) FROM c ORDER BY c.n",
		"SELECT * FROM c ORDER BY VectorDistance(c.v, [1])", "SELECT VALUE d FROM (SELECT DISTINCT VALUE c.n FROM c) AS d",
		"SELECT VALUE r FROM (SELECT VALUE c FROM c) AS r ORDER BY r.n",
		"SELECT c.l[0], c.l[ABS(-1)], c[CONCAT('a', 'b')], [1, 2][1], c[@p] FROM c",
		// These are in the plans of hybrid searches.
		`SELECT * FROM c ORDER BY _FullTextScore(c.t, ["a"], 2, 9, [1]) DESC`,
		"SELECT * FROM c ORDER BY _VectorScore(c.v, [1])",
	} {
		if _, err := Parse(query); err != nil && !isNewer(err) {
			t.Errorf("%s: %v", query, err)
		} else if err := refusedBy(query); err != nil && !isNewer(err) {
			t.Errorf("%s is refused: %v", query, err)
		}
	}
	for _, query := range []string{
		"SELECT * FROM c ORDER BY 1", "SELECT * FROM c ORDER BY @x", "SELECT * FROM c ORDER BY c",
		"SELECT * FROM c ORDER BY -c.n",
		"SELECT c.n FROM c JOIN t IN c.x ORDER BY t.y", "SELECT * FROM c ORDER BY LOWER(c.n)",
		"SELECT * FROM c ORDER BY c[c.n]",
		"SELECT * FROM c WHERE EXISTS(SELECT 1 FROM t IN c.x ORDER BY t)",
		"SELECT * FROM c WHERE c.n IN (1, (SELECT TOP 1 VALUE t FROM t IN c.x))",
		"SELECT VALUE {'a': [ARRAY(SELECT TOP 1 VALUE t FROM t IN c.x)]} FROM c",
		"SELECT VALUE s FROM c JOIN s IN (SELECT TOP 1 VALUE t FROM t IN c.x)",
		"SELECT VALUE s FROM c JOIN (SELECT VALUE u FROM u IN (SELECT VALUE t FROM t IN c.x ORDER BY t)) s",
	} {
		q, err := Parse(query)
		if err != nil {
			t.Errorf("%s: %v", query, err)
		} else if q.Refused() == nil {
			t.Errorf("%s is served", query)
		}
	}
}

// isNewer tells of a function that is not here yet.
func isNewer(err error) bool {
	refused, ok := errors.AsType[*Error](err)
	return ok && refused.code() == "SC2005"
}

func TestSortPaths(t *testing.T) {
	for query, want := range map[string][]SortPath{
		"SELECT * FROM c ORDER BY c.a, c.b.d DESC":    {{"/a", false}, {"/b/d", true}},
		`SELECT * FROM c ORDER BY c["x y"], c.l[3].z`: {{"/x y", false}, {"/l/[]/z", false}},
		"SELECT * FROM c ORDER BY c.a, c.b + 1":       nil,
		"SELECT * FROM c":                             nil,
	} {
		q, err := Parse(query)
		if err != nil {
			t.Fatal(err)
		}
		if got := q.SortPaths(); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
}

// A row with a number that JSON cannot write is refused, wherever the number is in the row.
func TestAResultThatJSONCannotWriteIsRefused(t *testing.T) {
	for _, query := range []string{
		"SELECT 1/0 AS x, 1 AS y", "SELECT VALUE 1 / c.zero FROM c", "SELECT VALUE [1, 0 / 0] FROM c",
		"SELECT VALUE 1 % 0 FROM c",
		"SELECT VALUE {'a': {'b': 1e300 * 1e300}} FROM c", "SELECT DISTINCT 1/0 AS x FROM c",
		"SELECT c.zero, SUM(c.zero) / 0 AS s FROM c GROUP BY c.zero",
		"SELECT c.zero / 0 AS x FROM c ORDER BY c.zero",
	} {
		_, err := run(t, query, []string{`{"id":"a","zero":0,"l":[0]}`})
		refused, ok := errors.AsType[*Error](err)
		if !ok || refused.Sub != 4001 {
			t.Errorf("%s: %v, want the sub-status 4001", query, err)
		}
	}
	for query, want := range map[string]string{
		"SELECT VALUE AVG(c.none) FROM c": "", "SELECT VALUE 1 FROM c WHERE 1 / c.zero > 0": "",
		"SELECT VALUE SQRT(-1) FROM c": "",
	} {
		if got, err := run(t, query, []string{`{"id":"a","zero":0,"l":[0]}`}); got != want || err != nil {
			t.Errorf("%s: %s, %v, want %s", query, got, err, fmt.Sprintf("%q", want))
		}
	}
}

// The place of a clause is counted in bytes of the query, also behind letters whose upper case has more bytes.
func TestThePlaceOfAClauseBehindOtherLetters(t *testing.T) {
	query := "SELECT VALUE ARRAY(SELECT VALUE t FROM t IN c['" + strings.Repeat("ɐ", 50) + "'] order by t) FROM c"
	refused, _ := errors.AsType[*Error](refusedBy(query))
	if refused == nil || query[refused.At:refused.End] != "order by t" {
		t.Errorf("%v, want a refusal of order by t", refused)
	}
	query = "SELECT TOP 3 c['" + strings.Repeat("ɐ", 50) + "'] FROM c join t IN c.tags " +
		"ORDER BY RANK FullTextScore(c.text, 'a')"
	plan, err := bound(t, query).Plan(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := `AS fullTextStatistics\nFROM c"`; !strings.Contains(string(plan), want) {
		t.Errorf("the plan is %s, want %s in it", plan, want)
	}
}
