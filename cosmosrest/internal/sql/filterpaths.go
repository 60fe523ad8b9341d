package sql

import (
	"slices"
	"strings"
	"unicode"

	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// The paths by which a query filters and sorts, for index metrics. In the service, each of them is answered by an index.

// comparisons are the operators that an index answers if one side is a path and the other is constant.
var comparisons = []string{"=", "!=", "<>", "<", "<=", ">", ">=", "IN", "BETWEEN", "LIKE"}

// indexedFunctions are the functions that an index of their first argument answers.
var indexedFunctions = []string{
	"ARRAY_CONTAINS", "CONTAINS", "ENDSWITH", "IS_ARRAY", "IS_BOOL", "IS_DEFINED", "IS_NULL", "IS_NUMBER", "IS_OBJECT",
	"IS_PRIMITIVE", "IS_STRING", "REGEXMATCH", "STARTSWITH", "STRINGEQUALS",
}

// FilterPaths returns the paths into the document that the query compares with constants, tests by functions, or sorts
// by, in the form of an indexing policy: /name/?, /list/[]/? and /"two words"/?.
func (q *Query) FilterPaths() []string {
	stmt := q.statement()
	if stmt == nil {
		return nil
	}
	w := filterWalk{text: q.text, aliases: documentAliases(stmt)}
	if len(w.aliases) == 0 {
		return nil // FROM is no document
	}
	w.expr(stmt.List.Value)
	for _, item := range stmt.List.Items {
		w.expr(item.Expr)
	}
	w.expr(stmt.Tail.Where)
	if len(stmt.Tail.Order) == 1 { // several paths have an index together
		w.note(stmt.Tail.Order[0].Expr)
	}
	return w.found
}

// filterWalk visits the conditions of a query.
type filterWalk struct {
	text    string
	aliases []string
	found   []string
}

// note adds an expression if it is a path into the document.
func (w *filterWalk) note(e *expr) {
	steps, ok := (&strictWalk{text: w.text}).pathSteps(e, w.aliases)
	if !ok {
		return
	}
	var path strings.Builder
	for _, s := range steps {
		path.WriteByte('/')
		switch {
		case s.index >= 0:
			path.WriteString("[]")
		case strings.IndexFunc(s.name, isSpecial) >= 0 || s.name == "":
			path.Write(rawjson.AppendString(nil, s.name))
		default:
			path.WriteString(s.name)
		}
	}
	path.WriteString("/?")
	if !slices.Contains(w.found, path.String()) {
		w.found = append(w.found, path.String())
	}
}

// isSpecial reports whether a name with the character is in quotes in an indexing policy.
func isSpecial(r rune) bool {
	return r != '_' && !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsDigit(r)
}

// expr visits an expression; nil is none.
func (w *filterWalk) expr(e *expr) {
	if e == nil {
		return
	}
	left := e.First
	w.operand(left)
	for _, link := range e.Rest {
		if slices.Contains(comparisons, strings.ToUpper(link.Op)) {
			w.compare(left, link.Right)
			w.compare(link.Right, left)
		}
		left = link.Right
		w.operand(left)
	}
}

// compare notes a path that is compared with a constant.
func (w *filterWalk) compare(path, other *unary) {
	names := strictWalk{text: w.text}
	names.primary(other.Primary)
	if names.names == 0 && len(path.Signs) == 0 {
		w.note(&expr{First: path})
	}
}

// operand visits the arguments of a function, and the inside of brackets.
func (w *filterWalk) operand(u *unary) {
	p := u.Primary
	if p.Group != nil {
		for _, inner := range p.Group.list() {
			w.expr(inner)
		}
	}
	if p.Name == "" || len(p.Suffix) == 0 || p.Suffix[0].Call == nil {
		return
	}
	list := p.Suffix[0].Call.list()
	if len(list) > 0 && slices.Contains(indexedFunctions, strings.ToUpper(p.Name)) {
		w.note(list[0])
	}
	for _, arg := range list {
		w.expr(arg)
	}
}
