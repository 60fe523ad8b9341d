package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A module with a method that is called in its package, in another one, and in tests of both kinds; and with a
// namesake.
var before = map[string]string{
	"go.mod": "module example.com/m\n\ngo 1.26\n",
	"a/a.go": "package a\n\ntype T struct{}\n\n// put puts.\nfunc (t *T) Put() { t.get() }\n\n// get gets, and get " +
		"is a word.\nfunc (t *T) get() int { return t.get() + U{}.get() }\n\n" +
		"type U struct{}\n\nfunc (U) get() int { return 0 }\n",
	"a/a_test.go": "package a\n\nvar _ = (&T{}).get()\n",
	"b/b.go":      "package b\n\nimport \"example.com/m/a\"\n\nvar _ = (*a.T).Put\n",
	"b/b_test.go": "package b_test\n\nimport \"example.com/m/a\"\n\nfunc f() { new(a.T).Put() }\n",
	"tools/mutants/tables/a.txt": "== one\npackage: a\nin: T.get\nbreaks: get\n-func (t *T) get() int { return " +
		"t.get() + U{}.get() }\n+func (t *T) get() int { return 1 }\n\n" +
		"== other\npackage: a\nin: U.get\n-func (U) get() int { return 0 }\n+func (U) get() int { return 1 }\n",
	"docs/a.md": "`T.get` and `U.get`, T.gets\n",
}

func TestAMethodIsRenamedWhereverItIsNamed(t *testing.T) {
	dir := module(t)
	if _, err := rename(dir, renaming{"a", "T.get", "take"}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"a/a.go": "package a\n\ntype T struct{}\n\n// put puts.\nfunc (t *T) Put() { t.take() }\n\n// take gets, and " +
			"get is a word.\nfunc (t *T) take() int { return t.take() + U{}.get() }\n\n" +
			"type U struct{}\n\nfunc (U) get() int { return 0 }\n",
		"a/a_test.go": "package a\n\nvar _ = (&T{}).take()\n",
		"tools/mutants/tables/a.txt": "== one\npackage: a\nin: T.take\nbreaks: get\n-func (t *T) take() int { return " +
			"t.take() + U{}.get() }\n+func (t *T) take() int { return 1 }\n\n" +
			"== other\npackage: a\nin: U.get\n-func (U) get() int { return 0 }\n+func (U) get() int { return 1 }\n",
		"docs/a.md": "`T.take` and `U.get`, T.gets\n",
	}
	compare(t, dir, want)
}

func TestAnExportedMethodIsRenamedInOtherPackages(t *testing.T) {
	dir := module(t)
	if _, err := rename(dir, renaming{"a", "T.Put", "Store"}); err != nil {
		t.Fatal(err)
	}
	compare(t, dir, map[string]string{
		"a/a.go":      strings.ReplaceAll(before["a/a.go"], ") Put()", ") Store()"),
		"b/b.go":      strings.ReplaceAll(before["b/b.go"], "Put", "Store"),
		"b/b_test.go": strings.ReplaceAll(before["b/b_test.go"], "Put", "Store"),
	})
}

func TestWhatCannotBeRenamedIsLeft(t *testing.T) {
	for _, n := range []renaming{
		{"a", "T.lost", "found"},
		{"lost", "T.get", "found"},
		{"a", "T.get", "no name"},
		{"a", "T", "found"},
	} {
		dir := module(t)
		if _, err := rename(dir, n); err == nil {
			t.Errorf("%+v: no error", n)
		}
		compare(t, dir, nil)
	}
}

// module writes the module.
func module(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range before {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// compare compares the files with the wanted texts; others must be as they were.
func compare(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	for name, text := range before {
		if changed, ok := want[name]; ok {
			text = changed
		}
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(got) != text {
			t.Errorf("%s is %q, %v, want %q", name, got, err, text)
		}
	}
}
