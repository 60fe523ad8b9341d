package docstore_test

import (
	"bytes"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestImportersDoNotCompileTheEngine walks from the exported types, as the compiler does
// for each package that imports docstore, and finds no generic code of the engine's
// library.
func TestImportersDoNotCompileTheEngine(t *testing.T) {
	const path = "github.com/millrace/changefeed/docstore"
	var stderr bytes.Buffer
	list := exec.Command("go", "list", "-export", "-f", "{{.Export}}", path)
	list.Stderr = &stderr
	export, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	lookup := func(string) (io.ReadCloser, error) { return os.Open(strings.TrimSpace(string(export))) }
	pkg, err := importer.ForCompiler(token.NewFileSet(), "gc", lookup).Import(path)
	if err != nil {
		t.Fatal(err)
	}
	w := walk{t: t, seen: map[types.Type]bool{}}
	for _, name := range pkg.Scope().Names() {
		if o := pkg.Scope().Lookup(name); o.Exported() {
			w.visit(o.Type(), name)
		}
	}
	if len(w.seen) < 100 {
		t.Errorf("only %d types were reached", len(w.seen))
	}
}

// walk visits types that can be reached from others, each once.
type walk struct {
	t    *testing.T
	seen map[types.Type]bool
}

func (w *walk) visit(typ types.Type, way string) {
	if w.seen[typ] {
		return
	}
	w.seen[typ] = true
	switch typ := typ.(type) {
	case *types.Named:
		if from := typ.Origin().Obj().Pkg(); from != nil && typ.TypeArgs().Len() > 0 &&
			strings.Contains(from.Path(), "cockroachdb") {
			w.t.Errorf("%s is %s", way, typ)
			return
		}
		for m := range typ.Methods() {
			w.visit(m.Type(), way+"."+m.Name())
		}
		w.visit(typ.Underlying(), way)
	case *types.Struct:
		for f := range typ.Fields() {
			w.visit(f.Type(), way+"."+f.Name())
		}
	case *types.Interface:
		for m := range typ.Methods() {
			w.visit(m.Type(), way+"."+m.Name())
		}
	case *types.Signature:
		for v := range typ.Params().Variables() {
			w.visit(v.Type(), way+" "+v.Name())
		}
		for v := range typ.Results().Variables() {
			w.visit(v.Type(), way+" "+v.Name())
		}
	case *types.Map:
		w.visit(typ.Key(), way)
		w.visit(typ.Elem(), way)
	case *types.Alias:
		w.visit(types.Unalias(typ), way)
	case interface{ Elem() types.Type }:
		w.visit(typ.Elem(), way)
	}
}
