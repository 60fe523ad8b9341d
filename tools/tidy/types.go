package tidy

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
)

// Limits on types, which share the reasons of size.go.

// checkMethods finds types with so many methods that nobody knows them all: short functions hide them from the other limits. Methods
// that an embedded type brings count, because whoever has a value can call them.
func checkMethods(r *repo) (found []finding) {
	types := typesOf(r)
	for _, where := range slices.Sorted(maps.Keys(types)) {
		if n := len(types.methodSet(where, map[string]bool{})); n > maxMethods {
			found = append(found, finding{where, fmt.Sprintf("%d methods, limit %d", n, maxMethods)})
		}
	}
	return found
}

// structure is what a type declaration says: the names of methods, and the types that are embedded, as dir:Name.
type structure struct {
	methods  map[string]bool
	embedded []string
}

// structures are the types of the code, by dir:Name.
type structures map[string]*structure

// at is the structure of a type, which is made if there is none.
func (all structures) at(where string) *structure {
	if all[where] == nil {
		all[where] = &structure{methods: map[string]bool{}}
	}
	return all[where]
}

// typesOf reads all types of the code.
func typesOf(r *repo) structures {
	all := structures{}
	for _, f := range r.code() {
		for _, n := range nodes(f) {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil {
					all.at(f.dir + ":" + receiver(n)).methods[n.Name.Name] = true
				}
			case *ast.TypeSpec:
				all.at(f.dir+":"+n.Name.Name).addFields(r, f, n.Type)
			}
		}
	}
	return all
}

// addFields adds what a struct or an interface embeds, and the methods of an interface.
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
			s.embedded = append(s.embedded, r.named(f, field.Type))
		case isInterface:
			s.methods[field.Names[0].Name] = true
		}
	}
}

// named is a type as dir:Name, if it is one of this module; other modules' methods do not count.
func (r *repo) named(f *file, t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return r.named(f, t.X)
	case *ast.IndexExpr:
		return r.named(f, t.X)
	case *ast.Ident:
		return f.dir + ":" + t.Name
	case *ast.SelectorExpr:
		if of, ok := t.X.(*ast.Ident); ok {
			if dir, ours := r.local(f.imports[of.Name]); ours {
				return dir + ":" + t.Sel.Name
			}
		}
	}
	return ""
}

// methodSet are the names of the methods of a type, with those that are promoted.
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

// checkBooleans finds structs with so many booleans that their legal combinations are nowhere written: such a state is a type.
func checkBooleans(r *repo) (found []finding) {
	for _, f := range r.code() {
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
				found = append(found, r.find(f.dir+":"+spec.Name.Name, n, "%d booleans, limit %d", booleans, maxBooleans))
			}
		}
	}
	return found
}
