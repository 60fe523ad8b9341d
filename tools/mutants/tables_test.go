package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

const repository = "../.."

// TestTheTablesFitTheCode finds code that moved away from the tables: each text stands once where its entry says.
func TestTheTablesFitTheCode(t *testing.T) {
	all, err := load(filepath.Join(repository, tables), "")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]map[string]bool{}
	for _, m := range all {
		p, err := m.plantDefect(repository)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), p.file, p.fileText(),
			parser.SkipObjectResolution); err != nil {
			t.Errorf("%s: %v", m, err)
		}
		for _, b := range m.by {
			if tests[b.pkg] == nil {
				tests[b.pkg] = testsIn(t, filepath.Join(repository, b.pkg))
			}
			if !tests[b.pkg][b.name] {
				t.Errorf("%s: no %s in %s", m, b.name, b.pkg)
			}
		}
	}
}

// testsIn returns the names of the functions in the test files of a package.
func testsIn(t *testing.T, dir string) map[string]bool {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range tree.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				names[fn.Name.Name] = true
			}
		}
	}
	return names
}

const goodEntry = `# a comment
== two-edits
package: store
in: Tree.grow
breaks: it breaks
from: me
by: TestOne, sim:TestTwo
-	old 1

-
`

func TestAnEntryIsRead(t *testing.T) {
	text := strings.Replace(goodEntry, "-	old 1\n\n-\n", "-	old 1\n-	old 2\n+	new 1\n-	old 3\n", 1)
	got, err := parse("x", text)
	want := []mutant{{
		table: "x", name: "two-edits", pkg: "store", decl: "Tree.grow", breaks: "it breaks", from: "me",
		by: []test{{"store", "TestOne"}, {simulation, "TestTwo"}},
		edits: []edit{
			{[]string{"\told 1", "\told 2"}, []string{"\tnew 1"}},
			{[]string{"\told 3"}, nil},
		},
	}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

func TestABadEntryIsRefused(t *testing.T) {
	for change, want := range map[string]string{
		"two-edits → two edits":                      "name",
		"package: store\n → ":                        "no test",
		"in: Tree.grow\n → ":                         "needed",
		"from: me → form: me":                        "unknown",
		"from: me → from: me\nfrom: me":              "twice",
		"by: TestOne → by: testOne":                  "no test",
		"from: me → from: me\nsurvives: nobody sees": "survives",
		"-	old 1\n → ":                               "nothing",
		"-	old 1 → +	old 1":                          "replace none",
	} {
		from, to, _ := strings.Cut(change, " → ")
		text := strings.Replace(goodEntry, from, to, 1)
		text = strings.TrimSuffix(text, "\n-\n")
		if _, err := parse("x", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", change, err, want)
		}
	}
	if _, err := parse("x", goodEntry); err == nil || !strings.Contains(err.Error(), "x.txt:10: outside") {
		t.Errorf("a line after the end: %v", err)
	}
}

const treeSource = `package store

type (
	Tree[K any] struct{ n int }
	Bush struct{ n int }
)

const (
	Low  = 1
	High = 9
)

// grow grows.
func (t *Tree[K]) grow() {
	t.n++
	if t.n > Low {
		t.n++
	}
}

func grow() { more() }
`

func TestADeclarationIsFoundAndEdited(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.go": treeSource, "a_test.go": treeSource, "a_plan9.go": treeSource} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ decl, old, text, fault string }{
		{
			decl: "Tree.grow", old: "	t.n++\n	if t.n > Low {",
			text: strings.Replace(treeSource, "	t.n++\n	if t.n > Low {", "NEW", 1),
		},
		{
			decl: "Tree", old: "	Tree[K any] struct{ n int }",
			text: strings.Replace(treeSource, "	Tree[K any] struct{ n int }", "NEW", 1),
		},
		{decl: "High", old: "	High = 9", text: strings.Replace(treeSource, "	High = 9", "NEW", 1)},
		{decl: "High", old: "	Low  = 1", fault: "not found"},
		{decl: "grow", old: "	t.n++", fault: "not found"},
		{decl: "Tree.grow", old: "t.n++", fault: "not found"},
		{decl: "Tree.grow", old: "	}", text: strings.Replace(treeSource, "	}\n}", "NEW\n}", 1)},
		{decl: "Bush.grow", old: "	}", fault: "no Bush.grow"},
	} {
		m := mutant{pkg: ".", decl: c.decl, edits: []edit{{strings.Split(c.old, "\n"), []string{"NEW"}}}}
		text := ""
		p, err := m.plantDefect(dir)
		if err == nil {
			text = p.fileText()
		}
		if text != c.text || (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: %s: %v, %s", c.decl, c.old, err, text)
		}
	}
	twice := mutant{pkg: ".", decl: "Tree.grow", edits: []edit{
		{[]string{"	t.n++"}, []string{"		t.n++"}},
		{[]string{"		t.n++"}, nil},
	}}
	if _, err := twice.plantDefect(dir); err == nil || !strings.Contains(err.Error(), "twice, on lines 15 and 17") {
		t.Errorf("a text that stands twice: %v", err)
	}
}
