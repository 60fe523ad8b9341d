package sql_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/millrace/changefeed/cosmosrest/internal/sql"
)

// The second evaluation of the functions that make one value of an array, that look for several strings, and that
// search for terms with edits.

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

// edits is the distance of Levenshtein, by the table of all beginnings of both words.
func edits(a, b string) int {
	x, y := []rune(a), []rune(b)
	table := make([][]int, len(x)+1)
	for i := range table {
		table[i] = make([]int, len(y)+1)
		for j := range table[i] {
			switch {
			case i == 0 || j == 0:
				table[i][j] = i + j
			case x[i-1] == y[j-1]:
				table[i][j] = table[i-1][j-1]
			default:
				table[i][j] = 1 + min(table[i-1][j], table[i][j-1], table[i-1][j-1])
			}
		}
	}
	return table[len(x)][len(y)]
}

// has a text a phrase, if each word may differ by some edits?
func hasNear(text, phrase []string, most int) bool {
	for i := range max(0, len(text)-len(phrase)+1) {
		near := true
		for j, word := range phrase {
			near = near && edits(text[i+j], word) <= most
		}
		if near && len(phrase) > 0 {
			return true
		}
	}
	return false
}

// Searches with edits find what the table of all beginnings finds.
func TestSearchesWithEditsAgainstATable(t *testing.T) {
	draw := rand.New(rand.NewPCG(7, 8))
	words := func(most int) (all []string) {
		for range 1 + draw.IntN(most) {
			var word strings.Builder
			for range 1 + draw.IntN(5) {
				word.WriteString([]string{"a", "b", "é"}[draw.IntN(3)])
			}
			all = append(all, word.String())
		}
		return all
	}
	found := map[string]int{}
	for range 3000 {
		text := words(5)
		var terms []string
		all, some := true, false
		for range 1 + draw.IntN(3) {
			phrase, most := words(2), draw.IntN(3)
			near := hasNear(text, phrase, most)
			all, some = all && near, some || near
			terms = append(terms, fmt.Sprintf("{'term': '%s', 'distance': %d}", strings.Join(phrase, " "), most))
		}
		list := strings.Join(terms, ", ")
		query := fmt.Sprintf("SELECT VALUE [FullTextContainsAll(c.t, %s), FullTextContainsAny(c.t, %s)] FROM c", list, list)
		q, err := sql.Parse(query)
		if err != nil {
			t.Fatal(err)
		}
		b, err := q.Bind(nil)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := rowsOf(b, []document{{text: fmt.Sprintf(`{"t":%q}`, strings.Join(text, " "))}})
		want := fmt.Sprintf("[%v,%v]", all, some)
		if err != nil || len(rows) != 1 || rows[0] != want {
			t.Fatalf("%s over %q: %v, %v, want %s", query, text, rows, err, want)
		}
		found[want]++
	}
	if len(found) != 3 || found["[true,true]"] < 300 || found["[false,true]"] < 300 || found["[false,false]"] < 300 {
		t.Errorf("the searches have the results %v: want 300 of each kind", found)
	}
}
