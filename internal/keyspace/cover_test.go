package keyspace

import (
	"slices"
	"testing"
)

// A wide range over narrow ones covers what lies after them too, whatever their order.
func TestUncoveredIsWhatNoRangeHas(t *testing.T) {
	for _, c := range []struct{ by, want []span }{
		{nil, []span{{"", "FF"}}},
		{[]span{{"", "30"}, {"10", "20"}}, []span{{"30", "FF"}}},
		{[]span{{"10", "40"}, {"10", "20"}, {"30", "35"}, {"50", "FF"}}, []span{{"", "10"}, {"40", "50"}}},
		{[]span{{"20", "FF"}, {"", "20"}}, nil},
		{[]span{{"20", "20"}, {"", "10"}}, []span{{"10", "FF"}}},
	} {
		given := slices.Clone(c.by)
		if got := Uncovered(span{"", "FF"}, c.by); !slices.Equal(got, c.want) || !slices.Equal(c.by, given) {
			t.Errorf("%v cover all but %v, want %v", given, got, c.want)
		}
	}
	if got := Uncovered(span{"20", "30"}, []span{{"", "25"}, {"40", "50"}}); !slices.Equal(got, []span{{"25", "30"}}) {
		t.Errorf("of a part there is %v left", got)
	}
}

func TestRangesAreCutAtTheEdgesOfCells(t *testing.T) {
	cells := []span{{"", "10"}, {"10", "20"}, {"20", "FF"}}
	got := CutAt([]span{{"05", "15"}, {"20", "30"}}, cells)
	if want := []span{{"05", "10"}, {"10", "15"}, {"20", "30"}}; !slices.Equal(got, want) {
		t.Errorf("cut into %v, want %v", got, want)
	}
}

// Ranges are read as they were written, if they tile the whole.
func TestPartsTileTheirWhole(t *testing.T) {
	whole := span{"10", "40"}
	for _, c := range []struct {
		text string
		want []span
	}{
		{"10-40", []span{{"10", "40"}}},
		{"10-20,20-40", []span{{"10", "20"}, {"20", "40"}}},
		{"", nil},
		{"10-20", nil},       // ends too soon
		{"10-20,30-40", nil}, // has a hole
		{"20-40,10-20", nil},
		{"10-20,20-40,", nil},
		{"10-20,20-XY", nil},
	} {
		got, ok := Split(whole, c.text)
		if ok != (c.want != nil) || ok && (!slices.Equal(got, c.want) || Join(got) != c.text) {
			t.Errorf("%q is %v, %v, want %v", c.text, got, ok, c.want)
		}
	}
}

func TestARangeIsReadInHex(t *testing.T) {
	for text, want := range map[string]span{
		"-FF": {"", "FF"}, "0a-0b": {"0A", "0B"}, "10": {}, "20-10": {},
		"10-10": {}, "10-1G": {}, "x-FF": {},
	} {
		if got, ok := Parse[span](text); got != want || ok != (want != span{}) {
			t.Errorf("%q is %v, %v, want %v", text, got, ok, want)
		}
	}
}
