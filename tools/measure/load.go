package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Tests are read too, but only for their share: they are long and repetitive for good reasons, and would hide the
// other figures.

// A file is a Go file.
type file struct {
	path, dir string
	src       string
	test      bool
	fset      *token.FileSet
	tree      *ast.File
}

// load reads the Go files below a directory.
func load(root string) (files []*file, err error) {
	fset := token.NewFileSet()
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return enter(root, path, d.Name())
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		tree, err := parser.ParseFile(fset, path, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path) // cannot fail: path is below root
		files = append(files, &file{
			path: name, dir: filepath.Dir(name), src: string(src), test: strings.HasSuffix(path, "_test.go"),
			fset: fset, tree: tree,
		})
		return nil
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s: no Go files", root)
	}
	return files, err
}

// enter skips files and directories that are not code of the module.
func enter(root, path, name string) error {
	// Otherwise a root named . would be skipped because of its dot.
	if path == root {
		return nil
	}
	_, err := os.Stat(filepath.Join(path, "go.mod"))
	if err == nil || name == "testdata" || strings.HasPrefix(name, ".") {
		return fs.SkipDir
	}
	return nil
}

// byDir yields the files of each package, in the order of names.
func byDir(files []*file) iter.Seq2[string, []*file] {
	dirs := map[string][]*file{}
	for _, f := range files {
		dirs[f.dir] = append(dirs[f.dir], f)
	}
	return func(yield func(string, []*file) bool) {
		for _, dir := range slices.Sorted(maps.Keys(dirs)) {
			if !yield(dir, dirs[dir]) {
				return
			}
		}
	}
}

// lines returns the first and last line of a node.
func (f *file) lines(n ast.Node) (first, last int) {
	return f.fset.Position(n.Pos()).Line, f.fset.Position(n.End()).Line
}
