package rank

import (
	"fmt"
	"testing"
	"time"
)

// at is the position after an LSN that the source can tell.
func at(lsn int64) Position {
	return Position{Token: fmt.Sprintf("%q", fmt.Sprint(lsn)), LSN: lsn, Counted: true}
}

// since is the same of a reader from a time.
func since(began time.Time, lsn int64) Position {
	p := at(lsn)
	p.Since = began
	return p
}

// Each lease ranks above the one after it, and the other way round for none.
func TestLeasesAreRanked(t *testing.T) {
	ordered := []Lease{
		{Min: "40", Max: "FF", Position: since(time.Unix(1, 0), 2), Reset: 2}, // wherever it is
		{Min: "40", Max: "FF", Position: at(3), Reset: 1},
		{Min: "", Max: "FF", Position: at(10)},
		{Min: "", Max: "FF", Position: at(9), Generation: 2},
		{Min: "", Max: "FF", Position: at(9), Generation: 1, Taken: true},
		{Min: "", Max: "FF", Position: at(9), Generation: 1},
		{Min: "", Max: "80", Position: at(9), Generation: 1},
		{Min: "40", Max: "FF", Position: at(9), Generation: 1},
		{Min: "", Max: "FF", Generation: 3}, // nothing was read from it
	}
	for i, a := range ordered {
		for j, b := range ordered {
			if got := Above(a, b); got != (i < j) {
				t.Errorf("%+v above %+v: %v", a, b, got)
			}
		}
	}
}

// What reads from different times, or from nobody knows where, have done cannot be compared.
func TestSomeLeasesAreNotRanked(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	read := Lease{Position: at(10), Generation: 1}
	for _, other := range []Position{
		since(began, 9),
		{Token: "opaque"},
		{Unknown: true},
	} {
		if l := (Lease{Position: other}); Above(read, l) || Above(l, read) {
			t.Errorf("%+v is compared with %+v", read.Position, other)
		}
	}
	// At the same token, too, whatever their generations.
	for _, pair := range [][2]Position{
		{at(10), since(began, 10)},
		{{}, {Since: began}},
		{{}, {Unknown: true}},
	} {
		one, other := Lease{Position: pair[0], Generation: 1}, Lease{Position: pair[1], Generation: 2}
		if Above(one, other) || Above(other, one) {
			t.Errorf("%+v is compared with %+v", pair[0], pair[1])
		}
	}
	opaque := Position{Token: "opaque"}
	if !Above(Lease{Position: opaque, Generation: 1}, Lease{Position: opaque}) {
		t.Error("two at the same place are not compared")
	}
}
