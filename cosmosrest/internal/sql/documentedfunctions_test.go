package sql

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// The examples of the service's documentation of the functions of 2025, with the values that it gives, and our own
// beside them.

func init() { expressions = append(expressions, documented2025...) }

var documented2025 = []struct{ expr, want string }{
	{
		"[ARRAY_MAX([1, 2, 3, 4]), ARRAY_MAX(['abc', 'ABC', 'aBc', 'AbC']), ARRAY_MAX([true, false]), " +
			"ARRAY_MAX([null, null]), ARRAY_MAX([12, 'abc', true, false, null, undefined])]", `[4,"abc",true,null,"abc"]`,
	},
	{
		"[ARRAY_MIN([1, 2, 3, 4]), ARRAY_MIN(['abc', 'ABC', 'aBc', 'AbC']), ARRAY_MIN([true, false]), " +
			"ARRAY_MIN([null, null]), ARRAY_MIN([12, 'abc', true, false, null, undefined])]", `[1,"ABC",false,null,null]`,
	},
	{
		"{a: ARRAY_SUM([1, 2, 3, 4]), b: ARRAY_SUM([1, 2, 3, 4, undefined]), c: ARRAY_SUM(['abc', 'ABC', 'aBc', 'AbC']), " +
			"d: ARRAY_SUM([12, 'abc', true, false, null, undefined])}", `{"a":10,"b":10}`,
	},
	{
		"{a: ARRAY_AVG([1, 2, 3, 4]), b: ARRAY_AVG([1.0, 2.0, 3.3, 4.7]), c: ARRAY_AVG([1, -2.7, 3, -4, undefined]), " +
			"d: ARRAY_AVG(['abc', 'ABC', 'aBc', 'AbC']), e: ARRAY_AVG([12, 'abc', true, false, null, undefined])}",
		`{"a":2.5,"b":2.75,"c":-0.675}`,
	},
	{
		"{a: ARRAY_MEDIAN([1, 2, 3, 4]), b: ARRAY_MEDIAN([1.0, 2.0, 3.3, 4.7, 7.8]), " +
			"c: ARRAY_MEDIAN([1, -2.7, 3, -4, undefined]), d: ARRAY_MEDIAN(['abc', 'ABC', 'aBc', 'AbC']), " +
			"e: ARRAY_MEDIAN([12, 'abc', true, false, null, undefined])}", `{"a":2.5,"b":3.3,"c":-0.85000000000000009}`,
	},
	{
		"[SETEQUAL([1, 2, 3], [1, 2, 3]), SETEQUAL([1, 2, 3], [3, 2, 1]), SETEQUAL([1, 2, 3, 3], [1, 2, 2, 3, 1, 2]), " +
			"SETEQUAL([], [1, 2, 3]), SETEQUAL([1, true, 'abc'], [true, 1, 'abc']), SETEQUAL([1, 1, 1, 1], [2, 3, 4])]",
		"[true,true,true,false,true,false]",
	},
	{
		"[LASTINDEXOF('abcdeabc', 'abc'), LASTINDEXOF('abcdeabc', 'abc', 6), LASTINDEXOF('abcdeabc', 'abc', 7), " +
			"LASTINDEXOF('abcdeabc', 'fg')]", "[5,0,5,-1]",
	},
	{
		"{a: CONTAINS_ALL_CI('Have a nice day!', 'have', 'nice', 'day!'), " +
			"b: CONTAINS_ALL_CI('Have a nice day!', 'HAVE', 'NICE', 'DAY!'), " +
			"c: CONTAINS_ALL_CI('Have a nice day!', 'had', 'nice', 'day!'), " +
			"d: CONTAINS_ALL_CI('Have a nice day!', undefined, 'nice', 'day!'), " +
			"e: CONTAINS_ALL_CI('Have a nice day!', undefined, 'had')}", `{"a":true,"b":true,"c":false,"e":false}`,
	},
	// The page says true of the first, but a case-sensitive search does not find "have" in "Have".
	{
		"{a: CONTAINS_ALL_CS('Have a nice day!', 'have', 'nice', 'day!'), " +
			"b: CONTAINS_ALL_CS('Have a nice day!', 'HAVE', 'NICE', 'DAY!'), " +
			"c: CONTAINS_ALL_CS('Have a nice day!', 'had', 'nice', 'day!'), " +
			"d: CONTAINS_ALL_CS('Have a nice day!', undefined, 'nice', 'day!'), " +
			"e: CONTAINS_ALL_CS('Have a nice day!', undefined, 'had'), " +
			"f: CONTAINS_ALL_CS('Have a nice day!', 'Have', 'nice')}", `{"a":false,"b":false,"c":false,"e":false,"f":true}`,
	},
	{
		"{a: CONTAINS_ANY_CI('Have a nice day!', 'have', 'nice', 'day!'), " +
			"b: CONTAINS_ANY_CI('Have a nice day!', 'HAVE', 'NICE', 'DAY!'), " +
			"c: CONTAINS_ANY_CI('Have a nice day!', 'had', 'nice', 'day!'), " +
			"d: CONTAINS_ANY_CI('Have a nice day!', undefined, 'nice', 'day!'), " +
			"e: CONTAINS_ANY_CI('Have a nice day!', undefined, 'had')}", `{"a":true,"b":true,"c":true,"d":true}`,
	},
	{
		"{a: CONTAINS_ANY_CS('Have a nice day!', 'have', 'nice', 'day!'), " +
			"b: CONTAINS_ANY_CS('Have a nice day!', 'HAVE', 'NICE', 'DAY!'), " +
			"c: CONTAINS_ANY_CS('Have a nice day!', 'had', 'nice', 'day!'), " +
			"d: CONTAINS_ANY_CS('Have a nice day!', undefined, 'nice', 'day!'), " +
			"e: CONTAINS_ANY_CS('Have a nice day!', undefined, 'had')}", `{"a":true,"b":false,"c":true,"d":true}`,
	},
	{
		"[IS_DATETIME('2024-12-12'), IS_DATETIME('2024-12-12Z'), IS_DATETIME('2024-12-12 20:21:25'), " +
			"IS_DATETIME('2024-12-12T20:21:25Z'), IS_DATETIME('2024-12-12T20:21:25.123'), " +
			"IS_DATETIME('2024-12-12 20:21:25.123Z'), IS_DATETIME('2024-12-12T20Z'), IS_DATETIME('2024-12-12 20:21:25.')]",
		"[true,true,true,true,true,true,false,false]",
	},
	{
		"[MONTH('2024-01-10'), MONTH('2000-12-12T10:00:00'), MONTH('1989-03-03T12:12:12.1234567Z')]", "[1,12,3]",
	},
	{
		"[DateTimeFormat('2024-10-10 14:40:20', 'yyyyMMdd'), DateTimeFormat('2024-10-10 14:40:20', " +
			"'yyyy-MM-dd [HH:mm:ss]'), " +
			"DateTimeFormat('2024-10-10 14:40:20', 'To\\\\da\\\\y i\\\\s: yyyy-MM-ddTHH:mm:ss.fff'), " +
			"DateTimeFormat('2024-10-10 14:40:20', 'To\\\\da\\\\y i\\\\s: yyyy-MM-ddTHH:mm:ss.FFF')]",
		`["20241010","2024-10-10 [14:40:20]","Today is: 2024-10-10T14:40:20.000","Today is: 2024-10-10T14:40:20."]`,
	},
	// Our own.
	{"ARRAY_SUM([])", "0"},
	{"ARRAY_AVG([])", ""},
	{"ARRAY_MAX([])", ""},
	{"ARRAY_MEDIAN([])", ""},
	{"ARRAY_MAX([1, [2]])", ""},
	{"ARRAY_MEDIAN([3, 1, 2])", "2"},
	{"ARRAY_MIN('abc')", ""},
	{"ARRAY_SUM(c.arr)", "6"},
	{"SETEQUAL(c.arr, 1)", ""},
	{"SETEQUAL([{'a': 1, 'b': 2}], [{'b': 2.0, 'a': 1}])", "true"},
	{
		"[LASTINDEXOF('aéa', 'a'), LASTINDEXOF('aéa', 'éa', 1), LASTINDEXOF('abc', 'c', 99), LASTINDEXOF('abc', 'a', -1)]",
		"[2,-1,2,-1]",
	},
	{"LASTINDEXOF('abc', 'a', 0)", "0"},
	{"LASTINDEXOF('abc', 'a', 0.5)", ""},
	{"CONTAINS_ANY_CI(c.none, 'a')", ""},
	{"CONTAINS_ALL_CI('ÄÖ', 'ä', 'ö')", "true"},
	{
		"[IS_DATETIME('2023-02-29'), IS_DATETIME('2023-02-28T24:00:00'), IS_DATETIME('2023-02-28t01:02:03'), " +
			"IS_DATETIME('2023-02-28T1:02:03'), IS_DATETIME('2023-02-28T01:02:03.12345678'), " +
			"IS_DATETIME('2023-02-28T01:02:03+01:00'), IS_DATETIME(20230228), IS_DATETIME(c.none)]",
		"[false,false,false,false,false,false,false,false]",
	},
	{"[DAY('2024-01-10'), YEAR('2024-01-10'), DAY('2023-12-31 23:59:59.9999999Z')]", "[10,2024,31]"},
	{"DAY('x')", ""},
	{"YEAR(2024)", ""},
	{
		"DateTimeFormat('2004-03-09T05:06:07.0123000Z', 'yy y M d H m s | yyyy MM dd HH mm ss | ff fffffff FFF FFFFFFF')",
		`"04 4 3 9 5 6 7 | 2004 03 09 05 06 07 | 01 0123000 012 0123"`,
	},
	{"[DateTimeFormat('2024-01-01T00:00:00', 'h hh'), DateTimeFormat('2024-01-01T13:00:00', 'h hh')]", `["12 12","1 01"]`},
	{"[DateTimeFormat('2024-01-01T12:00:00', 'é h'), DateTimeFormat('0024-01-01', 'yyyy')]", `["é 12","0024"]`},
	{"DateTimeFormat('2024-01-01', 'MMM')", ""},
	{"DateTimeFormat('2024-01-01', 'dddd')", ""},
	{"DateTimeFormat('2024-01-01', 'hh tt')", ""},
	{"DateTimeFormat('2024-01-01', 'ffffffff')", ""},
	{"DateTimeFormat('2024-01-01', 1)", ""},
	{"DateTimeFormat('soon', 'yyyy')", ""},
	{"NOW() = GetCurrentDateTime()", "true"},
	{"NOW('hh', 2) = DateTimeAdd('hh', 2, NOW())", "true"},
	{"NOW('hh', 0.5)", ""},
	{"NOW('century', 1)", ""},
	{"AGO('hh', 2) = DateTimeAdd('hh', -2, NOW())", "true"},
	{"AGO('yyyy', 'one')", ""},
	// A word may differ by as many edits as the distance says: a character more, less or another.
	{"FullTextContains('The red bicycle in the shop', {'term': 'bicycle', 'distance': 1})", "true"},
	{"FullTextContains('a red bicycle', {'term': 'bycycle', 'distance': 2})", "true"},
	{"FullTextContains('a red bicycle', {'term': 'bycicle', 'distance': 1})", "false"},
	{"FullTextContains('a red bicycle', {'term': 'rd', 'distance': 1})", "true"},
	{"FullTextContains('a red bicycle', {'term': 'Reds', 'distance': 1})", "true"},
	{"FullTextContains('a red bicycle', {'term': 'ed bicycles', 'distance': 1})", "true"},
	{"FullTextContains('a red bicycle', {'term': 'bicycle red', 'distance': 2})", "false"},
	{"FullTextContains('a red bicycle', {'term': 'rod', 'distance': 0})", "false"},
	{"FullTextContains('a red bicycle', {distance: 2.0, term: 'red'})", "true"},
	{"FullTextContains('schön', {'term': 'schon', 'distance': 1})", "true"},
	{"FullTextContainsAll('red fox', {'term': 'rad', 'distance': 1}, 'fox')", "true"},
	{"FullTextContainsAll('red fox', {'term': 'rad', 'distance': 1}, {'term': 'f', 'distance': 1})", "false"},
	{"FullTextContainsAny('red fox', 'dog', {'term': 'fax', 'distance': 1})", "true"},
	{"FullTextContains('red', {'term': @missing, 'distance': 1}.term)", ""},
	// What a document has may be anything.
	{"FullTextContains('str', c.s)", "true"},
	{"FullTextContains('str', c.n)", ""},
	{"FullTextContains('str', {'term': c.s, 'distance': c.arr[1]})", "true"},
	{"FullTextContains('str', {'term': c.s, 'distance': c.n})", ""},
	{"FullTextContainsAny('str', c.arr, 'str')", ""},
}

// The service's examples are for a moment of 2024.
func TestNowAndAgoAtTheMomentOfTheDocumentation(t *testing.T) {
	for expr, want := range map[string]string{
		"AGO('yyyy', 1)": `"2023-10-14T14:20:30.6668888Z"`, "AGO('yyyy', -1)": `"2025-10-14T14:20:30.6668888Z"`,
		"AGO('ss', 30)": `"2024-10-14T14:20:00.6668888Z"`, "AGO('ms', 4)": `"2024-10-14T14:20:30.6628888Z"`,
		"NOW()": `"2024-10-14T14:20:30.6668888Z"`, "NOW('dd', 20)": `"2024-11-03T14:20:30.6668888Z"`,
	} {
		b := bound(t, "SELECT VALUE "+expr+" FROM c")
		b.f.now = time.Date(2024, 10, 14, 14, 20, 30, 666_888_800, time.UTC)
		err := b.Rows([]byte(`{}`), func(row []byte) error {
			if string(row) != want {
				t.Errorf("%s is %s, want %s", expr, row, want)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// A wrong term in the query itself would find nothing in any document, so it is an error of the query.
func TestTermsThatAreNoTerms(t *testing.T) {
	const wanted = ": " + wantedTerm + "."
	for query, want := range map[string]string{
		"SELECT * FROM c WHERE FullTextContains(c.t, 5)":                              "Contains function is '5'",
		"SELECT * FROM c WHERE FullTextContainsAll(c.t, ['red', 'shop'])":             `All function is '["red","shop"]'`,
		"SELECT * FROM c WHERE FULLTEXTCONTAINSANY(c.t, 'red', @p)":                   "CONTAINSANY function is 'true'",
		"SELECT * FROM c WHERE FullTextContains(c.t, {'term': 'a', 'distance': 3})":   `is '{"term":"a","distance":3}'`,
		"SELECT * FROM c WHERE FullTextContains(c.t, {'term': 'a', 'distance': -1})":  `is '{"term":"a","distance":-1}'`,
		"SELECT * FROM c WHERE FullTextContains(c.t, {'term': 'a', 'distance': 1.5})": `is '{"term":"a","distance":1.5}'`,
		"SELECT * FROM c WHERE FullTextContains(c.t, {'term': 'a'})":                  `is '{"term":"a"}'`,
		"SELECT * FROM c WHERE FullTextContains(c.t, {'term': 1, 'distance': 1})":     `is '{"term":1,"distance":1}'`,
		"SELECT * FROM c WHERE FullTextContains(c.t, {'term': @p, 'distance': 1})":    `is '{"term":true,"distance":1}'`,
		"SELECT * FROM c ORDER BY RANK FullTextScore(c.t, ['a', 1])":                  "FullTextScore function is '1'",
		"SELECT * FROM c ORDER BY RANK FullTextScore(c.t, 'a', null)":                 "FullTextScore function is 'null'",
	} {
		_, err := run(t, query, nil, Parameter{"@p", []byte("true")})
		if err == nil || !strings.HasSuffix(err.Error(), want+wanted) {
			t.Errorf("%s: %v, want …%s", query, err, want+wanted)
		}
	}
	const query = "SELECT * FROM c WHERE FullTextContainsAny(c.t, 'a', @p) AND c.n > 1"
	_, err := run(t, query, nil, Parameter{"@p", []byte("true")})
	if own, ok := errors.AsType[*Error](err); !ok || query[own.At:own.End] != "@p" {
		t.Errorf("%s: %v, want an error at @p", query, err)
	}
	for _, query := range []string{
		"SELECT * FROM c ORDER BY RANK FullTextScore(c.t, ['a', {'term': 'b', 'distance': 1}])",
		"SELECT * FROM c ORDER BY RANK FullTextScore(c.t, @list)", "SELECT * FROM c WHERE FullTextContains(c.t, @missing)",
	} {
		if _, err := run(t, query, nil, Parameter{"@list", []byte(`["a"]`)}); err != nil {
			t.Errorf("%s: %v", query, err)
		}
	}
}
