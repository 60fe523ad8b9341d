package tidy

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/doc"
	"iter"
	"path"
	"slices"
	"strings"
)

// The rules about declarations and calls. Some of them skip package main: no package imports main, so its exported
// names promise nothing, and as the caller, main may wait, print and exit.

// checkTesting finds code that links package testing, because a released binary does not need that package.
func checkTesting(r *repo) (found []finding) {
	for _, f := range r.codeFiles() {
		for _, target := range f.imports {
			if (target == "testing" || strings.HasPrefix(target, "testing/")) && !slices.Contains(forTests, f.dir) {
				found = append(found, finding{f.path, "imports " + target})
			}
		}
	}
	return found
}

// checkDocName finds comments of exported names, and of functions, that do not begin with the name.
func checkDocName(r *repo) (found []finding) {
	for _, f := range r.codeFiles() {
		for _, d := range f.ast.Decls {
			for name, text := range commented(d) {
				if !isAbout(text, name) {
					found = append(found, r.newFinding(f.path+":"+name, d, "its comment begins %.30q", text))
				}
			}
		}
	}
	return found
}

// commented yields the names with their own comment in a declaration.
func commented(d ast.Decl) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if text := d.Doc.Text(); text != "" {
				yield(declName(d), text)
			}
		case *ast.GenDecl:
			// A group of types may have a common comment, which begins with no type's name. So in a group only a
			// type's own comment counts.
			for _, spec := range d.Specs {
				t, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				text := t.Doc.Text()
				if len(d.Specs) == 1 {
					text = cmp.Or(text, d.Doc.Text())
				}
				if text != "" && !yield(t.Name.Name, text) {
					return
				}
			}
		}
	}
}

// isAbout reports whether a comment begins with a name, possibly after an article.
func isAbout(text, name string) bool {
	name = name[strings.LastIndex(name, ".")+1:]
	for _, article := range []string{"", "A ", "An ", "The "} {
		if rest, ok := strings.CutPrefix(text, article+name); ok && !wordRune.MatchString(rest) {
			return true
		}
	}
	return false
}

// checkPackageDoc requires exactly 1 package comment, directly above the package clause. After a blank line, go doc
// does not show the comment, which is easy to overlook in the source.
func checkPackageDoc(r *repo) (found []finding) {
	for _, dir := range r.dirs {
		var docs []string
		files := r.filesIn(dir)
		// If there is code, the comment must be in the code, because go doc ignores test files. In a directory with
		// only tests, the comment is in a test file.
		if code := slices.DeleteFunc(r.filesIn(dir), isTest); len(code) > 0 {
			files = code
		}
		for _, f := range files {
			if text := f.ast.Doc.Text(); text != "" {
				docs = append(docs, text)
			}
		}
		name := files[0].packageName()
		switch {
		case len(docs) != 1:
			found = append(found, finding{dir, fmt.Sprintf("package %s has %d package comments, not one", name,
				len(docs))})
		case name != "main" && !strings.HasPrefix(docs[0], "Package "+name+" "):
			found = append(found, finding{dir, fmt.Sprintf("the comment does not begin with Package %s", name)})
		}
	}
	return found
}

// checkExportedDoc finds exported names without a comment.
func checkExportedDoc(r *repo) (found []finding) {
	for _, f := range r.codeFiles() {
		if f.packageName() == "main" {
			continue
		}
		for _, d := range f.ast.Decls {
			for _, name := range undocumented(d) {
				found = append(found, r.newFinding(f.path+":"+name, d, "exported %s has no comment", name))
			}
		}
	}
	return found
}

// checkOwnDoc finds functions whose comment begins with the name of another function next to them, because an edit
// has left the comment behind.
func checkOwnDoc(r *repo) (found []finding) {
	beside := map[string]bool{} // directory, receiver, name
	each := func(do func(f *file, fn *ast.FuncDecl)) {
		for _, f := range r.codeFiles() {
			for _, d := range f.ast.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok {
					do(f, fn)
				}
			}
		}
	}
	// The key includes the receiver, because a method often has the same name as a function, or as a method of
	// another type, and its comment may begin with the same name.
	place := func(f *file, fn *ast.FuncDecl, name string) string {
		return path.Dir(f.path) + ":" + receiver(fn) + ":" + name
	}
	each(func(f *file, fn *ast.FuncDecl) { beside[place(f, fn, fn.Name.Name)] = true })
	each(func(f *file, fn *ast.FuncDecl) {
		first, _, _ := strings.Cut(fn.Doc.Text(), " ")
		if first != fn.Name.Name && beside[place(f, fn, first)] {
			found = append(found, r.newFinding(f.path+":"+declName(fn), fn, "its comment is about %s", first))
		}
	})
	return found
}

// undocumented returns the exported names of a declaration without a comment and without an explanation on their own
// line.
func undocumented(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		t := receiver(d)
		hidden := t != "" && (!ast.IsExported(t) || wellKnownMethod.MatchString(d.Name.Name))
		if d.Name.IsExported() && !hidden && d.Doc.Text() == "" {
			return []string{declName(d)}
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			for _, name := range specNames(spec) {
				if name.IsExported() && d.Doc.Text()+specDoc(spec) == "" {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}

func specDoc(spec ast.Spec) string {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		return spec.Doc.Text() + spec.Comment.Text()
	case *ast.ValueSpec:
		return spec.Doc.Text() + spec.Comment.Text()
	}
	return ""
}

// checkExamples requires an example with output for every package that users import.
func checkExamples(r *repo) (found []finding) {
	for _, dir := range r.dirs {
		files := r.filesIn(dir)
		if files[0].packageName() == "main" || strings.Contains("/"+dir+"/", "/internal/") ||
			strings.HasPrefix(dir, "tools/") {
			continue
		}
		var tests []*ast.File
		for _, f := range files {
			if f.test {
				tests = append(tests, f.ast)
			}
		}
		// An example without an output comment is compiled but never run, and may not work any more.
		runs := func(e *doc.Example) bool { return e.Output != "" || e.EmptyOutput }
		if !slices.ContainsFunc(doc.Examples(tests...), runs) {
			found = append(found, finding{dir, "no Example with an Output comment"})
		}
	}
	return found
}

// checkPackageName refuses names such as util, which would fit any code.
func checkPackageName(r *repo) (found []finding) {
	for _, dir := range r.dirs {
		if name := r.filesIn(dir)[0].packageName(); vagueName.MatchString(name) {
			found = append(found, finding{dir, fmt.Sprintf("package name %s says nothing", name)})
		}
	}
	return found
}

// checkCalls finds calls that only the caller or main should make: sleeping, exiting, printing.
func checkCalls(r *repo) (found []finding) {
	for _, f := range r.codeFiles() {
		if f.packageName() == "main" {
			continue
		}
		for where, n := range nodes(f) {
			if name := called(f, n); forbiddenCall.MatchString(name) || name == "func init" {
				found = append(found, r.newFinding(where, n, "%s", name))
			}
		}
	}
	return found
}

// called returns the name of the function at a node: path.Name of an import, a builtin, or the declaration of an
// initializer.
//
// Selectors count, not only calls: a function passed on as a value does the same harm later, in a less visible place.
func called(f *file, n ast.Node) string {
	switch n := n.(type) {
	case *ast.SelectorExpr:
		if x, ok := n.X.(*ast.Ident); ok && f.imports[x.Name] != "" {
			return f.imports[x.Name] + "." + n.Sel.Name
		}
	case *ast.CallExpr:
		if fn, ok := n.Fun.(*ast.Ident); ok {
			return fn.Name
		}
	case *ast.FuncDecl:
		if n.Recv == nil && n.Name.Name == "init" {
			return "func init"
		}
	}
	return ""
}

// checkGoroutines finds go statements, because no code waits for their goroutines.
func checkGoroutines(r *repo) (found []finding) {
	for _, f := range r.codeFiles() {
		for where, n := range nodes(f) {
			if _, ok := n.(*ast.GoStmt); ok {
				found = append(found, r.newFinding(where, n, "go statement"))
			}
		}
	}
	return found
}

// checkUnfinished finds markers of unfinished work.
func checkUnfinished(r *repo) (found []finding) {
	for _, f := range r.files {
		for i, line := range strings.Split(f.src, "\n") {
			if unfinished.MatchString(line) {
				found = append(found, finding{f.path, fmt.Sprintf("line %d: %s", i+1, strings.TrimSpace(line))})
			}
		}
	}
	return found
}

// nodes yields every node of a file with its place, path:Declaration.
func nodes(f *file) func(yield func(string, ast.Node) bool) {
	return func(yield func(string, ast.Node) bool) {
		for _, d := range f.ast.Decls {
			for n := range ast.Preorder(d) {
				if !yield(f.path+":"+declName(d), n) {
					return
				}
			}
		}
	}
}
