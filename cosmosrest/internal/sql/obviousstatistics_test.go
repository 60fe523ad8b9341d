package sql_test

import (
	"math"
	"slices"
	"sort"
	"strings"
	"time"
)

// The second evaluation of the functions that make one value of an array, and that look for several strings.

func init() {
	builtins["ARRAY_MAX"] = farthest(func(rank int) bool { return rank > 0 })
	builtins["ARRAY_MIN"] = farthest(func(rank int) bool { return rank < 0 })
	builtins["ARRAY_SUM"] = ofNumbers(func(all []float64) any { return number(total(all)) })
	builtins["ARRAY_AVG"] = ofNumbers(func(all []float64) any {
		if len(all) == 0 {
			return undefined
		}
		return number(total(all) / float64(len(all)))
	})
	builtins["ARRAY_MEDIAN"] = ofNumbers(func(all []float64) any {
		if len(all) == 0 {
			return undefined
		}
		sort.Float64s(all)
		return number((all[(len(all)-1)/2] + all[len(all)/2]) / 2)
	})
	builtins["SETEQUAL"] = builtin{"aa", func(a []any) any {
		x, y := a[0].([]any), a[1].([]any)
		return !slices.ContainsFunc(x, func(v any) bool { return !has(y, v) }) &&
			!slices.ContainsFunc(y, func(v any) bool { return !has(x, v) })
	}}
	builtins["LASTINDEXOF"] = builtin{"ss/n", func(a []any) any {
		s, wanted := []rune(a[0].(string)), []rune(a[1].(string))
		end := len(s)
		if len(a) > 2 {
			from, ok := whole(a[2])
			if !ok {
				return undefined
			}
			end = between(0, from+1, len(s))
		}
		for i := end - len(wanted); i >= 0; i-- {
			if string(s[i:i+len(wanted)]) == string(wanted) {
				return float64(i)
			}
		}
		return -1.0
	}}
	for _, op := range []string{"ALL AND", "ANY OR"} {
		word, joined, _ := strings.Cut(op, " ")
		for _, fold := range []bool{false, true} {
			name := "CONTAINS_" + word + map[bool]string{true: "_CI", false: "_CS"}[fold]
			builtins[name] = builtin{"s?+", func(a []any) any {
				out := any(joined == "AND")
				for _, v := range a[1:] {
					out = infix(joined, out, call("CONTAINS", []any{a[0], v, fold}))
				}
				return out
			}}
		}
	}
	builtins["IS_DATETIME"] = builtin{"?", func(a []any) any {
		s, _ := a[0].(string)
		s = strings.TrimSuffix(s, "Z")
		day, clock, timed := strings.Cut(strings.Replace(s, "T", " ", 1), " ")
		if seconds, fraction, dotted := strings.Cut(clock, "."); dotted {
			if len(fraction) < 1 || len(fraction) > 7 || strings.Trim(fraction, "0123456789") != "" {
				return false
			}
			clock = seconds
		}
		_, err := time.Parse("2006-01-02", day)
		_, err2 := time.Parse("15:04:05", clock)
		return err == nil && (!timed || err2 == nil && len(clock) == 8)
	}}
}

// farthest is the element that is beyond all others.
func farthest(beyond func(rank int) bool) builtin {
	return builtin{"a", func(a []any) any {
		best := any(undefined)
		for _, v := range a[0].([]any) {
			if typeOf(v) >= isArray {
				return undefined
			}
			if best == undefined || beyond(rank(v, best)) {
				best = v
			}
		}
		return best
	}}
}

// rank orders null, booleans, numbers and strings.
func rank(a, b any) int {
	if typeOf(a) != typeOf(b) {
		return typeOf(a) - typeOf(b)
	}
	switch x := a.(type) {
	case float64:
		return int(math.Copysign(1, x-b.(float64)))
	case string:
		return strings.Compare(x, b.(string))
	}
	return 0
}

// ofNumbers is a function of an array of numbers.
func ofNumbers(f func(all []float64) any) builtin {
	return builtin{"a", func(a []any) any {
		var all []float64
		for _, v := range a[0].([]any) {
			x, ok := v.(float64)
			if !ok {
				return undefined
			}
			all = append(all, x)
		}
		return f(all)
	}}
}

// total is a sum, if the last digit does not depend on the order.
func total(all []float64) float64 {
	forth, back := 0.0, 0.0
	for i := range all {
		forth += all[i]
		back += all[len(all)-1-i]
	}
	if forth != back {
		panic(unclear{"the last digit of a sum"})
	}
	return forth
}
