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

// All files are read once, and all rules share the result. The files are not type-checked: type-checking would take
// seconds, need other modules, and fail on a tree with build errors, which is when a reader needs the findings. The
// cost: a rule compares texts. A dot import would mislead such a rule, but there is none.

// repo is the parsed repository. Files in testdata or tools/pinned are not code: those in testdata may be wrong on
// purpose, and tools/pinned only pins modules of others.
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
		return r.visitPath(fsys, p, d)
	})
	if m := moduleLine.FindStringSubmatch(r.text["go.mod"]); m != nil {
		r.module = m[1]
	}
	return r, err
}

// visitPath reads a file if a rule needs its content. Of other files only the path is stored, because documents name
// them.
func (r *repo) visitPath(fsys fs.FS, p string, d fs.DirEntry) error {
	switch {
	// An ignored directory is skipped, because build results and caches may be large, and uncommitted files need not
	// follow the rules.
	case d.IsDir() && (p == ".git" || r.isIgnored(p)):
		return fs.SkipDir
	case d.IsDir() || r.isIgnored(p) || p == ".git": // .git is a file in a linked worktree
		return nil
	}
	// Files that no rule reads are recorded too, because a document may link to a picture, and an unknown file is a
	// finding.
	r.paths = append(r.paths, p)
	isCode := strings.HasSuffix(p, ".go") && !strings.Contains("/"+p, "/testdata/") &&
		!strings.HasPrefix(p, "tools/pinned/")
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
	return r.parseFile(p, string(src))
}

// isIgnored reports whether .gitignore contains a path. It supports only the few forms in our file: a name, a
// pattern, a path from the top.
func (r *repo) isIgnored(p string) bool {
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

// parseFile parses a Go file without resolving its names, because the rules compare texts.
func (r *repo) parseFile(p, src string) error {
	tree, err := parser.ParseFile(r.fset, p, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parse %s: %w", p, err)
	}
	f := &file{
		path: p, dir: path.Dir(p), src: src, ast: tree, test: strings.HasSuffix(p, "_test.go"),
		imports: map[string]string{},
	}
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

// importName returns the name of an import in a file. The imported package is not parsed, so the name is guessed from
// the path, which is right for all our imports.
func importName(spec *ast.ImportSpec, target string) string {
	switch {
	case spec.Name == nil:
		return path.Base(versionSuffix.ReplaceAllString(target, ""))
	case spec.Name.Name == "_":
		return target
	}
	return spec.Name.Name
}

// filesIn returns the Go files of a directory.
func (r *repo) filesIn(dir string) (files []*file) {
	for _, f := range r.files {
		if f.dir == dir {
			files = append(files, f)
		}
	}
	return files
}

// codeFiles returns the Go files without the tests.
func (r *repo) codeFiles() (files []*file) {
	for _, f := range r.files {
		if !f.test {
			files = append(files, f)
		}
	}
	return files
}

func (f *file) countLines() int { return strings.Count(f.src, "\n") }

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
