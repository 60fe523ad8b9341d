package sql_test

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"unicode"
)

// builtin is a function as it is documented. For arguments of other types than kinds it is undefined: s, n, b, a, o, or
// * for any that is defined, ? for any at all; what follows a / may be missing, and + repeats the last.
type builtin struct {
	kinds string
	run   func(a []any) any
}

// call calls a function.
func call(name string, args []any) any {
	f := builtins[strings.ToUpper(name)]
	kinds := strings.ReplaceAll(f.kinds, "/", "")
	for i, v := range args {
		kind := kinds[min(i, len(strings.TrimSuffix(kinds, "+"))-1)]
		if !strings.ContainsRune(letters[typeOf(v)], rune(kind)) {
			return undefined
		}
	}
	return f.run(args)
}

// letters are the kinds that a type is of.
var letters = [...]string{
	isUndefined: "?", isNull: "*?", isFalse: "b*?", isTrue: "b*?", isNumber: "n*?",
	isString: "s*?", isArray: "a*?", isObject: "o*?",
}

func is(types ...int) builtin {
	return builtin{"?", func(a []any) any { return slices.Contains(types, typeOf(a[0])) }}
}

func ofNumber(f func(float64) float64) builtin {
	return builtin{"n", func(a []any) any { return number(f(a[0].(float64))) }}
}

func ofText(f func(string) string) builtin {
	return builtin{"s", func(a []any) any { return f(a[0].(string)) }}
}

func ofTexts(f func(s, t string) bool) builtin {
	return builtin{"ss/b", func(a []any) any {
		s, t := a[0].(string), a[1].(string)
		if len(a) > 2 && a[2] == true {
			s, t = strings.ToLower(s), strings.ToLower(t)
		}
		return f(s, t)
	}}
}

// ofWhole is a function of a string and whole numbers.
func ofWhole(kinds string, f func(s []rune, n []int) any) builtin {
	return builtin{kinds, func(a []any) any {
		var n []int
		for _, v := range a[1:] {
			i, ok := whole(v)
			if !ok {
				return undefined
			}
			n = append(n, i)
		}
		return f([]rune(a[0].(string)), n)
	}}
}

func between(low, n, high int) int { return max(low, min(n, high)) }

// has tells whether an array has a value.
func has(list []any, v any) bool {
	return slices.ContainsFunc(list, func(w any) bool { return same(v, w) })
}

// once leaves out what came before.
func once(list []any, keep func(v any) bool) []any {
	out := []any{}
	for _, v := range list {
		if keep(v) && !has(out, v) {
			out = append(out, v)
		}
	}
	return out
}

func ofSets(keep func(x, y []any, v any) bool) builtin {
	return builtin{"aa", func(a []any) any {
		x, y := a[0].([]any), a[1].([]any)
		return once(slices.Concat(x, y), func(v any) bool { return keep(x, y, v) })
	}}
}

// parsed is JSON of some types.
func parsed(types ...int) builtin {
	return builtin{"s", func(a []any) any {
		var v any
		if json.Unmarshal([]byte(a[0].(string)), &v) != nil || !slices.Contains(types, typeOf(v)) {
			return undefined
		}
		return v
	}}
}

var builtins = map[string]builtin{
	"IS_DEFINED": is(isNull, isFalse, isTrue, isNumber, isString, isArray, isObject), "IS_NULL": is(isNull),
	"IS_BOOL":   is(isFalse, isTrue),
	"IS_NUMBER": is(isNumber), "IS_FINITE_NUMBER": is(isNumber), "IS_STRING": is(isString), "IS_ARRAY": is(isArray),
	"IS_OBJECT":    is(isObject),
	"IS_PRIMITIVE": is(isNull, isFalse, isTrue, isNumber, isString),
	"IS_INTEGER": {"?", func(a []any) any { // of 64 bits
		f, ok := a[0].(float64)
		return ok && f == math.Floor(f) && -(1<<63) <= f && f < 1<<63
	}},

	"ABS": ofNumber(math.Abs), "CEILING": ofNumber(math.Ceil), "FLOOR": ofNumber(math.Floor),
	"TRUNC": ofNumber(math.Trunc), "SQRT": ofNumber(math.Sqrt),
	"SQUARE": ofNumber(func(x float64) float64 { return x * x }),
	"ROUND":  ofNumber(math.Round), // halves away from zero
	"SIGN": ofNumber(func(x float64) float64 {
		return map[bool]float64{true: 1}[x > 0] - map[bool]float64{true: 1}[x < 0]
	}),
	"POWER": {"nn", func(a []any) any { return number(math.Pow(a[0].(float64), a[1].(float64))) }},
	"NUMBERBIN": {"nn", func(a []any) any {
		return number(math.Floor(a[0].(float64)/a[1].(float64)) * a[1].(float64))
	}},

	"LOWER": ofText(strings.ToLower), "UPPER": ofText(strings.ToUpper),
	"TRIM": ofText(strings.TrimSpace), "LTRIM": ofText(func(s string) string {
		return strings.TrimLeftFunc(s, unicode.IsSpace)
	}),
	"RTRIM": ofText(func(s string) string { return strings.TrimRightFunc(s, unicode.IsSpace) }),
	"REVERSE": ofText(func(s string) string {
		out := ""
		for _, r := range s {
			out = string(r) + out
		}
		return out
	}),
	"CONTAINS": ofTexts(strings.Contains), "STARTSWITH": ofTexts(strings.HasPrefix),
	"ENDSWITH":     ofTexts(strings.HasSuffix),
	"STRINGEQUALS": ofTexts(func(s, t string) bool { return s == t }),
	"LENGTH":       {"s", func(a []any) any { return float64(len([]rune(a[0].(string)))) }},
	"CONCAT": {"ss+", func(a []any) any {
		var out strings.Builder
		for _, v := range a {
			out.WriteString(v.(string))
		}
		return out.String()
	}},
	"LEFT":  ofWhole("sn", func(s []rune, n []int) any { return string(s[:between(0, n[0], len(s))]) }),
	"RIGHT": ofWhole("sn", func(s []rune, n []int) any { return string(s[len(s)-between(0, n[0], len(s)):]) }),
	"SUBSTRING": ofWhole("snn", func(s []rune, n []int) any {
		if n[0] < 0 || n[0] >= len(s) {
			return ""
		}
		return string(s[n[0] : n[0]+between(0, n[1], len(s)-n[0])])
	}),
	"REPLICATE": ofWhole("sn", func(s []rune, n []int) any {
		if n[0] < 0 || n[0]*len(string(s)) > 10_000 {
			return undefined
		}
		return strings.Repeat(string(s), n[0])
	}),
	"INDEX_OF": {"ss/n", indexOf},
	"REPLACE": {"sss", func(a []any) any {
		if a[1] == "" {
			panic(unclear{"REPLACE of nothing"})
		}
		return strings.Join(strings.Split(a[0].(string), a[1].(string)), a[2].(string))
	}},
	"STRINGSPLIT": {"ss", stringSplit}, "STRINGJOIN": {"as", stringJoin},

	"STRINGTONUMBER": parsed(isNumber), "STRINGTOBOOLEAN": parsed(isFalse, isTrue), "STRINGTONULL": parsed(isNull),
	"STRINGTOARRAY": parsed(isArray), "STRINGTOOBJECT": parsed(isObject),
	"TOSTRING": {"*", func(a []any) any { return textOf(a[0]) }},
	"OBJECTTOARRAY": {"o", func(a []any) any {
		out := []any{}
		for k, v := range a[0].(map[string]any) {
			out = append(out, map[string]any{"k": k, "v": v})
		}
		if len(out) > 1 {
			panic(unclear{"the order of members"})
		}
		return out
	}},

	"ARRAY_LENGTH": {"a", func(a []any) any { return float64(len(a[0].([]any))) }},
	"ARRAY_CONCAT": {"aa+", func(a []any) any {
		out := []any{}
		for _, v := range a {
			out = append(out, v.([]any)...)
		}
		return out
	}},
	"ARRAY_SLICE": {"an/n", arraySlice}, "ARRAY_CONTAINS": {"a*/b", arrayContains},
	"ARRAY_CONTAINS_ANY": {"a?+", func(a []any) any {
		return contains("OR", a)
	}}, "ARRAY_CONTAINS_ALL": {"a?+", func(a []any) any { return contains("AND", a) }},
	"SETINTERSECT":  ofSets(func(x, y []any, v any) bool { return has(x, v) && has(y, v) }),
	"SETUNION":      ofSets(func(_, _ []any, _ any) bool { return true }),
	"SETDIFFERENCE": ofSets(func(_, y []any, v any) bool { return !has(y, v) }),

	"IIF": {"??+", func(a []any) any { return operate(&term{op: "choice"}, a) }},
	"CHOOSE": {"n?+", func(a []any) any {
		if n, ok := whole(a[0]); ok && n >= 1 && n < len(a) {
			return a[n]
		}
		return undefined
	}},
}

func indexOf(a []any) any {
	s, from := []rune(a[0].(string)), 0
	if len(a) > 2 {
		n, ok := whole(a[2])
		if !ok {
			return undefined
		}
		if from = n; n < 0 || n > len(s) {
			panic(unclear{"INDEX_OF from outside"})
		}
	}
	for i := from; i <= len(s); i++ {
		if strings.HasPrefix(string(s[i:]), a[1].(string)) {
			return float64(i)
		}
	}
	return -1.0
}

func stringSplit(a []any) any {
	if a[1] == "" {
		panic(unclear{"STRINGSPLIT at nothing"})
	}
	out := []any{}
	for part := range strings.SplitSeq(a[0].(string), a[1].(string)) {
		out = append(out, part)
	}
	return out
}

func stringJoin(a []any) any {
	var parts []string
	for _, v := range a[0].([]any) {
		s, ok := v.(string)
		if !ok {
			return undefined
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, a[1].(string))
}

func textOf(v any) any {
	if s, ok := v.(string); ok {
		return s
	}
	if f, ok := v.(float64); ok && math.Abs(f) >= 1<<53 || typeOf(v) >= isArray {
		panic(unclear{"the text is as the document has it"})
	} else if ok && f == 0 {
		return "0"
	}
	b, err := json.Marshal(v)
	if err != nil || strings.ContainsRune(string(b), 'e') && typeOf(v) == isNumber {
		panic(unclear{"how an exponent is written"})
	}
	return string(b)
}

func arraySlice(a []any) any {
	list := a[0].([]any)
	start, ok := whole(a[1])
	if start < 0 {
		start = max(0, start+len(list))
	}
	start = min(start, len(list))
	n := len(list)
	if len(a) > 2 {
		var ok2 bool
		n, ok2 = whole(a[2])
		ok = ok && ok2
	}
	if !ok {
		return undefined
	}
	return append([]any{}, list[start:start+between(0, n, len(list)-start)]...)
}

func arrayContains(a []any) any {
	for _, v := range a[0].([]any) {
		if same(v, a[1]) || len(a) > 2 && a[2] == true && partly(v, a[1]) {
			return true
		}
	}
	return false
}

// partly tells whether an object has all members of another.
func partly(v, wanted any) bool {
	object, ok := v.(map[string]any)
	members, ok2 := wanted.(map[string]any)
	for k, w := range members {
		m, found := object[k]
		ok = ok && found && same(m, w)
	}
	return ok && ok2
}

// contains tells whether an array contains any or all of some values; undefined is in none, and in none is it not.
func contains(op string, a []any) any {
	out := any(op == "AND")
	for _, v := range a[1:] {
		found := any(undefined)
		if v != undefined {
			found = has(a[0].([]any), v)
		}
		out = infix(op, out, found)
	}
	return out
}

// like is LIKE: % any text, _ a character, [ab] and [a-c] one of these, [^a] another, and what follows the third is
// itself.
func like(a []any) any {
	text, ok := a[0].(string)
	pattern, ok2 := a[1].(string)
	escape := rune(-1)
	if len(a) > 2 {
		s, ok3 := a[2].(string)
		if r := []rune(s); ok3 && len(r) == 1 {
			escape = r[0]
		} else {
			return undefined
		}
	}
	if !ok || !ok2 {
		return undefined
	}
	return matches([]rune(text), []rune(pattern), escape)
}

func matches(text, pattern []rune, escape rune) bool {
	if len(pattern) == 0 {
		return len(text) == 0
	}
	first, rest := pattern[0], pattern[1:]
	if first == '%' && escape != '%' {
		return matches(text, rest, escape) || len(text) > 0 && matches(text[1:], pattern, escape)
	}
	if len(text) == 0 {
		return false
	}
	switch {
	case first == escape && len(rest) > 0:
		return text[0] == rest[0] && matches(text[1:], rest[1:], escape)
	case first == '_':
		return matches(text[1:], rest, escape)
	case first == '[' && slices.Contains(rest, ']'):
		end := slices.Index(rest, ']')
		return oneOf(text[0], string(rest[:end])) && matches(text[1:], rest[end+1:], escape)
	}
	return text[0] == first && matches(text[1:], rest, escape)
}

func oneOf(r rune, set string) bool {
	if inner, ok := strings.CutPrefix(set, "^"); ok {
		return !oneOf(r, inner)
	}
	if s := []rune(set); len(s) == 3 && s[1] == '-' {
		return s[0] <= r && r <= s[2]
	}
	return strings.ContainsRune(set, r)
}
