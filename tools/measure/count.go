package main

import (
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Each figure is a cost for a reader who is new to the code, and can be counted without judgement. All figures are
// counted in the same way for any commit, so two commits can be compared. No figure is a limit: limits are in
// tools/tidy.
//
// Lines are non-blank lines, because white space is free: paragraphs must not make a file look better or worse.

// figures are the figures of some files, without tests.
type figures struct {
	Name      string
	Files     int
	Lines     int     // non-blank lines
	TestShare float64 // lines of tests per line of code

	// Lines of functions, from the keyword to the last brace.
	Median, P90, Longest int
	Over60               float64 // part of the functions, in percent

	Complexity int    // of the worst function: 1, plus 1 for each branch
	Interface  int    // methods of the largest interface
	Receiver   string // type with the most methods
	Methods    int
	Crowded    []string // types with more than 40 methods

	Comments  float64            // lines that contain only a comment, in percent
	LocalName float64            // mean length of the names that functions declare
	Words     map[string]float64 // per 1,000 words of comments
	Clones    float64            // groups of 60 tokens or more per 1,000 lines

	groups [][]string
}

const (
	longFunction = 60
	manyMethods  = 40
)

// count returns the figures of some files. Tests count only for their share.
func count(name string, files []*file) *figures {
	r := &figures{Name: name}
	var code []*file
	tests := 0
	for _, f := range files {
		if f.test {
			tests += filled(f.src)
			continue
		}
		code = append(code, f)
		r.Lines += filled(f.src)
	}
	r.Files = len(code)
	r.TestShare = ratio(tests, r.Lines)
	r.functions(code)
	r.types(code)
	r.prose(code)
	r.groups = clones(code)
	r.Clones = ratio(len(r.groups)*1000, r.Lines)
	return r
}

// filled returns the number of non-blank lines.
func filled(src string) (n int) {
	for line := range strings.Lines(src) {
		if strings.TrimSpace(line) != "" {
			n++
		}
	}
	return n
}

func ratio(a, b int) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// functions measures each declared function. A function within another is a part of it, because a reader of the outer
// function has to read both.
func (r *figures) functions(code []*file) {
	var lengths []int
	names, letters, long := 0, 0, 0
	for _, f := range code {
		for _, d := range f.tree.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			first, _ := f.lines(fn.Type)
			_, last := f.lines(fn.Body)
			lengths = append(lengths, last-first+1)
			if last-first+1 > longFunction {
				long++
			}
			r.Complexity = max(r.Complexity, complexity(fn.Body))
			for _, id := range locals(fn) {
				names, letters = names+1, letters+len(id)
			}
		}
	}
	if len(lengths) == 0 {
		return
	}
	slices.Sort(lengths)
	r.Median, r.P90, r.Longest = lengths[len(lengths)/2], lengths[len(lengths)*9/10], lengths[len(lengths)-1]
	r.Over60 = 100 * ratio(long, len(lengths))
	r.LocalName = ratio(letters, names)
}

// complexity returns the cyclomatic complexity: the number of paths, as McCabe counts them.
func complexity(body ast.Node) int {
	n := 1
	ast.Inspect(body, func(node ast.Node) bool {
		switch x := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			// The default is the path that remains if no case applies, and adds no path.
			if x.List != nil {
				n++
			}
		case *ast.CommClause:
			if x.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if x.Op == token.LAND || x.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}

// locals returns the names that a function declares, including its receiver and parameters.
func locals(fn *ast.FuncDecl) (names []string) {
	add := func(ids ...*ast.Ident) {
		for _, id := range ids {
			if id.Name != "_" {
				names = append(names, id.Name)
			}
		}
	}
	ast.Inspect(fn, func(n ast.Node) bool {
		switch x := n.(type) {
		// The fields of a type are not local names, although the syntax tree uses the same kind of node for fields
		// and parameters.
		case *ast.StructType, *ast.InterfaceType:
			return false
		case *ast.Field:
			add(x.Names...)
		case *ast.ValueSpec:
			add(x.Names...)
		case *ast.AssignStmt:
			if x.Tok == token.DEFINE {
				for _, e := range x.Lhs {
					if id, ok := e.(*ast.Ident); ok {
						add(id)
					}
				}
			}
		case *ast.RangeStmt:
			for _, e := range []ast.Expr{x.Key, x.Value} {
				if id, ok := e.(*ast.Ident); ok && x.Tok == token.DEFINE {
					add(id)
				}
			}
		}
		return true
	})
	return names
}

// types finds the largest interface and the type with the most methods. A type is identified by its directory too,
// because many packages have types with the same names.
func (r *figures) types(code []*file) {
	methods := map[string]int{} // by directory and receiver
	for _, f := range code {
		ast.Inspect(f.tree, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.InterfaceType:
				r.Interface = max(r.Interface, len(x.Methods.List))
			case *ast.FuncDecl:
				if x.Recv != nil {
					methods[f.dir+"."+receiver(x.Recv.List[0].Type)]++
				}
			}
			return true
		})
	}
	for _, name := range slices.Sorted(maps.Keys(methods)) {
		if n := methods[name]; n > r.Methods {
			r.Receiver, r.Methods = name[strings.LastIndex(name, ".")+1:], n
		}
		if methods[name] > manyMethods {
			r.Crowded = append(r.Crowded, name)
		}
	}
}

// receiver returns the type of a method, without pointer and type parameters, because these differ from method to
// method.
func receiver(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.IndexListExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return "?"
}

// counted are the words that show whether the comments are hard to read, and "because", which shows whether they give
// reasons.
var counted = map[string]*regexp.Regexp{
	"tell":    regexp.MustCompile(`(?i)^(tells?|told|telling)$`),
	"what":    regexp.MustCompile(`(?i)^what$`),
	"one":     regexp.MustCompile(`(?i)^ones?$`),
	"it":      regexp.MustCompile(`(?i)^its?$`),
	"because": regexp.MustCompile(`(?i)^because$`),
}

var word = regexp.MustCompile(`[A-Za-z]+(?:'[a-z]+)?`)

// prose counts the lines and the words of comments.
func (r *figures) prose(code []*file) {
	total, lines := 0, 0
	found := map[string]int{}
	for _, f := range code {
		text := strings.Split(f.src, "\n")
		for _, group := range f.tree.Comments {
			for _, c := range group.List {
				first, last := f.lines(c)
				// A comment after code shares its line. Otherwise, a share of more than 100 % would be possible.
				if strings.HasPrefix(strings.TrimSpace(text[first-1]), "/") {
					lines += last - first + 1
				}
			}
			// All comments count for words, including comments after code. Text leaves out directives, which are not
			// prose.
			for _, w := range word.FindAllString(group.Text(), -1) {
				total++
				for name, pattern := range counted {
					if pattern.MatchString(w) {
						found[name]++
					}
				}
			}
		}
	}
	r.Comments = 100 * ratio(lines, r.Lines)
	r.Words = map[string]float64{}
	for name := range counted {
		r.Words[name] = 1000 * ratio(found[name], total)
	}
}
