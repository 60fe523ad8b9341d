package sql

import (
	"bytes"
	"maps"
	"math"
)

// The table of built-in functions, and the functions that test types or compare two strings. The other files with
// functions in their names contain the rest, by topic.

// functions are the built-in functions by upper-case name. An unknown name is an error of the query, not an undefined
// value, because with a typing error the query would otherwise silently return no documents.
var functions = register(
	typeFunctions, textTests, textFunctions, conversions, arrayFunctions, mathFunctions, intFunctions, timeFunctions,
	wordFunctions, spatialFunctions, containsFunctions, arrayStatistics, dateFunctions)

// register joins the tables of all files.
func register(tables ...map[string]*function) map[string]*function {
	all := map[string]*function{}
	for _, t := range tables {
		maps.Copy(all, t)
	}
	return all
}

// typeTest makes a function defined for every argument, including undefined.
func typeTest(matches func(value) bool) *function {
	return &function{1, 1, true, func(_ *frame, args []value) value { return boolValue(matches(args[0])) }}
}

// isKind makes a test for a type.
func isKind(k kind) *function { return typeTest(func(v value) bool { return v.kind == k }) }

var typeFunctions = map[string]*function{
	"CHOOSE":           {2, -1, true, choose},
	"IS_DEFINED":       typeTest(func(v value) bool { return v.kind != undefined }),
	"IS_NULL":          isKind(null),
	"IS_STRING":        isKind(str),
	"IS_NUMBER":        isKind(number),
	"IS_ARRAY":         isKind(array),
	"IS_OBJECT":        isKind(object),
	"IS_BOOL":          typeTest(value.isBool),
	"IS_BOOLEAN":       typeTest(value.isBool), // the same, for SDKs that continue sorted pages
	"IS_PRIMITIVE":     typeTest(func(v value) bool { return v.kind != undefined && v.kind < array }),
	"IS_FINITE_NUMBER": typeTest(func(v value) bool { return v.kind == number && !math.IsInf(v.float(), 0) }),
	"IS_INTEGER":       typeTest(isInteger),
}

// isInteger reports whether a value is a whole number that fits in 64 bits, like the service's IS_INTEGER.
func isInteger(v value) bool {
	f := v.float()
	return v.kind == number && f == math.Trunc(f) && -1<<63 <= f && f < 1<<63
}

// textTest makes a function of two strings. If the third argument is true, case is ignored. Lower case is that of
// Unicode, without rules of a language.
func textTest(test func(a, b []byte) bool) *function {
	return &function{2, 3, false, func(_ *frame, args []value) value {
		if args[0].kind != str || args[1].kind != str || len(args) > 2 && !args[2].isBool() {
			return value{}
		}
		x, y := args[0].bytes(), args[1].bytes()
		if len(args) > 2 && args[2].kind == isTrue {
			x, y = bytes.ToLower(x), bytes.ToLower(y)
		}
		return boolValue(test(x, y))
	}}
}

var textTests = map[string]*function{
	"STARTSWITH":   textTest(bytes.HasPrefix),
	"ENDSWITH":     textTest(bytes.HasSuffix),
	"CONTAINS":     textTest(bytes.Contains),
	"STRINGEQUALS": textTest(bytes.Equal),
}

// choose is CHOOSE(n, a, b, …): the nth value, counted from 1.
func choose(_ *frame, args []value) value {
	if n, ok := args[0].int(); ok && 1 <= n && n < len(args) {
		return args[n]
	}
	return value{}
}

// length returns a whole number that is a position or a length in a text or array. The number is limited to 32 bits,
// because texts and arrays are shorter; so the sum of two lengths cannot overflow.
func (v value) length() (int, bool) {
	f := v.float()
	return int(max(-math.MaxInt32, min(f, math.MaxInt32))), v.kind == number && f == math.Trunc(f)
}

// int returns the value of a whole number of 32 bits.
func (v value) int() (int, bool) {
	if v.kind != number {
		return 0, false
	}
	f := v.float()
	return int(f), f == math.Trunc(f) && math.Abs(f) <= math.MaxInt32
}
