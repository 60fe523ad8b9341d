package epk

import (
	"math"
	"strings"
	"testing"
)

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
