package tidy

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
)

// Limits on types, for the reasons in size.go.

// checkMethods finds types with too many methods to remember: short functions hide them from the other limits. The
// methods of embedded types count, because callers can use them too.
func checkMethods(r *repo) (found []finding) {
	types := typesOf(r)
	for _, where := range slices.Sorted(maps.Keys(types)) {
		if n := len(types.methodSet(where, map[string]bool{})); n > maxMethods {
			found = append(found, finding{where, fmt.Sprintf("%d methods, limit %d", n, maxMethods)})
		}
	}
	return found
}

// structure contains the names of a type's own methods, and its embedded types as dir:Name.
type structure struct {
	methods  map[string]bool
	embedded []string
}

// structures contains the types of the code, by dir:Name.
type structures map[string]*structure

// structureAt returns the structure of a type, and creates a missing structure.
func (all structures) structureAt(where string) *structure {
	if all[where] == nil {
		all[where] = &structure{methods: map[string]bool{}}
	}
	return all[where]
}

// typesOf reads all types of the code.
func typesOf(r *repo) structures {
	all := structures{}
	for _, f := range r.codeFiles() {
		for _, n := range nodes(f) {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil {
					all.structureAt(f.dir + ":" + receiver(n)).methods[n.Name.Name] = true
				}
			case *ast.TypeSpec:
				all.structureAt(f.dir+":"+n.Name.Name).addFields(r, f, n.Type)
			}
		}
	}
	return all
}

// addFields adds the embedded types of a struct or an interface, and the methods of an interface.
func (s *structure) addFields(r *repo, f *file, t ast.Expr) {
	var fields []*ast.Field
	ofInterface, isInterface := t.(*ast.InterfaceType)
	if isInterface {
		fields = ofInterface.Methods.List
	}
	if t, ok := t.(*ast.StructType); ok {
		fields = t.Fields.List
	}
	for _, field := range fields {
		switch {
		case len(field.Names) == 0:
			s.embedded = append(s.embedded, r.moduleType(f, field.Type))
		case isInterface:
			s.methods[field.Names[0].Name] = true
		}
	}
}

// moduleType returns a type of this module as dir:Name, and an empty string for types of other modules, whose methods
// do not count.
func (r *repo) moduleType(f *file, t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return r.moduleType(f, t.X)
	case *ast.IndexExpr:
		return r.moduleType(f, t.X)
	case *ast.Ident:
		return f.dir + ":" + t.Name
	case *ast.SelectorExpr:
		if of, ok := t.X.(*ast.Ident); ok {
			if dir, ours := r.localDir(f.imports[of.Name]); ours {
				return dir + ":" + t.Sel.Name
			}
		}
	}
	return ""
}

// methodSet returns the names of the methods of a type, including promoted methods.
func (all structures) methodSet(where string, seen map[string]bool) map[string]bool {
	set := map[string]bool{}
	if all[where] == nil || seen[where] {
		return set
	}
	seen[where] = true
	maps.Copy(set, all[where].methods)
	for _, embedded := range all[where].embedded {
		maps.Copy(set, all.methodSet(embedded, seen))
	}
	return set
}

// checkBooleans finds structs with many booleans. The code does not say which of their combinations are legal; a type
// for the state would.
func checkBooleans(r *repo) (found []finding) {
	for _, f := range r.codeFiles() {
		for _, n := range nodes(f) {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				continue
			}
			t, ok := spec.Type.(*ast.StructType)
			if !ok {
				continue
			}
			booleans := 0
			for _, field := range t.Fields.List {
				if id, ok := field.Type.(*ast.Ident); ok && id.Name == "bool" {
					booleans += max(len(field.Names), 1)
				}
			}
			if booleans > maxBooleans {
				found = append(found, r.newFinding(f.dir+":"+spec.Name.Name, n, "%d booleans, limit %d", booleans,
					maxBooleans))
			}
		}
	}
	return found
}
