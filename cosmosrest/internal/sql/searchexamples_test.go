package sql

import "testing"

// The examples of the service's documentation, with the values that it gives, and our own beside them.

func init() {
	expressions = append(expressions, documented...)
	expressions = append(expressions, spatial...)
}

var documented = []struct{ expr, want string }{
	{"{addNumber: IntAdd(20, 10), addZero: IntAdd(20, 0), addDecimal: IntAdd(20, 0.10)}", `{"addNumber":30,"addZero":20}`},
	{
		"{n: IntSub(25, 50), p: IntSub(25, 15), s: IntSub(25, 25), z: IntSub(25, 0), d: IntSub(25, 2.5)}",
		`{"n":-25,"p":10,"s":0,"z":25}`,
	},
	{
		"{m: IntMul(5, 2), n: IntMul(5, -2), p: IntMul(-5, -2), s: IntMul(5, 5), c: IntMul(5, IntMul(5, 5)), " +
			"z: IntMul(5, 0), d: IntMul(5, 0.5)}", `{"m":10,"n":-10,"p":10,"s":25,"c":125,"z":0}`,
	},
	{
		"{d: IntDiv(10, 2), n: IntDiv(10, -2), p: IntDiv(-10, -2), o: IntDiv(10, 10), z: IntDiv(10, 0), f: IntDiv(10, 0.1)}",
		`{"d":5,"n":-5,"p":5,"o":1}`,
	},
	{
		"{m: IntMod(12, 5), p: IntMod(12, -5), n: IntMod(-12, -5), r: IntMod(15, 5), z: IntMod(12, 0), d: IntMod(12, 0.2)}",
		`{"m":2,"p":2,"n":-2,"r":0}`,
	},
	{
		"{n: IntBitAnd(15, 25), z: IntBitAnd(15, 0), s: IntBitAnd(15, 15), d: IntBitAnd(15, 1.5)}",
		`{"n":9,"z":0,"s":15}`,
	},
	{"{o: IntBitOr(56, 100), s: IntBitOr(56, 56), z: IntBitOr(56, 0), d: IntBitOr(56, 0.1)}", `{"o":124,"s":56,"z":56}`},
	{"{o: IntBitXor(56, 100), s: IntBitXor(56, 56), z: IntBitXor(56, 0), d: IntBitXor(56, 0.1)}", `{"o":92,"s":0,"z":56}`},
	{"{n: IntBitNot(65), z: IntBitNot(0), d: IntBitNot(0.1)}", `{"n":-66,"z":-1}`},
	{"{i: IntBitLeftShift(16, 4), d: IntBitLeftShift(16, 0.4)}", `{"i":256}`},
	{"{i: IntBitRightShift(16, 4), d: IntBitRightShift(16, 0.4)}", `{"i":1}`},
	{"DateTimeBin('2021-01-08T18:35:00.0000000', 'dd')", `"2021-01-08T00:00:00.0000000Z"`},
	{"DateTimeBin('2021-01-08T18:35:00.0000000', 'hh')", `"2021-01-08T18:00:00.0000000Z"`},
	{"DateTimeBin('2021-01-08T18:35:00.0000000', 'ss')", `"2021-01-08T18:35:00.0000000Z"`},
	{"DateTimeBin('2021-01-08T18:35:00.0000000', 'hh', 5)", `"2021-01-08T15:00:00.0000000Z"`},
	{"DateTimeBin('2021-01-08T18:35:00.0000000', 'dd', 7)", `"2021-01-07T00:00:00.0000000Z"`},
	{
		"DateTimeBin('2021-01-08T18:35:00.0000000', 'dd', 7, '1601-01-01T00:00:00.0000000')",
		`"2021-01-04T00:00:00.0000000Z"`,
	},
	// Our own. All digits of 64 bits are kept, and the sum of the two largest numbers wraps around.
	{"IntAdd(9223372036854775806, 1)", "9223372036854775807"},
	{"IntAdd(9223372036854775807, 1)", "-9223372036854775808"},
	{"IntAdd(9223372036854775808, 0)", ""},
	{"IntMul(3037000500, 3037000500)", "-9223372036709301616"},
	{"IntDiv(-9223372036854775808, -1)", "-9223372036854775808"},
	{"IntBitNot('1')", ""},
	{"IntDiv(-7, 2)", "-3"},
	{"IntBitRightShift(-1, 1)", "-1"},
	{"IntBitLeftShift(1, 63)", "-9223372036854775808"},
	{"DateTimeBin('1969-12-31T23:59:59Z', 'dd')", `"1969-12-31T00:00:00.0000000Z"`},
	{"DateTimeBin('2021-01-08T18:35:00.1234567Z', 'mcs', 2)", `"2021-01-08T18:35:00.1234560Z"`},
	{"DateTimeBin('9999-12-31T23:59:59.9999999Z', 'hh', 1000000)", `"9955-07-25T16:00:00.0000000Z"`},
	{"DateTimeBin('2021-01-08', 'mm')", ""},
	{"DateTimeBin('2021-01-08', 'dd', 0)", ""},
	{"DateTimeBin('2021-01-08', 'dd', 1.5)", ""},
	{"DateTimeBin('1600-12-31', 'dd')", ""},
	{"DateTimeBin('x', 'dd')", ""},
	{"VectorDistance([1, 0], [0, 1])", "0"},
	{"VectorDistance([3, 4], [3, 4])", "1"},
	{"VectorDistance([1, 2, 3], [4, 5, 6], true, {'distanceFunction': 'DotProduct', 'dataType': 'Float32'})", "32"},
	{"VectorDistance([1, 2], [4, 6], false, {distanceFunction: 'euclidean'})", "5"},
	{"VectorDistance(c.arr, [1, 2, 3], false, {distanceFunction: 'euclidean'})", "0"},
	{"VectorDistance([1, 2], [1, 2, 3])", ""},
	{"VectorDistance([1, 'a'], [1, 2])", ""},
	{"VectorDistance([[1]], [1])", ""},
	{"VectorDistance([0, 0], [1, 1])", ""},
	{"VectorDistance(c.none, [1])", ""},
	{"VectorDistance([1], [1], 'x')", ""},
	{"DOCUMENTID(c)", ""}, // the sample has no resource id
}

var spatial = []struct{ expr, want string }{
	{
		"{valid: ST_ISVALID({'type': 'Point', 'coordinates': [-84.38876194345323, 33.75682784306348]}), invalid: " +
			"ST_ISVALID({'type': 'Point', 'coordinates': [133.75682784306348, -184.38876194345323]})}",
		`{"valid":true,"invalid":false}`,
	},
	{
		"ST_ISVALIDDETAILED({'type': 'Point', 'coordinates': [133.75682784306348, -184.38876194345323]})",
		`{"valid":false,"reason":"Latitude values must be between -90 and 90 degrees."}`,
	},
	{"ST_ISVALIDDETAILED({'type': 'Point', 'coordinates': [-84.38876194345323, 33.75682784306348]})", `{"valid":true}`},
	{
		"ST_WITHIN({'type': 'Point', 'coordinates': [31.9, -4.8]}, {'type': 'Polygon', 'coordinates': [[[31.8, -5], " +
			"[32, -5], [32, -4.7], [31.8, -4.7], [31.8, -5]]]})", "true",
	},
	{
		"ABS(ST_AREA({'type': 'Polygon', 'coordinates': [[[31.8, -5], [32, -5], [32, -4.7], [31.8, -4.7], [31.8, -5]]]}) " +
			"- 735970283.0522614) < 10", "true",
	},
	{
		"ABS(ST_DISTANCE({'type': 'Point', 'coordinates': [-122.12826822304672, 47.63980239335718]}, {'type': 'Point', " +
			"'coordinates': [-122.11758113953535, 47.66901087006131]}) / 1000 - 3.345269817267368) < 0.000001", "true",
	},
	{
		"ST_INTERSECTS({'type': 'LineString', 'coordinates': [[0, 0], [0, 50]]}, {'type': 'Polygon', 'coordinates': " +
			"[[[-60, 20], [70, 20], [70, 70], [-60, 70], [-60, 20]]]})", "true",
	},
	{"ST_DISTANCE(42, 1337)", ""},
	{"ST_INTERSECTS(42, 1337)", ""},
	{"ST_WITHIN(42, 1337)", ""},
	{"ST_ISVALID(42)", "false"},
	{"ST_ISVALID(c.none)", ""},
}

// The example of the documentation: the resource id of the item is 36ZyAPW+uN8NAAAAAAAAAA==, its document id 13.
func TestDocumentID(t *testing.T) {
	doc := []string{`{"id":"5741047452","tags":[1],"_rid":"36ZyAPW+uN8NAAAAAAAAAA=="}`}
	for query, want := range map[string]string{
		"SELECT VALUE DOCUMENTID(p) FROM product p":                                   "13",
		"SELECT p.id FROM product p WHERE DOCUMENTID(p) >= 5 AND DOCUMENTID(p) <= 15": `{"id":"5741047452"}`,
		"SELECT p.id FROM product p WHERE DOCUMENTID(p) > 13":                         "",
		"SELECT VALUE (SELECT VALUE DOCUMENTID(p) FROM t IN p.tags) FROM product p":   "13",
	} {
		if got, err := run(t, query, doc); err != nil || got != want {
			t.Errorf("%s = %q, %v; want %q", query, got, err, want)
		}
	}
}
