package main

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// The public packages show what api/*.txt records: no line is gone without a word, and no new line is unrecorded.
func TestPublicFaceIsRecorded(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the records are of linux: names that other systems lack or add would differ")
	}
	faces, err := loadFaces("../..")
	if err != nil {
		t.Fatal(err)
	}
	kept, err := readRecords("../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(faces) < 20 || len(faces["feed"]) < 100 || !slices.Contains(faces[""], "type Hooks = feed.Hooks") {
		t.Fatalf("%d packages, of which feed has %d lines: want them all", len(faces), len(faces["feed"]))
	}
	if err := errors.Join(append(incompatible(kept, faces), unrecorded(kept, faces)...)...); err != nil {
		t.Error(err)
	}
}

// before is a package; each change of it below is one that breaks programs, or one that does not.
const before = `package p

const Limit = 3

var Failed error

type Point struct {
	X, Y   int
	hidden string
}

type Source interface{ Read(p []byte) (int, error) }

type Sealed interface{ seal() }

type Hooks struct{ Done func(count int) }

type Box[T any] struct{ Value T }

type Alias = Point

func (p *Point) Move(dx, dy int) {}

func Open(name string, more ...int) (*Point, error) { return nil, nil }
`

var changes = []struct {
	name, old, new string
	breaks         string // part of the message; empty if nothing breaks
}{
	{"a function more", "func Open", "func Close() {}\n\nfunc Open", ""},
	{"a field more", "X, Y   int", "X, Y, Z int", ""},
	{"a method more", "func Open", "func (p *Point) Stop() {}\n\nfunc Open", ""},
	{"another name of a parameter", "name string", "path string", ""},
	{"another name of a parameter of a field", "count int", "n int", ""},
	{"another field that is not exported", "hidden string", "secret int", ""},
	{"a function less", "func Open", "func open", "p: incompatible: func Open(string, ...int) (*Point, error) is gone"},
	{"a method less", ") Move(", ") move(", "method (*Point) Move(int, int)"},
	{"a field less", "X, Y   int", "X int", "type Point struct, Y int"},
	{"another type of a parameter", "name string", "name []byte", "func Open"},
	{"a parameter more", "dx, dy int", "dx, dy, dz int", "Move(int, int)"},
	{"a result less", "(*Point, error) { return nil, nil }", "*Point { return nil }", "func Open"},
	{"another value", "Limit = 3", "Limit = 4", "const Limit untyped int = 3"},
	{"another type of a variable", "Failed error", "Failed string", "var Failed error"},
	{
		"a method of an interface more", "Source interface{ ", "Source interface{ Close() error; ",
		"type Source interface { Read }",
	},
	{"a sealed interface that is opened", "seal()", "", "and others that are not exported"},
	{"a struct that cannot be compared any more", "hidden string", "hidden []int", "type Point struct, comparable"},
	{"another constraint", "Box[T any]", "Box[T ~int]", "Box[T any]"},
	{"another target of an alias", "Alias = Point", "Alias = Hooks", "type Alias = Point"},
	{"a field that is a function, with other parameters", "count int", "count int64", "Done func(int)"},
}

func TestChangesThatBreakProgramsAreFound(t *testing.T) {
	for _, c := range changes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(before, c.old) {
				t.Fatalf("the package has no %q", c.old)
			}
			kept := &records{faces: map[string][]string{"p": faceOfText(t, before)}}
			after := map[string][]string{"p": faceOfText(t, strings.Replace(before, c.old, c.new, 1))}
			err := errors.Join(incompatible(kept, after)...)
			switch {
			case c.breaks == "" && err != nil:
				t.Errorf("got %v, want no error", err)
			case c.breaks != "" && (err == nil || !strings.Contains(err.Error(), c.breaks)):
				t.Errorf("got %v, want an error with %q", err, c.breaks)
			}
		})
	}
}

// faceOfText returns the face of a package that imports nothing.
func faceOfText(t *testing.T, text string) []string {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	pkg, err := new(types.Config).Check("p", fset, []*ast.File{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return faceOf(pkg)
}

// A break that is listed with its reason passes, is recorded, and stays listed; one that is listed and has not
// happened is a mistake, and so is one without a reason.
func TestListedBreaksPass(t *testing.T) {
	t.Parallel()
	dir := module(t, before)
	if err := record(dir); err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, folder, breakFile)
	const entry = "p: const Limit untyped int = 3"
	writeFile(t, list, "# The limit is four since the third was full.\n"+entry+"\n")
	if err := record(dir); err == nil || !strings.Contains(err.Error(), "has not changed") {
		t.Errorf("a break that has not happened: %v", err)
	}
	writeFile(t, filepath.Join(dir, "p", "p.go"), strings.Replace(before, "Limit = 3", "Limit = 4", 1))
	for range 2 {
		if err := record(dir); err != nil {
			t.Errorf("a listed break: %v", err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, folder, "p.txt"))
	if err != nil || !strings.Contains(string(text), "Limit untyped int = 4") {
		t.Errorf("recorded %s, %v", text, err)
	}
	writeFile(t, list, "\n"+entry+"\n")
	if err := record(dir); err == nil || !strings.Contains(err.Error(), "has no reason") {
		t.Errorf("a break without a reason: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "p")); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "q", "q.go"), "package q\n\nfunc F() {}\n")
	writeFile(t, list, "")
	err = record(dir)
	if err == nil || !strings.Contains(err.Error(), "p: incompatible: func Open") {
		t.Errorf("a package that is gone: %v", err)
	}
	var gone strings.Builder
	gone.WriteString("# Nobody has used it.\n")
	for _, line := range lines(string(text)) {
		gone.WriteString("p: " + line + "\n")
	}
	writeFile(t, list, gone.String())
	if err := record(dir); err != nil {
		t.Errorf("a listed package that is gone: %v", err)
	}
	writeFile(t, list, "") // as after a release
	if err := record(dir); err != nil {
		t.Errorf("after the release: %v", err)
	}
}

// module makes a module with a package p.
func module(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "go.mod"), "module example.com/m\n\ngo 1.26\n")
	writeFile(t, filepath.Join(dir, "p", "p.go"), text)
	writeFile(t, filepath.Join(dir, "internal", "i", "i.go"), "package i\n\nfunc Hidden() {}\n")
	writeFile(t, filepath.Join(dir, "cmd", "c", "c.go"), "package main\n\nfunc main() {}\n")
	return dir
}

// writeFile writes a file and the folders above it.
func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
