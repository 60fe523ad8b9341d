package sql

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Queries from text to rows: they are parsed, bound to parameters and, if each document's rows are independent, run
// here. A Run runs queries whose rows depend on each other (run.go).

// maxQuery limits the text of a query, in bytes, as the service does.
const maxQuery = 512 << 10

// maxCount limits TOP, OFFSET and LIMIT, as in the service.
const maxCount = math.MaxUint32

// Query is a parsed query. A Query never changes, so several goroutines may use it.
type Query struct {
	text   string
	syntax *selectStmt // for Plan; nil for a condition, and for a long query, whose syntax would take megabytes
	plan   *plan
	params map[string]int // index of each parameter that the query uses
	counts []count
	terms  []fixedTerm
	apart  []*plan // subqueries that read the container themselves
	slots  int
	memos  int

	isCondition     bool
	comparesVectors bool
	sorting         string // text of the sort keys
	strict          strictness
}

// Parse parses a query. Recent results are kept, so parsing a query again costs only a map lookup. Errors are *Error.
func Parse(text string) (*Query, error) {
	return parsed.get(cacheKey{text: text})
}

// ParseCondition parses the condition of a patch, `FROM c WHERE c.x = 1`, for
// [Bound.Condition]. Errors are *Error.
func ParseCondition(text string) (*Query, error) {
	return parsed.get(cacheKey{text, true})
}

// parse compiles a text. The caller must say whether the text is a query or a condition, because neither may be
// accepted as the other: a condition with SELECT would filter nothing.
func parse(text string, isCondition bool) (*Query, error) {
	if len(text) > maxQuery {
		err := failf(0, "The SQL query text exceeded the maximum limit of %d characters.", maxQuery)
		err.End = len(text)
		return nil, err
	}
	stmt, err := parser().ParseString("", text)
	if err != nil {
		return nil, syntaxError(text, err)
	}
	if isCondition != (stmt.Condition != nil) {
		word := text[:min(len(text), span(text, isWordByte))]
		return nil, failf(0, "Syntax error, incorrect syntax near %s.", clip(word))
	}
	c := &compiler{text: text, params: map[string]int{}, memos: map[string]int{}}
	query := &Query{text: text, isCondition: isCondition}
	if isCondition {
		query.plan = c.compileCondition(stmt.Condition)
	} else {
		query.plan = c.compileQuery(stmt.Query, rootSlot)
	}
	for _, p := range append(c.apart, query.plan) {
		for ; p != nil; p = p.base {
			p.outer = true
		}
	}
	if len(text) <= maxKeptSyntax {
		query.syntax = stmt.Query
	}
	if c.err != nil {
		return nil, c.err
	}
	if !isCondition {
		query.sorting = sortingOf(text, stmt.Query, query.plan)
		query.strict = strictnessOf(text, stmt.Query)
	}
	query.apart, query.comparesVectors, query.terms = c.apart, c.comparesVectors, c.terms
	query.params, query.counts, query.slots, query.memos = c.params, c.counts, c.slots+1, len(c.memos)
	return query, nil
}

// maxKeptSyntax is the length in bytes of the longest query whose syntax is kept for [Bound.Plan]. The syntax of a
// longer query takes megabytes, so such a query is parsed again if a client asks for a plan, which is rare.
const maxKeptSyntax = 1 << 10

// statement returns the query's syntax. If the syntax was not kept, the query is parsed again. For a condition the
// result is nil.
func (q *Query) statement() *selectStmt {
	if q.syntax != nil {
		return q.syntax
	}
	stmt, err := parser().ParseString("", q.text)
	if err != nil {
		return nil
	}
	return stmt.Query
}

// compileCondition compiles the condition of a patch like SELECT *.
func (c *compiler) compileCondition(s *condition) *plan {
	stmt := &selectStmt{List: selection{Star: true}, From: []*sourceRef{s.From}}
	stmt.Tail.Where = s.Where
	return c.compileQuery(stmt, rootSlot)
}

// WithoutFrom reports whether the rows of the query come from no document. Such rows come once for the container,
// whatever range the query runs over; its subqueries may read the whole container.
func (q *Query) WithoutFrom() bool { return !q.isCondition && q.plan.withoutFrom() }

// CountsOnly reports whether the query counts documents and names nothing in them, such as SELECT VALUE COUNT(1)
// FROM c. The service answers such a query from its index.
func (q *Query) CountsOnly() bool {
	p := q.plan
	counts := !slices.ContainsFunc(p.aggregates, func(a aggregate) bool { return a.name != "COUNT" })
	return counts && len(p.aggregates) > 0 && q.memos == 0 && q.slots == 1 && len(q.apart) == 0
}

// Parameter is the value of a @name in a query.
type Parameter struct {
	Name  string          `json:"name"` // including the @
	Value json.RawMessage `json:"value"`
}

// Bound is a query with the values of its parameters. A Bound serves a single request, in a single goroutine.
type Bound struct {
	q       *Query
	f       frame
	resume  resume
	aliases []int // slots that also contain the document, while the filter of a subquery is analysed
}

// Bind sets the query's parameters. As in the service, unused parameters are ignored, and missing parameters are
// undefined. Bind returns an *Error if a parameter comes twice, has no name with @, or is not JSON, or if a count of
// TOP, OFFSET or LIMIT is not a whole number, or if a term of a full text search is no term.
func (q *Query) Bind(params []Parameter) (*Bound, error) {
	b := &Bound{q: q}
	b.f = frame{
		slots: make([]value, q.slots), params: make([]value, len(q.params)), memo: make([]memo, q.memos),
		now: time.Now().UTC(), most: maxWork, perRow: rowWork + len(q.text)/textPerJob,
	}
	if q.isCondition {
		b.f.most, b.f.bytely = conditionWork, conditionByte
	}
	b.f.work = b.f.most
	if err := checkNames(params); err != nil {
		return nil, err
	}
	for _, param := range params {
		i, used := q.params[param.Name]
		if !used {
			continue
		}
		if !json.Valid(param.Value) {
			return nil, failf(-1, "The value of parameter %s is not JSON.", clip(param.Name))
		}
		// The value is decoded here once, not for each document.
		b.f.params[i] = documentValue(param.Value).decode()
	}
	if q.isCondition {
		for name := range q.params {
			return nil, failf(-1, "The condition uses the parameter %s: a patch has none.", clip(name))
		}
	}
	for _, count := range q.counts {
		if err := count.check(count.node.eval(&b.f)); err != nil {
			return nil, err
		}
	}
	for _, term := range q.terms {
		if err := term.check(&b.f); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// check returns an error if a value is not a valid count. The service has a sentence for some of these errors.
func (c *count) check(v value) error {
	isWhole := v.kind == number && v.float() >= 0 && v.float() == math.Trunc(v.float())
	var err *Error
	switch {
	case isWhole && v.float() <= maxCount:
		return nil
	case v.kind == number && c.clause == "TOP":
		err = failf(c.at, "The count value provided for a TOP clause must be an integer.")
	case isWhole:
		err = failf(c.at, "The %s count value exceeds the maximum allowed value.", c.clause)
	default:
		return failf(c.at, "The value of %s is %s: want a whole number from 0 to %d.", c.clause,
			clip(string(v.appendJSON(nil))), maxCount)
	}
	err.End = c.at + len(c.text)
	return err
}

// checkNames refuses invalid names of parameters, and a parameter that comes twice.
func checkNames(params []Parameter) error {
	given := make(map[string]bool, len(params))
	for _, p := range params {
		name, ok := strings.CutPrefix(p.Name, "@")
		if !ok || name == "" || span(name, isWordByte) != len(name) {
			return failf(-1,
				"Invalid query. Specified parameter name %s is invalid. Parameter names should be in the format of "+
					"symbol '@' followed by a valid identifier. E.g. @param1", clip(p.Name))
		}
		if given[p.Name] {
			return failf(-1, "Invalid query. Specified duplicate parameter name %s.", clip(p.Name))
		}
		given[p.Name] = true
	}
	return nil
}

// Until makes all runs of the query end when ctx ends, with the context's error.
func (b *Bound) Until(ctx context.Context) { b.f.ctx = ctx }

// A Meter measures the work and memory of a running query. Its methods may wait, so other requests can go on, and
// their errors end the query.
type Meter interface {
	// Work reports units of work. A unit takes about two nanoseconds.
	Work(units int) error

	// Hold reports bytes held in addition to those of a [Run]. Released bytes are negative.
	Hold(bytes int) error
}

// Meter sets the meter of the query's runs.
func (b *Bound) Meter(m Meter) { b.f.meter = m }

// Streams reports whether each document's rows depend only on the document, so Rows can be used. The caller must then
// apply TOP and OFFSET LIMIT: see [Bound.Limit].
func (b *Bound) Streams() bool { return !b.q.plan.collectsRows() }

// Limit returns how many rows to skip, and the largest number of rows after them; limit is -1 if there is no limit.
func (b *Bound) Limit() (offset, limit int64) { return b.q.plan.rowBounds(&b.f) }

// Sorting returns a text of the keys that sort rows that depend on each other. A [Place] is valid for all queries
// with the same text.
func (b *Bound) Sorting() string { return b.q.sorting }

// sortingOf returns the text of the keys by which a query sorts or groups. If a query has a subquery in FROM, its
// rows are only numbered, so a place among them is valid only for the same query text.
func sortingOf(text string, stmt *selectStmt, p *plan) string {
	if p.base != nil {
		return text
	}
	r := renderer{&Query{text: text}}
	keys := r.texts(stmt.Tail.Group)
	for _, ordered := range stmt.Tail.Order {
		keys = append(keys, r.expr(ordered.Expr)+" "+strconv.FormatBool(ordered.Desc))
	}
	if stmt.Tail.Rank != nil {
		keys = append(keys, "RANK "+r.expr(stmt.Tail.Rank.Expr))
	}
	switch { // without keys, rows are only numbered
	case len(keys) == 0 && p.grouped():
		return "aggregate"
	case len(keys) == 0 && p.distinct:
		return "distinct"
	}
	return strings.Join(keys, ",")
}

// Combination returns the number of the row that Rows is emitting. Combination counts from 1 among all combinations
// of the rows of FROM and JOIN in the document, before WHERE, so the number does not depend on the filter. After
// Rows, Combination returns the number of all combinations.
func (b *Bound) Combination() int { return b.f.combination }

// Rows calls emit with the JSON of every row that the query makes from a document. The query must stream (see
// [Bound.Streams]). A row is valid only during the call; the row of SELECT * is the document itself. Rows returns
// emit's error, or an *Error.
func (b *Bound) Rows(doc []byte, emit func(row []byte) error) error {
	b.f.beginDocument(doc)
	var failed error
	b.q.plan.eachRow(&b.f, func() bool {
		v := b.q.plan.row.eval(&b.f)
		if !b.f.leavesOut(v) && b.f.err == nil {
			failed = emit(v.json())
		}
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	return b.f.endError()
}

// json returns the value as JSON, without a copy if possible.
func (v value) json() []byte {
	if v.asWritten() {
		return v.raw
	}
	return v.appendJSON(nil)
}

// Condition reports whether a document satisfies a condition of [ParseCondition].
func (b *Bound) Condition(doc []byte) (bool, error) {
	met := false
	err := b.Rows(doc, func([]byte) error {
		met = true
		return nil
	})
	return met, err
}
