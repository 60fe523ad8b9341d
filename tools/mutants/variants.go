package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Building takes the most time, so the mutants of a package are built together if possible. A function with mutants
// is compiled unchanged and once more for each mutant, and an environment variable selects the version that is
// called.

// chosenBy is the environment variable with the number of the mutant. 0, or no variable, selects the original code.
const chosenBy = "PLANTED_MUTANT"

const chooser = `package %s

import (
	"os"
	"strconv"
)

var plantedMutant, _ = strconv.Atoi(os.Getenv("` + chosenBy + `"))
`

// variant is a mutant of a function, together with the original.
type variant struct {
	number            int
	planted, original *place
}

// together returns the files of a package with all mutants that can share a build, and the numbers of their trials.
// The other mutants change a declaration that is not a function, or a function that cannot be called through another
// function.
func together(root, pkg string, trials map[int]*trial) (files map[string]string, numbers []int, err error) {
	decls := map[string][]variant{}
	for number, t := range trials {
		original, err := find(filepath.Join(root, pkg), t.decl)
		if err != nil {
			continue
		}
		planted, err := t.plantDefect(root)
		// A mutant of the signature could not be called with the original's arguments.
		if err == nil && original.isRepeatable() && original.lines[original.from] == planted.lines[planted.from] {
			decls[t.decl] = append(decls[t.decl], variant{number, planted, original})
			numbers = append(numbers, number)
		}
	}
	if len(decls) == 0 {
		return nil, nil, nil
	}
	files, err = withVariants(filepath.Join(root, pkg), decls)
	return files, numbers, err
}

// withVariants returns the files of the declarations, with all variants of each, and the file that selects the
// variant.
func withVariants(dir string, decls map[string][]variant) (map[string]string, error) {
	byFile := map[string][][]variant{}
	name := ""
	for _, vs := range decls {
		slices.SortFunc(vs, func(a, b variant) int { return cmp.Compare(a.number, b.number) })
		byFile[vs[0].original.file] = append(byFile[vs[0].original.file], vs)
		name = vs[0].original.pkg
	}
	files := map[string]string{filepath.Join(dir, "planted_mutant.go"): fmt.Sprintf(chooser, name)}
	for file, all := range byFile {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		lines := strings.Split(string(text), "\n")
		// from the end
		slices.SortFunc(all, func(a, b []variant) int { return cmp.Compare(b[0].original.from, a[0].original.from) })
		for _, vs := range all {
			o := vs[0].original
			lines = slices.Replace(lines, o.from, o.upto, o.dispatchTo(vs))
		}
		files[file] = strings.Join(lines, "\n")
	}
	return files, nil
}

// isRepeatable reports whether a function does the same when called through another function.
func (p *place) isRepeatable() bool {
	if p.fn == nil || p.fn.Type.TypeParams != nil || p.fn.Name.Name == "init" || p.fn.Name.Name == "main" {
		return false
	}
	if p.fn.Recv != nil {
		switch t := p.fn.Recv.List[0].Type.(type) {
		case *ast.Ident:
		case *ast.StarExpr:
			if _, plain := t.X.(*ast.Ident); !plain {
				return false // of a generic type
			}
		default:
			return false
		}
	}
	for n := range ast.Preorder(p.fn) {
		if id, ok := n.(*ast.Ident); ok && id.Name == "recover" {
			return false // works only in the deferred function itself
		}
	}
	return true
}

// dispatchTo returns a function that calls the chosen variant, followed by all variants.
func (p *place) dispatchTo(vs []variant) string {
	var b strings.Builder
	receiver, of := "", ""
	if p.fn.Recv != nil {
		names, declared := p.nameParameters(p.fn.Recv, "itself")
		receiver, of = "("+declared+") ", names+"."
	}
	given, params := p.nameParameters(p.fn.Type.Params, "given")
	results, returns := "", ""
	if r := p.fn.Type.Results; r != nil {
		results, returns = " "+p.sourceOf(r), "return "
	}
	name := p.fn.Name.Name
	fmt.Fprintf(&b, "func %s%s(%s)%s {\n\tswitch plantedMutant {\n", receiver, name, params, results)
	for _, v := range vs {
		fmt.Fprintf(&b, "\tcase %d:\n\t\t%s%s%s(%s)\n", v.number, returns, of, renamed(name, v.number), given)
	}
	// The switch has a default, and a return in each case, so for the compiler the switch ends the function, and no
	// further result is needed.
	fmt.Fprintf(&b, "\tdefault:\n\t\t%s%s%s(%s)\n\t}\n}\n", returns, of, renamed(name, 0), given)
	b.WriteString(p.declareAs(renamed(name, 0)))
	for _, v := range vs {
		v.planted.fn = p.fn
		b.WriteString(v.planted.declareAs(renamed(name, v.number)))
	}
	return b.String()
}

func renamed(name string, number int) string { return fmt.Sprintf("%sPlanted%d", name, number) }

// declareAs returns the declaration under another name.
func (p *place) declareAs(name string) string {
	text := strings.Join(p.lines[p.from:p.upto], "\n")
	// The name is on the first line, which no variant changes, so the place of the original's name is also that of
	// the mutant's.
	at := int(p.fn.Name.Pos() - p.fn.Pos())
	return "\n" + text[:at] + name + text[at+len(p.fn.Name.Name):] + "\n"
}

// nameParameters returns parameters as arguments of a call, and as declarations in which all have names.
func (p *place) nameParameters(list *ast.FieldList, prefix string) (given, declared string) {
	var calls, params []string
	for _, field := range list.List {
		names := field.Names
		if len(names) == 0 {
			names = []*ast.Ident{ast.NewIdent("_")}
		}
		dots := ""
		if _, variadic := field.Type.(*ast.Ellipsis); variadic {
			dots = "..."
		}
		for _, id := range names {
			name := id.Name
			// A parameter without a name must be passed on too.
			if name == "_" {
				name = fmt.Sprint(prefix, len(params))
			}
			calls = append(calls, name+dots)
			params = append(params, name+" "+p.sourceOf(field.Type))
		}
	}
	return strings.Join(calls, ", "), strings.Join(params, ", ")
}

// sourceOf returns the text of a node. If a file is alone in its set, positions are offsets counted from 1.
func (p *place) sourceOf(n ast.Node) string {
	return strings.Join(p.lines, "\n")[n.Pos()-token.Pos(1) : n.End()-token.Pos(1)]
}
