package tidy

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// All files are read once, and all rules share what was read. Nothing is type-checked:
// that takes seconds, needs the modules of others, and fails on a tree that does not
// build, which is when a reader wants to know what is wrong. The price is that a rule
// compares texts. A dot import would deceive it, but there is none.

// repo is the parsed repository. Files in testdata or tools are not code: the former
// may be wrong on purpose, the latter are pinned modules of others.
type repo struct {
	fset   *token.FileSet
	module string
	paths  []string // every file, in lexical order
	files  []*file  // the Go files
	dirs   []string // the directories of packages, in the order of files
	text   map[string]string
	ignore []string
}

// file is a Go file.
type file struct {
	path, dir, src string
	test           bool
	ast            *ast.File
	imports        map[string]string // local name → import path
}

var moduleLine = regexp.MustCompile(`(?m)^module (\S+)`)

// load reads a repository from its top directory, once for all rules.
func load(fsys fs.FS) (*repo, error) {
	r := &repo{fset: token.NewFileSet(), text: map[string]string{}}
	ignored, _ := fs.ReadFile(fsys, ".gitignore")
	r.ignore = strings.Fields(string(ignored))
	err := fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return r.visit(fsys, p, d)
	})
	if m := moduleLine.FindStringSubmatch(r.text["go.mod"]); m != nil {
		r.module = m[1]
	}
	return r, err
}

// visit reads a file that a rule looks at. Of other files only the path is kept, because
// documents name them.
func (r *repo) visit(fsys fs.FS, p string, d fs.DirEntry) error {
	switch {
	// An ignored directory is not entered: build results and caches may be large, and
	// what is not committed need not keep the rules.
	case d.IsDir() && (p == ".git" || r.ignored(p)):
		return fs.SkipDir
	case d.IsDir() || r.ignored(p) || p == ".git": // a file in a linked worktree
		return nil
	}
	// Also the files that no rule opens are noted: a document may link to a picture,
	// and a stray file is a finding.
	r.paths = append(r.paths, p)
	isCode := strings.HasSuffix(p, ".go") && !strings.Contains("/"+p, "/testdata/") && !strings.HasPrefix(p, "tools/pinned/")
	if !isCode && !strings.HasSuffix(p, ".md") && path.Base(p) != "go.mod" {
		return nil
	}
	src, err := fs.ReadFile(fsys, p)
	if err != nil {
		return fmt.Errorf("read %s: %w", p, err)
	}
	r.text[p] = string(src)
	if !isCode {
		return nil
	}
	return r.parse(p, string(src))
}

// ignored reports whether .gitignore names a path. It knows the few forms that ours
// uses: a name, a pattern, a path from the top.
func (r *repo) ignored(p string) bool {
	for _, pattern := range r.ignore {
		name := path.Base(p)
		if strings.HasPrefix(pattern, "/") {
			name = p
		}
		if ok, _ := path.Match(strings.Trim(pattern, "/"), name); ok {
			return true
		}
	}
	return false
}

// parse parses a Go file, without resolving its names: the rules compare texts.
func (r *repo) parse(p, src string) error {
	tree, err := parser.ParseFile(r.fset, p, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parse %s: %w", p, err)
	}
	f := &file{path: p, dir: path.Dir(p), src: src, ast: tree, test: strings.HasSuffix(p, "_test.go"), imports: map[string]string{}}
	for _, spec := range tree.Imports {
		target, _ := strconv.Unquote(spec.Path.Value)
		f.imports[importName(spec, target)] = target
	}
	r.files = append(r.files, f)
	if !slices.Contains(r.dirs, f.dir) {
		r.dirs = append(r.dirs, f.dir)
	}
	return nil
}

var versionSuffix = regexp.MustCompile(`[/.]v[0-9]+$`)

// importName returns the name by which a file knows an import. Without parsing the
// imported package, the name is guessed from the path, which holds for all that we
// import.
func importName(spec *ast.ImportSpec, target string) string {
	switch {
	case spec.Name == nil:
		return path.Base(versionSuffix.ReplaceAllString(target, ""))
	case spec.Name.Name == "_":
		return target
	}
	return spec.Name.Name
}

// in returns the Go files of a directory.
func (r *repo) in(dir string) (files []*file) {
	for _, f := range r.files {
		if f.dir == dir {
			files = append(files, f)
		}
	}
	return files
}

// code returns the Go files that are not tests.
func (r *repo) code() (files []*file) {
	for _, f := range r.files {
		if !f.test {
			files = append(files, f)
		}
	}
	return files
}

func (f *file) lines() int { return strings.Count(f.src, "\n") }

// packageName returns the name without the suffix of an external test package.
func (f *file) packageName() string { return strings.TrimSuffix(f.ast.Name.Name, "_test") }

// declName returns the name of a declaration: Function, Type.Method, or its first name.
func declName(d ast.Decl) string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if t := receiver(d); t != "" {
			return t + "." + d.Name.Name
		}
		return d.Name.Name
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if names := specNames(spec); len(names) > 0 {
				return names[0].Name
			}
		}
	}
	return ""
}

func specNames(spec ast.Spec) []*ast.Ident {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		return []*ast.Ident{spec.Name}
	case *ast.ValueSpec:
		return spec.Names
	}
	return nil
}

// receiver returns the name of the receiver's type, without pointer and type
// parameters.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return ""
	}
	t := d.Recv.List[0].Type
	for {
		switch inner := t.(type) {
		case *ast.StarExpr:
			t = inner.X
		case *ast.IndexExpr:
			t = inner.X
		case *ast.IndexListExpr:
			t = inner.X
		case *ast.Ident:
			return inner.Name
		// A receiver of any other form does not compile.
		default:
			return ""
		}
	}
}
