package sql_test

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/millrace/changefeed/cosmosrest/internal/sql"
)

// Levels of precedence; a term is written in brackets where it binds less than its place wants.
const (
	bindChoice = iota
	bindCoalesce
	bindOr
	bindAnd
	bindNot
	bindCompare
	bindBitOr
	bindBitXor
	bindBitAnd
	bindShift
	bindAdd
	bindMultiply
	bindSign
	bindAll
)

var binds = map[string]int{
	"??": bindCoalesce, "OR": bindOr, "AND": bindAnd,
	"=": bindCompare, "!=": bindCompare, "<>": bindCompare, "<": bindCompare, "<=": bindCompare, ">": bindCompare,
	">=": bindCompare,
	"|":  bindBitOr, "^": bindBitXor, "&": bindBitAnd, "<<": bindShift, ">>": bindShift, ">>>": bindShift,
	"+": bindAdd, "-": bindAdd, "||": bindAdd, "*": bindMultiply, "/": bindMultiply, "%": bindMultiply,
}

func (t *term) binding() int {
	switch t.op {
	case "choice":
		return bindChoice
	case "in", "between", "like":
		return bindCompare
	case "infix":
		return binds[t.text]
	case "prefix":
		if t.text == "NOT" {
			return bindNot
		}
		return bindSign
	case "literal":
		if strings.HasPrefix(t.text, "-") {
			return bindSign
		}
	}
	return bindAll
}

// text writes a term where something that binds at least as tight may stand.
func (t *term) write(least int) string {
	if t.group || t.binding() < least {
		return "(" + t.plain() + ")"
	}
	return t.plain()
}

func (t *term) plain() string {
	not := ""
	if t.not {
		not = "NOT "
	}
	switch t.op {
	case "literal", "parameter", "name":
		return t.text
	case "member":
		return t.kids[0].write(bindAll) + t.text
	case "element":
		return t.kids[0].write(bindAll) + "[" + t.kids[1].write(bindChoice) + "]"
	case "prefix":
		return t.text + " " + t.kids[0].write(t.binding())
	case "infix":
		return t.operators()
	case "choice":
		return t.kids[0].write(bindCoalesce) + " ? " + t.kids[1].write(bindChoice) + " : " + t.kids[2].write(bindChoice)
	case "in":
		return t.kids[0].write(bindBitOr) + " " + not + "in (" + writeAll(t.kids[1:]) + ")"
	case "between":
		return t.kids[0].write(bindBitOr) + " " + not + "Between " + t.kids[1].write(bindBitOr) + " AND " +
			t.kids[2].write(bindBitOr)
	case "like":
		return t.writeLike(not)
	case "array":
		return "[" + writeAll(t.kids) + "]"
	case "object":
		return t.writeObject()
	case "exists", "all", "scalar":
		return map[string]string{"exists": "EXISTS", "all": "Array", "scalar": ""}[t.op] + "(" + t.sub.text() + ")"
	}
	return t.text + "(" + writeAll(t.kids) + ")" // a call
}

// operators writes a chain of one level from left to right. Comparisons have no chains here.
func (t *term) operators() string {
	left, right := t.binding(), t.binding()+1
	switch t.binding() {
	case bindCompare:
		left++
	case bindCoalesce:
		left, right = right, left
	}
	return t.kids[0].write(left) + " " + t.text + " " + t.kids[1].write(right)
}

func (t *term) writeLike(not string) string {
	s := t.kids[0].write(bindBitOr) + " " + not + "LIKE " + t.kids[1].write(bindBitOr)
	if len(t.kids) > 2 {
		s += " ESCAPE " + t.kids[2].write(bindBitOr)
	}
	return s
}

func (t *term) writeObject() string {
	var members []string
	for i, name := range t.names {
		members = append(members, quote(name, i)+": "+t.kids[i].write(bindChoice))
	}
	return "{" + strings.Join(members, ", ") + "}"
}

func writeAll(terms []*term) string {
	var all []string
	for _, t := range terms {
		all = append(all, t.write(bindChoice))
	}
	return strings.Join(all, ", ")
}

// quote writes a string in one of three ways.
func quote(s string, way int) string {
	b, _ := json.Marshal(s) // always marshals
	inner := string(b[1 : len(b)-1])
	switch way % 3 {
	case 0:
		return string(b)
	case 1:
		return "'" + strings.ReplaceAll(strings.ReplaceAll(inner, `\"`, `"`), "'", `\'`) + "'"
	}
	var out strings.Builder
	for _, r := range s {
		if r < 1<<16 {
			hex := strconv.FormatInt(int64(r), 16)
			out.WriteString(`\u` + strings.Repeat("0", 4-len(hex)) + hex)
		} else {
			out.WriteRune(r)
		}
	}
	return `"` + out.String() + `"`
}

func count(word string, n int) string {
	if n < 0 {
		return ""
	}
	return " " + word + " " + strconv.Itoa(n)
}

func (q *query) text() string {
	var s strings.Builder
	s.WriteString("SELECT")
	if q.distinct {
		s.WriteString(" DISTINCT")
	}
	s.WriteString(count("top", q.top) + " " + q.list())
	for i, src := range q.from {
		s.WriteString(" " + src.text(i == 0))
	}
	if q.where != nil {
		s.WriteString(" WHERE " + q.where.write(bindChoice))
	}
	if len(q.groups) > 0 {
		s.WriteString(" GROUP BY " + writeAll(q.groups))
	}
	for i, o := range q.order {
		s.WriteString(map[bool]string{true: " ORDER BY ", false: ", "}[i == 0] + o.term.write(bindChoice) +
			map[bool]string{true: " DESC"}[o.desc])
	}
	return s.String() + count("OFFSET", q.offset) + count("LIMIT", q.limit)
}

func (q *query) list() string {
	switch {
	case q.star:
		return "*"
	case q.single != nil:
		return "VALUE " + q.single.write(bindChoice)
	}
	var all []string
	for _, col := range q.columns {
		text := col.term.write(bindChoice)
		if !col.plain {
			text += " AS " + col.alias
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func (s source) text(first bool) string {
	word, from := "JOIN ", ""
	if first {
		word = "FROM "
	}
	if s.sub != nil {
		from = "(" + s.sub.text() + ")"
	} else {
		from = s.path.write(bindAll)
	}
	switch {
	case s.each:
		return word + s.alias + " IN " + from
	case s.bare:
		return word + from
	}
	return word + from + " AS " + s.alias
}

// parameters are those that a query uses, each once.
func (q *query) parameters() (all []sql.Parameter) {
	given := map[string]bool{}
	q.walk(func(t *term) {
		if t.op == "parameter" && !given[t.text] {
			given[t.text] = true
			b, _ := json.Marshal(t.value) // always marshals
			all = append(all, sql.Parameter{Name: t.text, Value: b})
		}
	})
	return all
}

// walk visits all terms of a query, subqueries included.
func (q *query) walk(visit func(*term)) {
	for _, src := range q.from {
		if src.sub != nil {
			src.sub.walk(visit)
		} else {
			src.path.walk(visit)
		}
	}
	all := append(q.selected(), q.groups...)
	for _, o := range q.order {
		all = append(all, o.term)
	}
	if q.where != nil {
		all = append(all, q.where)
	}
	for _, t := range all {
		t.walk(visit)
	}
}

func (t *term) walk(visit func(*term)) {
	visit(t)
	for _, k := range t.kids {
		k.walk(visit)
	}
	if t.sub != nil {
		t.sub.walk(visit)
	}
}
