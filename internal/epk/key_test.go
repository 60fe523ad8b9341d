package epk

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestParseReadsEveryKindOfComponent(t *testing.T) {
	for key, want := range map[string]Components{
		`[]`:                       {},
		`[{}]`:                     {{}},
		`[ { } ]`:                  {{}},
		`[null]`:                   {Null()},
		` [true, false] `:          {Bool(true), Bool(false)},
		`["London", 5, -2.5e3]`:    {String("London"), Number(5), Number(-2500)},
		`["", "\"\u00e9\\", "鱀"]`:  {String(""), String(`"é\`), String("鱀")},
		`[1e-999]`:                 {Number(0)},
		`["Infinity", "[\"a\"]"]`:  {String("Infinity"), String(`["a"]`)},
		"[\n\t\"a\",\r\n {\n} \n]": {String("a"), {}},
	} {
		got, err := Parse(key)
		if err != nil {
			t.Errorf("Parse(%s): %v", key, err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("Parse(%s) = %v, want %v", key, got, want)
		}
	}
}

func TestParseSaysWhatIsWrongAndWhere(t *testing.T) {
	const components = "want a string, a number, true, false, null or {}"
	for key, want := range map[string]string{
		``:             `parse partition key : want a JSON array, such as ["London"]`,
		`London`:       `parse partition key London: want a JSON array, such as ["London"]`,
		`"London"`:     `parse partition key "London": want a JSON array, such as ["London"]`,
		`null`:         `parse partition key null: want a JSON array, such as ["London"]`,
		`{"a":1}`:      `parse partition key {"a":1}: want a JSON array, such as ["London"]`,
		`["a"`:         `parse partition key ["a": unexpected end of JSON input`,
		`["a"] ["b"]`:  `parse partition key ["a"] ["b"]: invalid character '[' after top-level value`,
		`["a", [1]]`:   `parse partition key: component 1 is [1]: an array cannot be a component; ` + components,
		`[{"type":1}]`: `parse partition key: component 0 is {"type":1}: an object with members cannot be a component; ` + components,
		`[1, 2, 1e999]`: `parse partition key: component 2 is 1e999: the number does not fit a float64; ` +
			`want one between -1.8e308 and 1.8e308`,
		`[["` + strings.Repeat("é", 99) + `"]]`: `parse partition key: component 0 is ["` + strings.Repeat("é", 31) +
			`...: an array cannot be a component; ` + components,
	} {
		if c, err := Parse(key); err == nil {
			t.Errorf("Parse(%s) = %v, want an error", key, c)
		} else if err.Error() != want {
			t.Errorf("Parse(%s):\n got %v\nwant %s", key, err, want)
		}
	}
}

func TestNumberUndoesAppendNumber(t *testing.T) {
	for _, f := range []float64{
		0, 1, -1, 5.5, -1e-300, math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64,
		-math.SmallestNonzeroFloat64, math.Inf(1), math.Inf(-1), 1<<32 - 1,
	} {
		if got := number(appendNumber(nil, f)); got != f {
			t.Errorf("%v became %v", f, got)
		}
	}
}

func TestSortedNumbersSortLikeTheNumbers(t *testing.T) {
	numbers := []float64{math.Inf(-1), -1e9, -5.5, -5, -1e-9, 0, 1e-9, 5, 5.5, 255, 256, 1e9, math.Inf(1)}
	last := ""
	for _, f := range numbers {
		if s := string(appendNumber(nil, f)); s <= last {
			t.Errorf("%v sorts at %x, not above %x", f, s, last)
		} else {
			last = s
		}
	}
}

// FuzzHash holds for any input: no panic, every place in the key space and of the
// right form, and the one that is computed slowly.
func FuzzHash(f *testing.F) {
	for _, v := range service {
		f.Add(v.key)
	}
	f.Add(`["a",[],{"b":1}]`)
	f.Add(`["` + strings.Repeat("😀", 200) + `", "\ud800", -0.0]`)
	f.Fuzz(func(t *testing.T, key string) {
		c, err := Parse(key)
		if err != nil {
			return
		}
		for _, kind := range kinds {
			checkForm(t, kind, c)
		}
	})
}

func checkForm(t *testing.T, kind Kind, c Components) {
	p, err := Hash(kind, c)
	if err != nil {
		if kind != MultiHash || len(c) <= MaxLevels {
			t.Fatalf("Hash(%d, %v): %v", kind, c, err)
		}
		return
	}
	checkSlow(t, kind, c)
	if p < Min || p >= Max || strings.Trim(p, hexDigits) != "" {
		t.Fatalf("%q is not a place", p)
	}
	if len(c) == 0 {
		return
	}
	switch {
	case kind == HashV1 && p[:2] != "05",
		kind == HashV2 && (len(p) != 32 || p >= "40"),
		kind == MultiHash && (len(p) != 32*len(c) || p >= "40"):
		t.Fatalf("%s is not a place of kind %d for %d components", p, kind, len(c))
	}
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		Parse(`["tenant-1"]`)
	}
}

func TestPlainString(t *testing.T) {
	for key, want := range map[string]string{`["London"]`: "London", `[""]`: "", `["a b]/<"]`: "a b]/<"} {
		if got, ok := PlainString(key); !ok || got != want {
			t.Errorf("PlainString(%s) = %q, %v, want %q", key, got, ok, want)
		}
	}
	for _, key := range []string{
		``, `[`, `["`, `["]`, `[]`, `"a"`, `[5]`, `["a","b"]`, `["a\\"]`, `["\u00e9"]`, `["é"]`, "[\"\x7f\"]", "[\"\t\"]", `[ "a"]`, `["a"] `,
	} {
		if got, ok := PlainString(key); ok {
			t.Errorf("PlainString(%s) = %q, want none", key, got)
		}
	}
}
