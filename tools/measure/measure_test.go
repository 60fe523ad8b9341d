package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// branches has eight ways through, and 60 tokens more than once.
const branches = `package p

// A T tells what it is, because one has to.
type T struct{ field int }

type I interface {
	A()
	B()
}

func (t *T) A(first, second int) int {
	for _, item := range []int{1, 2, 3} { // not a line of its own
		if item == first && item > second || t.field == 0 {
			switch total := first + second; total {
			case 1, 2:
				return total
			default:
				return 0
			}
		}
	}
	return 1
}

func (t *T) B() { func() { _ = 1 }() }
`

func TestFiguresAreCounted(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"p/p.go": branches, "q/q.go": strings.Replace(branches, "package p", "package q", 1),
		"p/p_test.go": "package p\n\nvar long = 1\n", "testdata/no.go": "not Go", "other/go.mod": "module other\n",
		"other/no.go": "not Go",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := measured([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	r := rows[0]
	for what, got := range map[string][2]string{
		"files, lines":                {fmt.Sprint(r.Files, r.Lines), "2 42"},
		"test lines for each of code": {fmt.Sprintf("%.3f", r.TestShare), "0.048"},
		"function lines":              {fmt.Sprint(r.Median, r.P90, r.Longest, r.Over60), "13 13 13 0"},
		"complexity":                  {fmt.Sprint(r.Complexity), "6"},
		"interface":                   {fmt.Sprint(r.Interface), "2"},
		"receiver":                    {fmt.Sprint(r.Receiver, " ", r.Methods, r.Crowded), "T 2 []"},
		"comments":                    {fmt.Sprintf("%.1f", r.Comments), "4.8"},
		"local names":                 {fmt.Sprintf("%.2f", r.LocalName), "3.67"},
		"words": {fmt.Sprintf("%.0f %.0f %.0f", r.Words["tell"], r.Words["it"],
			r.Words["because"]), "62 125 62"},
		"clones": {fmt.Sprint(len(r.groups), len(r.groups[0])), "1 2"},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %s, want %s", what, got[0], got[1])
		}
	}
}

func TestADirectoryWithoutCodeIsRefused(t *testing.T) {
	if _, err := measured([]string{t.TempDir()}); err == nil || !strings.Contains(err.Error(), "no Go files") {
		t.Errorf("%v", err)
	}
}
