package tidy

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits on size. A number says nothing about quality by itself. But code beyond a limit usually has a part that
// could be elsewhere, and without a limit this part is not noticed. You may raise a limit, in a commit with the
// reason.

// checkFileLength finds files that are too long to keep in mind.
func checkFileLength(r *repo) (found []finding) {
	for _, f := range r.files {
		if n := f.countLines(); n > limit(f, maxFileLines) {
			found = append(found, finding{f.path, fmt.Sprintf("%d lines, limit %d", n, limit(f, maxFileLines))})
		}
	}
	return found
}

// checkLineLength finds long lines. A line may be longer because of a string that would have to be cut, or of an
// example in a comment.
func checkLineLength(r *repo) (found []finding) {
	for _, f := range r.files {
		var literals map[int]bool // of the few files with a long line
		for i, line := range strings.Split(f.src, "\n") {
			width := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
			code := strings.TrimSpace(line)
			if width <= maxLineWidth || strings.HasPrefix(code, "//\t") || strings.HasPrefix(code, "//go:") {
				continue
			}
			if literals == nil {
				literals = r.linesOfLiterals(f)
			}
			if literals[i+1] {
				continue
			}
			found = append(found, finding{f.path, fmt.Sprintf("line %d: %d characters, limit %d", i+1, width,
				maxLineWidth)})
		}
	}
	return found
}

// linesOfLiterals returns the lines of a file that have a long string, or a part of one.
func (r *repo) linesOfLiterals(f *file) map[int]bool {
	lines := map[int]bool{}
	for _, n := range nodes(f) {
		if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING && len(s.Value) > longLiteral {
			for line := r.fset.Position(s.Pos()).Line; line <= r.fset.Position(s.End()).Line; line++ {
				lines[line] = true
			}
		}
	}
	return lines
}

// checkFuncLength finds functions longer than a screen.
func checkFuncLength(r *repo) (found []finding) {
	for _, f := range r.files {
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			n := r.fset.Position(fn.End()).Line - r.fset.Position(fn.Pos()).Line + 1
			if n > limit(f, maxFuncLines) {
				found = append(found, r.newFinding(f.path+":"+declName(fn), fn, "%d lines, limit %d", n,
					limit(f, maxFuncLines)))
			}
		}
	}
	return found
}

// limit returns the limit for a file, which is larger for tests.
func limit(f *file, n int) int {
	if f.test {
		return n * testAllowance
	}
	return n
}

func isTest(f *file) bool { return f.test }

// checkRootSize counts the files, lines and exported names of the root package.
func checkRootSize(r *repo) (found []finding) {
	root := slices.DeleteFunc(r.filesIn("."), isTest)
	lines, names := 0, 0
	for _, f := range root {
		lines += f.countLines()
		for _, d := range f.ast.Decls {
			names += exported(d)
		}
	}
	for _, c := range []struct {
		what      string
		got, most int
	}{
		{"code files", len(root), maxRootFiles},
		{"lines", lines, maxRootLines},
		{"exported names", names, maxRootNames},
	} {
		if c.got > c.most {
			found = append(found, finding{".", fmt.Sprintf("%d %s, limit %d", c.got, c.what, c.most)})
		}
	}
	return found
}

// checkCommandSize counts the lines of the released command.
func checkCommandSize(r *repo) (found []finding) {
	lines := 0
	for _, f := range slices.DeleteFunc(r.filesIn(released), isTest) {
		lines += f.countLines()
	}
	if lines > maxCommandLines {
		found = append(found, finding{released, fmt.Sprintf("%d lines, limit %d", lines, maxCommandLines)})
	}
	return found
}

// exported counts the exported names introduced by a declaration, without methods.
func exported(d ast.Decl) (n int) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil && d.Name.IsExported() {
			n++
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			for _, name := range specNames(spec) {
				if name.IsExported() {
					n++
				}
			}
		}
	}
	return n
}

// checkInterfaces finds interfaces that are too large for an implementer.
func checkInterfaces(r *repo) (found []finding) {
	for _, f := range r.codeFiles() {
		for where, n := range nodes(f) {
			if t, ok := n.(*ast.InterfaceType); ok && t.Methods.NumFields() > maxInterface {
				found = append(found, r.newFinding(where, n, "interface of %d methods, limit %d", t.Methods.NumFields(),
					maxInterface))
			}
		}
	}
	return found
}
