package epk

import (
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Ranges of real containers, as the tests and the documentation of the SDKs have
// them (for V1, CollectionRoutingMapTests of the SDK for Python).
func TestEvenGivesTheRangesOfNewContainers(t *testing.T) {
	f := strings.Repeat("F", 31)
	for _, v := range []struct {
		kind Kind
		want []string
	}{
		{HashV1, []string{"05C1DFFFFFFFFC"}},
		{HashV1, []string{"05C1CFFFFFFFF8", "05C1DFFFFFFFFC", "05C1E7FFFFFFFE"}},
		{HashV1, []string{"05C1C9CD673398", "05C1D9CD673398", "05C1E399CD6732", "05C1E9CD673398"}},
		{HashV2, []string{"1" + f}},
		{HashV2, []string{"1" + strings.Repeat("5", 31), "2" + strings.Repeat("A", 31)}},
		{HashV2, []string{"0" + f, "1" + f, "2" + f}},
		{MultiHash, []string{"0" + f, "1" + f, "2" + f}},
	} {
		if got := Even(v.kind, len(v.want)+1); !slices.Equal(got, v.want) {
			t.Errorf("Even(%d, %d) =\n%v, want\n%v", v.kind, len(v.want)+1, got, v.want)
		}
	}
}

func TestEvenGivesNoBoundsForOneRange(t *testing.T) {
	for _, n := range []int{1, 0, -1} {
		if got := Even(HashV2, n); got != nil {
			t.Errorf("Even(%d) = %v", n, got)
		}
	}
	if got := Even(0, 4); got != nil {
		t.Errorf("Even of no kind = %v", got)
	}
}

func TestKeysSpreadEvenlyOverEvenRanges(t *testing.T) {
	const keys = 50_000
	for _, kind := range kinds {
		places := somePlaces(t, kind, keys)
		for _, n := range []int{2, 3, 4, 5, 7, 16, 25} {
			bounds := Even(kind, n)
			if !slices.IsSorted(bounds) {
				t.Fatalf("Even(%d, %d) is not sorted: %v", kind, n, bounds)
			}
			for i, got := range count(places, bounds) {
				if want := keys / n; got < want*9/10 || got > want*11/10 {
					t.Errorf("range %d of %d of kind %d has %d keys, want about %d", i, n, kind, got, want)
				}
			}
		}
	}
}

// somePlaces returns the places of n plausible keys: numbered names.
func somePlaces(t testing.TB, kind Kind, n int) []string {
	t.Helper()
	places := make([]string, n)
	for i := range places {
		c := Components{String("customer-" + strconv.Itoa(i)), Number(float64(i))}
		var err error
		if places[i], err = Hash(kind, c); err != nil {
			t.Fatal(err)
		}
	}
	return places
}

// count returns how many places there are in each range between bounds.
func count(places, bounds []string) []int {
	counts := make([]int, len(bounds)+1)
	for _, p := range places {
		i, found := slices.BinarySearch(bounds, p)
		if found {
			i++ // a bound belongs to the range above it
		}
		counts[i]++
	}
	return counts
}

func TestMidCutsTheKeySpaceLikeEven(t *testing.T) {
	for _, kind := range kinds {
		four := Even(kind, 4)
		checkMid(t, kind, Min, Max, four[1])
		checkMid(t, kind, Min, four[1], four[0])
		checkMid(t, kind, four[1], Max, four[2])
	}
}

func checkMid(t *testing.T, kind Kind, lo, hi, want string) {
	t.Helper()
	if got, ok := Mid(kind, lo, hi); got != want || ok != (want != "") {
		t.Errorf("Mid(%d, %q, %q) = %q, %v, want %q", kind, lo, hi, got, ok, want)
	}
}

func TestMidHalvesTheKeysOfAnyRange(t *testing.T) {
	for _, kind := range kinds {
		places := somePlaces(t, kind, 20_000)
		slices.Sort(places)
		halve(t, kind, Min, Max, places)
		halve(t, kind, places[1111], places[17_000], places[1111:17_000])
	}
}

// halve cuts a range again and again, down to a few hundred keys.
func halve(t *testing.T, kind Kind, lo, hi string, places []string) {
	t.Helper()
	if len(places) < 500 {
		return
	}
	mid, ok := Mid(kind, lo, hi)
	if !ok || mid <= lo || mid >= hi {
		t.Fatalf("Mid(%d, %q, %q) = %q, %v", kind, lo, hi, mid, ok)
	}
	n, _ := slices.BinarySearch(places, mid)
	if n < len(places)*4/10 || n > len(places)*6/10 {
		t.Errorf("Mid(%d, %q, %q) = %q leaves %d of %d keys below", kind, lo, hi, mid, n, len(places))
	}
	halve(t, kind, lo, mid, places[:n])
	halve(t, kind, mid, hi, places[n:])
}

func TestMidCutsInsideAPrefixOnlyWhenItMust(t *testing.T) {
	const p = "0DAE0B8467B011E957BC0B8B0DEB5ACA"
	const next = "0DAE0B8467B011E957BC0B8B0DEB5ACB"
	f := "1" + strings.Repeat("F", 31)
	checkMid(t, MultiHash, p, "0DAE0B8467B011E957BC0B8B0DEB5ACC", next)
	checkMid(t, MultiHash, p, next, p+f)
	checkMid(t, MultiHash, p, p+"FF", p+f)
	checkMid(t, MultiHash, p+f, p+f+"FF", p+f+f)
	checkMid(t, MultiHash, "3"+f[1:], Max, "3"+f[1:]+f) // the last value of all
	checkMid(t, HashV2, p, next, "")
}

func TestMidReportsWhatCannotBeCut(t *testing.T) {
	f := strings.Repeat("F", 31)
	checkMid(t, HashV2, "3"+f, Max, "")
	checkMid(t, HashV2, "3"+f[1:]+"E", Max, "3"+f)
	checkMid(t, HashV1, bound(HashV1, big.NewInt(1<<32-1), 1), Max, "")
	checkMid(t, HashV1, "05C1D9C1C5517C05C014", "05C1D9C1C5517C0800", "") // one hash
	for _, kind := range append(kinds, 0) {
		for _, r := range [][2]string{
			{Min, Min},
			{Max, Max},
			{Max, Min},
			{"1FFF", "1F"},
			{"06AB", "06AB000000"},
			{"not hex", Max},
			{Min, "0G"},
			{Min, "1FF"},
		} {
			checkMid(t, kind, r[0], r[1], "")
		}
	}
}

// V1 bounds need not be whole: the service and the tests of the SDKs have some
// that are cut short, and lease containers keep bounds of either kind.
func TestMidTakesV1BoundsThatNoKeyHas(t *testing.T) {
	long := "05C1CF" + strings.Repeat("FF", 12)
	for _, r := range [][2]string{
		{"05C1CF", Max},
		{Min, "05C1"},
		{Min, "AA"},
		{"05", "05C1DFFFFFFFFC"},
		{"04", "06"},
		{long, Max},
	} {
		if mid, ok := Mid(HashV1, r[0], r[1]); !ok || mid <= r[0] || mid >= r[1] {
			t.Errorf("Mid(%q, %q) = %q, %v", r[0], r[1], mid, ok)
		}
	}
	// Of a bound that goes on after its number, only the number counts.
	at := func(n int64) string { return bound(HashV1, big.NewInt(n), 1) }
	checkMid(t, HashV1, at(1<<31)+"08FFFFFF00", at(1<<31+2), at(1<<31+1))
	checkMid(t, HashV1, "05C1CF", "05C1CF", "")
	checkMid(t, HashV1, "AA", Max, "")
	checkMid(t, HashV1, "05FFF2", "10", "") // a number that is none
}

// FuzzMid holds for any two bounds: what Mid returns is strictly between them.
func FuzzMid(f *testing.F) {
	f.Add("", "FF")
	f.Add("05C1CFFFFFFFF8", "05C1DFFFFFFFFC")
	f.Add("0DAE0B8467B011E957BC0B8B0DEB5ACA", "0DAE0B8467B011E957BC0B8B0DEB5ACAFF")
	f.Fuzz(func(t *testing.T, lo, hi string) {
		lo, hi = strings.ToUpper(lo), strings.ToUpper(hi)
		for _, kind := range kinds {
			if mid, ok := Mid(kind, lo, hi); ok && (mid <= lo || mid >= hi) {
				t.Fatalf("Mid(%d, %q, %q) = %q", kind, lo, hi, mid)
			}
		}
	})
}
