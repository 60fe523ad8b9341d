package delivery

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
)

// The tables in the comments of state.go are the maps below them.
func TestTheTablesOfTheCommentsAreTheCode(t *testing.T) {
	source, err := os.ReadFile("state.go")
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(token.NewFileSet(), "state.go", source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"transitions", "requestTransitions"} {
		decl := file.Scope.Lookup(name).Decl.(*ast.ValueSpec)
		comment := ""
		for _, d := range file.Decls {
			if g, is := d.(*ast.GenDecl); is && slices.Contains(g.Specs, ast.Spec(decl)) {
				comment = g.Doc.Text()
			}
		}
		said, done := linesOf(comment), entriesOf(decl.Values[0])
		slices.Sort(said)
		slices.Sort(done)
		if len(done) < 10 || !slices.Equal(said, done) {
			t.Errorf("%s: the comment says\n%s\nand the code\n%s", name, strings.Join(said, "\n"),
				strings.Join(done, "\n"))
		}
	}
}

// linesOf are the lines of a table: state, event and next state.
func linesOf(comment string) (lines []string) {
	_, table, _ := strings.Cut(comment, "state ")
	for i, line := range strings.Split(table, "\n") {
		if words := strings.Fields(line); i > 0 && len(words) >= 3 {
			lines = append(lines, strings.Join(words[:3], " "))
		}
	}
	return lines
}

// entriesOf are the same of a map in the code.
func entriesOf(e ast.Expr) (lines []string) {
	for _, state := range e.(*ast.CompositeLit).Elts {
		of := state.(*ast.KeyValueExpr)
		for _, event := range of.Value.(*ast.CompositeLit).Elts {
			why := event.(*ast.KeyValueExpr)
			for _, next := range why.Value.(*ast.CompositeLit).Elts {
				lines = append(lines, name(of.Key)+" "+name(why.Key)+" "+name(next))
			}
		}
	}
	return lines
}

func name(e ast.Expr) string { return e.(*ast.Ident).Name }
