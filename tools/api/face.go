package main

import (
	"fmt"
	"go/types"
	"path"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
	"golang.org/x/tools/go/types/typeutil"
)

// A face is what a package shows to programs that import it: one line for each exported name, sorted. A line has
// everything on which such a program can depend, so a change that can break it removes a line.
//
//   - The line of an interface names all its methods, because a method more breaks those who implement it.
//   - The line of a struct says whether its values can be compared.
//   - Names of parameters are left out, because no caller depends on them.

// loadFaces returns the faces of the public packages below dir, by their paths within the module.
func loadFaces(dir string) (map[string][]string, error) {
	config := &packages.Config{Mode: packages.NeedName | packages.NeedModule, Dir: dir}
	listed, err := packages.Load(config, "./...")
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	var public []string
	for _, pkg := range listed {
		if isPublic(withinModule(pkg)) && pkg.Name != "main" {
			public = append(public, pkg.PkgPath)
		}
	}
	faces := map[string][]string{}
	if public == nil { // no pattern would be the package in the directory
		return faces, nil
	}
	config.Mode |= packages.LoadTypes
	loaded, err := packages.Load(config, public...) // types need a compilation, which the other packages are spared
	if err != nil {
		return nil, fmt.Errorf("load packages: %w", err)
	}
	for _, pkg := range loaded {
		if len(pkg.Errors) > 0 {
			return nil, fmt.Errorf("load package %s: %w", pkg.PkgPath, pkg.Errors[0])
		}
		faces[withinModule(pkg)] = faceOf(pkg.Types)
	}
	return faces, nil
}

// withinModule returns the path of a package within its module, empty for the one at the top.
func withinModule(pkg *packages.Package) string {
	return strings.TrimPrefix(strings.TrimPrefix(pkg.PkgPath, pkg.Module.Path), "/")
}

// isPublic reports whether other modules can import a package and are meant to: examples are to be copied, and tools
// are programs of this repository.
func isPublic(within string) bool {
	first, _, _ := strings.Cut(within, "/")
	return !slices.Contains(strings.Split(within, "/"), "internal") &&
		!slices.Contains([]string{"examples", "tools", "cmd", "conformance"}, first)
}

// faceOf returns the lines of a package.
func faceOf(pkg *types.Package) []string {
	f := &face{pkg: pkg}
	for _, name := range pkg.Scope().Names() {
		if object := pkg.Scope().Lookup(name); object.Exported() {
			f.add(object)
		}
	}
	slices.Sort(f.lines)
	return slices.Compact(f.lines)
}

// face collects the lines of a package.
type face struct {
	pkg   *types.Package
	lines []string
}

// addLine adds a line.
func (f *face) addLine(format string, args ...any) {
	f.lines = append(f.lines, fmt.Sprintf(format, args...))
}

// add adds the lines of an exported name.
func (f *face) add(object types.Object) {
	switch o := object.(type) {
	case *types.Const:
		f.addLine("const %s %s = %s", o.Name(), f.text(o.Type()), o.Val().ExactString())
	case *types.Var:
		f.addLine("var %s %s", o.Name(), f.text(o.Type()))
	case *types.Func:
		signature := o.Signature()
		f.addLine("func %s%s%s", o.Name(), f.parameters(signature.TypeParams()), f.call(signature))
	case *types.TypeName:
		f.addType(o)
	}
}

// addType adds the lines of a type, with its fields and methods.
func (f *face) addType(o *types.TypeName) {
	if o.IsAlias() {
		f.addLine("type %s = %s", o.Name(), f.text(types.Unalias(o.Type())))
		return
	}
	named, ok := o.Type().(*types.Named)
	if !ok {
		return
	}
	name := o.Name() + f.parameters(named.TypeParams())
	switch under := named.Underlying().(type) {
	case *types.Interface:
		f.addInterface(name, under)
		return
	case *types.Struct:
		compared := ""
		if types.Comparable(named) {
			compared = ", comparable"
		}
		f.addLine("type %s struct%s", name, compared)
		for field := range under.Fields() {
			if field.Exported() {
				f.addField(name, field)
			}
		}
	default:
		f.addLine("type %s %s", name, f.text(under))
	}
	for _, selected := range typeutil.IntuitiveMethodSet(named, nil) {
		if method := selected.Obj(); method.Exported() {
			receiver := f.text(selected.Recv())
			f.addLine("method (%s) %s%s", receiver, method.Name(), f.call(method.Type().(*types.Signature)))
		}
	}
}

// addField adds the line of an exported field.
func (f *face) addField(of string, field *types.Var) {
	embedded := ""
	if field.Embedded() {
		embedded = "embedded "
	}
	f.addLine("type %s struct, %s%s %s", of, embedded, field.Name(), f.text(field.Type()))
}

// addInterface adds the lines of an interface: all methods in one line, because one more breaks who implements it, and
// each method with its form.
func (f *face) addInterface(name string, of *types.Interface) {
	var methods []string
	sealed := ""
	for method := range of.Methods() {
		if !method.Exported() {
			sealed = " and others that are not exported"
			continue
		}
		methods = append(methods, method.Name())
		f.addLine("type %s interface, %s%s", name, method.Name(), f.call(method.Signature()))
	}
	if !of.IsMethodSet() { // a constraint
		f.addLine("type %s %s", name, f.text(of))
		return
	}
	f.addLine("type %s interface { %s }%s", name, strings.Join(methods, ", "), sealed)
}

// text returns the text of a type, in which types of this package have no qualifier.
func (f *face) text(of types.Type) string {
	if signature, ok := of.(*types.Signature); ok {
		return "func" + f.call(signature)
	}
	return types.TypeString(of, func(other *types.Package) string {
		if other == f.pkg {
			return ""
		}
		// the last element of a path is enough for a reader, unless that is a version
		if base := path.Base(other.Path()); !strings.HasPrefix(base, "v") {
			return base
		}
		return other.Path()
	})
}

// call returns the parameters and results of a function, without their names.
func (f *face) call(signature *types.Signature) string {
	parameters := f.tuple(signature.Params())
	if n := len(parameters); signature.Variadic() {
		parameters[n-1] = "..." + strings.TrimPrefix(parameters[n-1], "[]")
	}
	results := f.tuple(signature.Results())
	text := "(" + strings.Join(parameters, ", ") + ")"
	switch len(results) {
	case 0:
		return text
	case 1:
		return text + " " + results[0]
	}
	return text + " (" + strings.Join(results, ", ") + ")"
}

// tuple returns the types of parameters or results.
func (f *face) tuple(of *types.Tuple) (all []string) {
	for v := range of.Variables() {
		all = append(all, f.text(v.Type()))
	}
	return all
}

// parameters returns the type parameters of a name, in brackets.
func (f *face) parameters(of *types.TypeParamList) string {
	if of.Len() == 0 {
		return ""
	}
	var all []string
	for parameter := range of.TypeParams() {
		all = append(all, parameter.Obj().Name()+" "+f.text(parameter.Constraint()))
	}
	return "[" + strings.Join(all, ", ") + "]"
}
