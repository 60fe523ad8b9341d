package sql

import (
	"slices"
	"strings"
)

// What the service refuses although it could be computed. A strict server refuses the same, so a program that works
// here works there. A query is parsed without these checks, because a lenient server serves such queries.

// SortPath is a path by which a query sorts, as in an indexing policy: /a/b.
type SortPath struct {
	Path string
	Desc bool
}

// strictness is what a strict server must know about a query.
type strictness struct {
	err  *Error     // nil if the service serves the query
	sort []SortPath // of the query itself; nil if a sort key is no path

	sortsDocuments bool // the paths of sort begin at the document
}

// Refused returns the service's refusal of a query that could be computed, or nil.
func (q *Query) Refused() error {
	if q.strict.err == nil {
		return nil
	}
	return q.strict.err
}

// SortPaths returns the paths of ORDER BY. The service needs an index of all these paths together if there are
// several.
func (q *Query) SortPaths() []SortPath { return q.strict.sort }

// SortsDocuments reports whether the paths of [Query.SortPaths] begin at the document, so the indexing policy of the
// container has them. They do not if FROM is a subquery or a part of the document.
func (q *Query) SortsDocuments() bool { return q.strict.sortsDocuments }

// strictnessOf examines a query. ORDER BY, TOP and OFFSET LIMIT are refused in subqueries, and so are ORDER BY of
// anything but a path into the document, and an index that depends on the document. Beyond the service's limits
// (strictlimits.go), every query is.
func strictnessOf(text string, stmt *selectStmt) (s strictness) {
	w := strictWalk{text: text}
	w.query(stmt)
	for _, err := range append(w.counts.refused(text), w.found...) {
		if s.err == nil {
			s.err = err
		} else {
			s.err.Others = append(s.err.Others, err)
		}
	}
	aliases := documentAliases(stmt)
	s.sortsDocuments = aliases != nil
	for _, key := range stmt.Tail.Order {
		path, ok := w.sortPath(key.Expr, aliases)
		if !ok {
			if s.err == nil && !isRanked(key.Expr) {
				s.err = failf(-1, "Unsupported ORDER BY clause. ORDER BY item expression could not be mapped to a "+
					"document path.")
			}
			return strictness{err: s.err}
		}
		s.sort = append(s.sort, SortPath{path, key.Desc})
	}
	return s
}

// sortingFunctions are the functions that ORDER BY takes, in lower case. The last two are in plans of hybrid searches.
var sortingFunctions = []string{"vectordistance", "_fulltextscore", "_vectorscore"}

// isRanked reports whether rows are sorted by a function that ORDER BY takes.
func isRanked(e *expr) bool {
	return len(e.Rest) == 0 && slices.Contains(sortingFunctions, strings.ToLower(e.First.Primary.Name))
}

// documentAliases returns the names of the document in a query; nil means any name, because FROM is a subquery.
func documentAliases(stmt *selectStmt) []string {
	if len(stmt.From) == 0 || stmt.From[0].Sub != nil {
		return nil
	}
	first := stmt.From[0]
	switch {
	case first.In != nil && first.In.Sub == nil:
		return []string{} // of an array, which has no index in its own order
	case first.In != nil:
		return nil
	case first.Alias != "":
		return []string{first.Alias}
	case len(first.Path) > 0:
		return nil // FROM c.x: the alias is the last name of the path
	}
	return []string{first.Name}
}

// strictWalk visits the subqueries of a query.
type strictWalk struct {
	text  string
	found []*Error
	names int // names of the document, of sources and of their members so far

	counts queryCounts
}

// sortPath returns a path into the document in the form of an indexing policy.
func (w *strictWalk) sortPath(e *expr, aliases []string) (string, bool) {
	steps, ok := w.pathSteps(e, aliases)
	var path strings.Builder
	for _, s := range steps {
		path.WriteByte('/')
		if s.index >= 0 {
			path.WriteString("[]")
		} else {
			path.WriteString(s.name)
		}
	}
	return path.String(), ok
}

// pathSteps returns the steps of a path into the document.
func (w *strictWalk) pathSteps(e *expr, aliases []string) (steps []step, ok bool) {
	p := e.First.Primary
	for len(e.Rest) == 0 && len(e.First.Signs) == 0 && p.Group != nil && len(p.Suffix) == 0 &&
		len(p.Group.list()) == 1 {
		e = p.Group.list()[0] // brackets change nothing
		p = e.First.Primary
	}
	isPath := len(e.Rest) == 0 && len(e.First.Signs) == 0 && p.Name != "" && len(p.Suffix) > 0
	if !isPath || aliases != nil && !slices.Contains(aliases, p.Name) {
		return nil, false
	}
	c := compiler{text: w.text, params: map[string]int{}}
	for _, suffix := range p.Suffix {
		s, ok := c.constantStep(suffix)
		if !ok {
			return nil, false
		}
		steps = append(steps, s)
	}
	return steps, true
}

// query visits the subqueries of a query.
func (w *strictWalk) query(s *selectStmt) {
	w.counts.joins += max(0, len(s.From)-1)
	for _, from := range s.From {
		if from.In != nil {
			from = from.In
		}
		w.subquery(from.Sub)
	}
	w.expr(s.List.Value)
	for _, item := range s.List.Items {
		w.expr(item.Expr)
	}
	w.expr(s.Tail.Where)
	w.exprs(s.Tail.Group)
	for _, key := range s.Tail.Order {
		w.expr(key.Expr)
	}
}

// subquery refuses the clauses that a subquery may not have.
func (w *strictWalk) subquery(s *selectStmt) {
	if s == nil {
		return
	}
	if s.Top != nil {
		w.refuse("TOP", s.Top.Pos.Offset, s.Top.Pos.Offset+len(s.Top.Value), "'TOP' is not supported in subqueries.")
	}
	if order := s.Tail.Order; len(order) > 0 {
		end := order[len(order)-1].Expr.EndPos.Offset
		after := scanner{text: w.text, at: end}
		if token, err := after.Next(); err == nil && (token.Value == "ASC" || token.Value == "DESC") {
			end = after.at
		}
		w.refuse("ORDER", order[0].Expr.Pos.Offset, end, "'ORDER BY' is not supported in subqueries.")
	}
	if limit := s.Tail.Limit; limit != nil {
		w.refuse("OFFSET", s.Tail.Offset.Pos.Offset, limit.Pos.Offset+len(limit.Value),
			"'OFFSET LIMIT' clause is not supported in subqueries.")
	}
	w.query(s)
}

// refuse adds an error for a clause. The clause begins with a word before a place of the text.
func (w *strictWalk) refuse(word string, before, end int, message string) {
	if len(w.found) >= maxStrays {
		return
	}
	at := lastIndexFold(w.text[:before], word)
	err := failf(at, "%s", message)
	err.End = at + len(strings.TrimRight(w.text[at:end], " \t\r\n"))
	w.found = append(w.found, err)
}

// lastIndexFold returns the place of the last occurrence of an ASCII word, in upper or lower case. It does not change
// the case of the text, because the upper case of some letters has another number of bytes.
func lastIndexFold(text, word string) int {
	at := len(text) - len(word)
	for at >= 0 && !strings.EqualFold(text[at:at+len(word)], word) {
		at--
	}
	return max(at, -1)
}

// exprs visits expressions.
func (w *strictWalk) exprs(list []*expr) {
	for _, e := range list {
		w.expr(e)
	}
}

// expr visits an expression; nil is none.
func (w *strictWalk) expr(e *expr) {
	if e == nil {
		return
	}
	w.primary(e.First.Primary)
	w.counts.addLists(e.Rest)
	for _, link := range e.Rest {
		w.primary(link.Right.Primary)
	}
}

// primary visits an operand.
func (w *strictWalk) primary(p *primary) {
	w.args(p.Group)
	if p.Array != nil {
		w.exprs(p.Array.Exprs)
	}
	if p.Object != nil {
		for _, member := range p.Object.Members {
			w.expr(member.Value)
		}
	}
	if p.Name != "" && (len(p.Suffix) == 0 || p.Suffix[0].Call == nil) {
		w.names++
	}
	for _, suffix := range p.Suffix {
		before := w.names
		w.expr(suffix.Index)
		if suffix.Index != nil && w.names > before {
			w.refuseIndex(suffix.Index)
		}
		w.args(suffix.Call)
	}
}

// refuseIndex adds an error for an index that is not known before the documents are read, as in c.list[c.n].
func (w *strictWalk) refuseIndex(index *expr) {
	if len(w.found) < maxStrays {
		err := failf(index.Pos.Offset, "The index of an array or object must be a constant.")
		err.End = index.Pos.Offset + len(strings.TrimRight(w.text[index.Pos.Offset:index.EndPos.Offset], " \t\r\n"))
		w.found = append(w.found, err)
	}
}

// args visits a list in brackets; nil is none. Plain literals have no subqueries.
func (w *strictWalk) args(a *args) {
	if a != nil {
		w.subquery(a.Sub)
		w.exprs(a.Exprs)
	}
}
