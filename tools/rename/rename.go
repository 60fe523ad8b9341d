package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// renaming names a function, or a Type.method, of the package in a directory, and its new name.
type renaming struct{ dir, old, name string }

// ident returns the old name without its type.
func (n renaming) ident() string { return n.old[strings.IndexByte(n.old, '.')+1:] }

// qualified returns the new name with its type.
func (n renaming) qualified() string { return strings.TrimSuffix(n.old, n.ident()) + n.name }

// rename renames in the module in a directory, and returns the changed files.
func rename(top string, n renaming) (changed []string, err error) {
	if !token.IsIdentifier(n.name) {
		return nil, fmt.Errorf("the new name is %q: want an identifier", n.name)
	}
	places, err := findPlaces(top, n)
	if err != nil {
		return nil, err
	}
	lines := map[string]string{} // new lines by old lines, of the files of all packages
	for _, file := range slices.Sorted(maps.Keys(places)) {
		if err := rewriteFile(file, places[file], n, lines); err != nil {
			return changed, err
		}
		changed = append(changed, file)
	}
	more, err := rewriteReferences(top, n, lines)
	return append(changed, more...), err
}

// findPlaces returns the offsets of the old name in each file.
func findPlaces(top string, n renaming) (map[string]map[int]bool, error) {
	where := "./..."
	if !token.IsExported(n.ident()) { // no other package can use the name
		where = "./" + n.dir
	}
	all, err := packages.Load(&packages.Config{Dir: top, Tests: true, Mode: packages.LoadSyntax}, where)
	if err != nil {
		return nil, err
	}
	top, err = filepath.Abs(top)
	if err != nil {
		return nil, err
	}
	places := map[string]map[int]bool{}
	for _, p := range all {
		if len(p.Errors) > 0 {
			return nil, fmt.Errorf("package %s: %w: want a module that builds", p.ID, p.Errors[0])
		}
		add := func(pos token.Pos) {
			at := p.Fset.Position(pos)
			if places[at.Filename] == nil {
				places[at.Filename] = map[int]bool{}
			}
			places[at.Filename][at.Offset] = true
		}
		isMeant := func(id *ast.Ident) bool {
			o := p.TypesInfo.ObjectOf(id)
			if o == nil {
				return false
			}
			at := p.Fset.Position(o.Pos()).Filename
			dir, err := filepath.Rel(top, filepath.Dir(at))
			return err == nil && filepath.ToSlash(dir) == n.dir && nameOf(o) == n.old
		}
		for _, f := range p.Syntax {
			if !strings.HasPrefix(p.Fset.Position(f.Pos()).Filename, top) { // generated for the tests
				continue
			}
			for node := range ast.Preorder(f) {
				switch node := node.(type) {
				case *ast.Ident:
					if isMeant(node) {
						add(node.Pos())
					}
				case *ast.FuncDecl:
					if node.Doc != nil && isMeant(node.Name) &&
						strings.HasPrefix(node.Doc.List[0].Text, "// "+n.ident()+" ") {
						add(node.Doc.Pos() + token.Pos(len("// ")))
					}
				}
			}
		}
	}
	if len(places) == 0 {
		return nil, fmt.Errorf("package %s has no function or method %s", n.dir, n.old)
	}
	return places, nil
}

// nameOf returns the name of a function, with its type for a method; empty for other objects.
func nameOf(o types.Object) string {
	fn, ok := o.(*types.Func)
	if !ok {
		return ""
	}
	recv := fn.Origin().Signature().Recv()
	if recv == nil {
		return fn.Name()
	}
	t := recv.Type()
	if pointer, ok := t.(*types.Pointer); ok {
		t = pointer.Elem()
	}
	if named, ok := t.(*types.Named); ok {
		return named.Obj().Name() + "." + fn.Name()
	}
	return ""
}

// rewriteFile writes the new name at the places of a file, and adds the changed lines to lines.
func rewriteFile(file string, places map[int]bool, n renaming, lines map[string]string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text := string(content)
	var made strings.Builder
	last, lineAt := 0, 0
	var before, after strings.Builder
	for start := 0; start < len(text); {
		end := start + cmp.Or(strings.IndexByte(text[start:], '\n')+1, len(text)-start)
		before.Reset()
		after.Reset()
		lineAt = start
		for _, at := range slices.Sorted(maps.Keys(places)) {
			if at < start || at >= end {
				continue
			}
			after.WriteString(text[lineAt:at] + n.name)
			made.WriteString(text[last:at] + n.name)
			lineAt, last = at+len(n.ident()), at+len(n.ident())
		}
		if lineAt > start {
			after.WriteString(text[lineAt:end])
			lines[strings.TrimSuffix(text[start:end], "\n")] = strings.TrimSuffix(after.String(), "\n")
		}
		start = end
	}
	made.WriteString(text[last:])
	return os.WriteFile(file, []byte(made.String()), 0o644)
}
