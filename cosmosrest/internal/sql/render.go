package sql

import (
	"strconv"
	"strings"

	"github.com/millrace/changefeed/internal/cosmosdb/rawjson"
)

// The text of a query in the form of the service's planner, for rewritten queries and for the lists of expressions in
// a plan. Programs compare these texts, so they are the service's to the letter: keywords in upper case, each clause
// on a line, every operator in brackets, strings in double quotes, numbers with 15 or 17 digits.

// renderer writes the syntax of a query as text.
type renderer struct{ q *Query }

// subqueryIndent is how far the lines of a subquery are indented.
const subqueryIndent = "    "

// maxRendered is the deepest nesting of brackets in a rendered expression. An expression that would nest deeper keeps
// its own text, because the rewritten query must be one that the lexer accepts (see maxNesting).
const maxRendered = maxNesting - 16

// selectText returns a SELECT with a clause on each line.
func (r renderer) selectText(s *selectStmt) string {
	head := "SELECT "
	if s.Distinct {
		head += "DISTINCT "
	}
	if s.Top != nil {
		head += "TOP " + r.literal(s.Top.Value) + " "
	}
	return head + r.list(s) + r.fromClause(s) + r.whereClause(s) + r.tail(s)
}

// list returns the list after SELECT.
func (r renderer) list(s *selectStmt) string {
	switch {
	case s.List.Star:
		return "*"
	case s.List.Value != nil:
		return "VALUE " + r.expr(s.List.Value)
	}
	var all []string
	for _, item := range s.List.Items {
		text := r.expr(item.Expr)
		if item.Alias != "" {
			text += " AS " + item.Alias
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// fromClause returns FROM and its joins, each on a line; "" if there is no FROM.
func (r renderer) fromClause(s *selectStmt) string {
	var text strings.Builder
	for i, ref := range s.From {
		word := "\nJOIN "
		if i == 0 {
			word = "\nFROM "
		}
		text.WriteString(word + r.source(ref))
	}
	return text.String()
}

// source returns a collection of FROM or JOIN with its alias.
func (r renderer) source(ref *sourceRef) string {
	text := ref.Name
	if ref.Sub != nil {
		text = r.subquery(ref.Sub)
	}
	text += r.steps(ref.Path)
	switch {
	case ref.In != nil:
		text += " IN " + r.source(ref.In)
	case ref.Alias != "":
		text += " AS " + ref.Alias
	}
	return text
}

// subquery returns a SELECT in brackets, indented.
func (r renderer) subquery(s *selectStmt) string {
	// A string has no raw line feed in this form, so each line feed separates clauses.
	return "(" + strings.ReplaceAll("\n"+r.selectText(s), "\n", "\n"+subqueryIndent) + "\n)"
}

// whereClause returns the clause WHERE; "" if there is none.
func (r renderer) whereClause(s *selectStmt) string {
	if s.Tail.Where == nil {
		return ""
	}
	return "\nWHERE " + r.expr(s.Tail.Where)
}

// tail returns the clauses after WHERE.
func (r renderer) tail(s *selectStmt) string {
	text := r.groupClause(s) + r.orderClause(s)
	if s.Tail.Offset != nil {
		text += "\nOFFSET " + r.literal(s.Tail.Offset.Value) + " LIMIT " + r.literal(s.Tail.Limit.Value)
	}
	return text
}

// groupClause returns the clause GROUP BY; "" if there is none.
func (r renderer) groupClause(s *selectStmt) string {
	if len(s.Tail.Group) == 0 {
		return ""
	}
	return "\nGROUP BY " + strings.Join(r.texts(s.Tail.Group), ", ")
}

// orderClause returns the clause ORDER BY, which names a direction only if the query does; "" if there is none.
func (r renderer) orderClause(s *selectStmt) string {
	var keys []string
	for _, o := range s.Tail.Order {
		key := r.expr(o.Expr)
		switch {
		case o.Desc:
			key += " DESC"
		case o.Asc:
			key += " ASC"
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return ""
	}
	return "\nORDER BY " + strings.Join(keys, ", ")
}

// expr returns an expression. If its brackets would nest too deep, expr returns the expression as the query has it.
func (r renderer) expr(e *expr) string {
	text := (&textClimber{r: r, links: e.Rest}).climb(e.First, levelChoice)
	if nestingOf(text) <= maxRendered {
		return text
	}
	return "(" + r.text(e.Pos.Offset, e.EndPos.Offset) + ")"
}

// texts returns several expressions.
func (r renderer) texts(list []*expr) []string {
	all := []string{}
	for _, e := range list {
		all = append(all, r.expr(e))
	}
	return all
}

// nestingOf returns how deep the brackets of a text nest. Brackets within strings count too, so the result may be too
// large.
func nestingOf(text string) int {
	depth, most := 0, 0
	for i := range len(text) {
		switch text[i] {
		case '(', '[', '{':
			depth++
			most = max(most, depth)
		case ')', ']', '}':
			depth--
		}
	}
	return most
}

// primary returns an operand with its steps.
func (r renderer) primary(p *primary) string {
	text := p.Name
	switch {
	case p.Literal != "":
		text = r.literal(p.Literal)
	case p.Array != nil:
		text = "[" + strings.Join(r.texts(p.Array.list()), ", ") + "]"
	case p.Object != nil:
		text = r.object(p.Object)
	case p.Group != nil && p.Group.Sub != nil:
		text = r.subquery(p.Group.Sub)
	case p.Group != nil:
		text = strings.Join(r.texts(p.Group.list()), ", ")
		if len(p.Suffix) > 0 && text[0] != '(' {
			text = "(" + text + ")"
		}
	}
	return text + r.steps(p.Suffix)
}

// object returns an object of the query's text.
func (r renderer) object(o *objectLit) string {
	var all []string
	for _, member := range o.Members {
		name := member.Key
		if isQuote(name[0]) {
			name = (&compiler{}).unescape(name, 0)
		}
		all = append(all, string(rawjson.AppendString(nil, name))+": "+r.expr(member.Value))
	}
	return "{" + strings.Join(all, ", ") + "}"
}

// steps returns the steps into a value, or the arguments of a call.
func (r renderer) steps(suffixes []*suffix) string {
	var text strings.Builder
	for _, s := range suffixes {
		switch {
		case s.Field != "":
			text.WriteString("." + s.Field)
		case s.Index != nil:
			text.WriteString("[" + r.expr(s.Index) + "]")
		case s.Call.Sub != nil:
			text.WriteString(r.subquery(s.Call.Sub))
		default:
			text.WriteString("(" + strings.Join(r.texts(s.Call.list()), ", ") + ")")
		}
	}
	return text.String()
}

// literal returns a literal token.
func (r renderer) literal(token string) string {
	switch ch := token[0]; {
	case isQuote(ch):
		return string(rawjson.AppendString(nil, (&compiler{}).unescape(token, 0)))
	case isNumeral(ch):
		return numeral(token)
	case ch == '@' || ch == '{':
		return token
	}
	return strings.ToLower(token)
}

// numeral returns a number. Whole numbers of 64 bits keep all their digits. As in the service, other numbers have 15
// digits if these are enough for the exact value, otherwise 17.
func numeral(token string) string {
	if n, err := strconv.ParseInt(token, 10, 64); err == nil {
		return strconv.FormatInt(n, 10)
	}
	f, err := strconv.ParseFloat(token, 64)
	if err != nil {
		return token // the compiler has refused this number
	}
	return string(appendDouble(nil, f))
}

// text returns the query's text from an offset to the end of the last token before a second offset. text reads
// the tokens again, to exclude comments and white space at the end.
func (r renderer) text(from, to int) string {
	s := scanner{text: r.q.text[:to], at: from}
	end := from
	for {
		token, err := s.Next()
		if err != nil || token.EOF() {
			return r.q.text[from:end]
		}
		end = s.at
	}
}
