package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A page that was not generated anew after a change of a doc comment or of the navigation is out of date.
func TestTheGeneratedPagesAreCurrent(t *testing.T) {
	for name, page := range pages {
		want, err := page("../..")
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is out of date: call make reference", name)
		}
	}
}
