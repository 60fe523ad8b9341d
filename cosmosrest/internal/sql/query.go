package sql

import (
	"context"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"
)

// Queries from text to rows: parsed, bound to parameters, and run if each document's rows
// stand alone. A query whose rows depend on each other is run by a Run (run.go).

// maxQuery bounds the text of a query, in bytes, as the service does.
const maxQuery = 512 << 10

// maxCount bounds TOP, OFFSET and LIMIT.
const maxCount = math.MaxInt32

// Query is a parsed query. It never changes and may be used by many at once.
type Query struct {
	text   string
	syntax *selectStmt // for Plan; nil for a condition, and for a long query, whose syntax would take megabytes
	plan   *plan
	params map[string]int // index of each parameter that the query uses
	counts []count
	apart  []*plan // subqueries that read the container by themselves
	slots  int
	memos  int

	isCondition bool
	sorting     string // what rows are sorted by
}

// Parse parses a query. Recent results are kept, so parsing a query again costs a look into
// a map. Errors are *Error.
func Parse(text string) (*Query, error) {
	return parsed.get(cacheKey{text: text})
}

// ParseCondition parses the condition of a patch, `FROM c WHERE c.x = 1`, for
// [Bound.Condition]. Errors are *Error.
func ParseCondition(text string) (*Query, error) {
	return parsed.get(cacheKey{text, true})
}

// parse compiles a text. Whether it is a query or a condition must be known before, because
// neither may pass for the other: a condition with SELECT would filter nothing.
func parse(text string, isCondition bool) (*Query, error) {
	if len(text) > maxQuery {
		return nil, failf(-1, "The query is %d bytes long: want at most %d.", len(text), maxQuery)
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
	}
	query.apart = c.apart
	query.params, query.counts, query.slots, query.memos = c.params, c.counts, c.slots+1, len(c.memos)
	return query, nil
}

// maxKeptSyntax is the length in bytes of the longest query whose syntax is kept for
// [Bound.Plan]. The syntax of a longer query takes megabytes; it is parsed again for the
// rare plan.
const maxKeptSyntax = 1 << 10

// statement is the query's syntax, parsed again if it was not kept; nil for a condition.
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

// compileCondition compiles the condition of a patch as SELECT * would be.
func (c *compiler) compileCondition(s *condition) *plan {
	stmt := &selectStmt{List: selection{Star: true}, From: []*sourceRef{s.From}}
	stmt.Tail.Where = s.Where
	return c.compileQuery(stmt, rootSlot)
}

// WithoutFrom reports whether the rows of the query come from no document. They come once
// for the container, whichever range it is run over; subqueries in it may read the whole
// container.
func (q *Query) WithoutFrom() bool { return !q.isCondition && q.plan.withoutFrom() }

// Parameter is the value of a @name in a query.
type Parameter struct {
	Name  string          `json:"name"` // with its @
	Value json.RawMessage `json:"value"`
}

// Bound is a query with the values of its parameters. It serves one request: not for use by
// several goroutines at once.
type Bound struct {
	q      *Query
	f      frame
	resume resume
}

// Bind gives the query its parameters. Those that it does not use are ignored, and one that
// is not given is undefined, as in the service. It fails with an *Error if a parameter comes
// twice, has no name with @, or is no JSON, and if a count of TOP, OFFSET or LIMIT is no
// whole number.
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
		// Decoded once here, and not for each document.
		b.f.params[i] = documentValue(param.Value).decode()
	}
	if q.isCondition {
		for name := range q.params {
			return nil, failf(-1, "The condition uses the parameter %s: a patch has none.", clip(name))
		}
	}
	for _, count := range q.counts {
		v := count.node.eval(&b.f)
		if v.kind != number || v.float() < 0 || v.float() > maxCount || v.float() != math.Trunc(v.float()) {
			return nil, failf(count.at, "The value of %s is %s: want a whole number from 0 to %d.", count.clause, clip(string(v.appendJSON(nil))), maxCount)
		}
	}
	return b, nil
}

// checkNames refuses names that no parameter can have, and one that comes twice.
func checkNames(params []Parameter) error {
	given := make(map[string]bool, len(params))
	for _, p := range params {
		name, ok := strings.CutPrefix(p.Name, "@")
		if !ok || name == "" || span(name, isWordByte) != len(name) {
			return failf(-1, "Invalid query. Specified parameter name %s is invalid. Parameter names should be in the format of symbol '@' followed by a valid identifier. E.g. @param1", clip(p.Name))
		}
		if given[p.Name] {
			return failf(-1, "Invalid query. Specified duplicate parameter name %s.", clip(p.Name))
		}
		given[p.Name] = true
	}
	return nil
}

// Until ends all runs of the query when ctx ends, with the context's error.
func (b *Bound) Until(ctx context.Context) { b.f.ctx = ctx }

// A Meter sees how much a query does while it runs. Its methods may wait, so that other
// requests can go on, and their errors end the query.
type Meter interface {
	// Work gets units of work that were done. A unit takes about two nanoseconds.
	Work(units int) error

	// Hold gets the bytes that are held besides those of a [Run]; they are negative when
	// released.
	Hold(bytes int) error
}

// Meter has runs of the query measured.
func (b *Bound) Meter(m Meter) { b.f.meter = m }

// Streams reports whether each document's rows depend on nothing but the document, so that
// Rows can be used. TOP and OFFSET LIMIT are left to the caller then: see [Bound.Limit].
func (b *Bound) Streams() bool { return !b.q.plan.collectsRows() }

// Limit returns how many rows to leave out, and how many to return after them at most;
// limit is -1 if there is no bound.
func (b *Bound) Limit() (offset, limit int64) { return b.q.plan.rowBounds(&b.f) }

// Sorting is a text of the keys by which rows that depend on each other are sorted: a
// [Place] belongs to all queries with the same text.
func (b *Bound) Sorting() string { return b.q.sorting }

// sortingOf is the text of the keys by which a query sorts or groups. The rows of a query
// with a subquery in FROM are only numbered, so a place among them belongs to the whole
// text.
func sortingOf(text string, stmt *selectStmt, p *plan) string {
	if p.base != nil {
		return text
	}
	w := &rewriter{q: &Query{text: text}, s: stmt}
	keys := w.texts(stmt.Tail.Group)
	for _, ordered := range stmt.Tail.Order {
		keys = append(keys, w.expr(ordered.Expr)+" "+strconv.FormatBool(ordered.Desc))
	}
	switch { // without keys rows are only numbered
	case len(keys) == 0 && p.grouped():
		return "aggregate"
	case len(keys) == 0 && p.distinct:
		return "distinct"
	}
	return strings.Join(keys, ",")
}

// Combination is the number of the row that Rows emits, counted from 1 among all
// combinations of the rows of FROM and JOIN that the document has, before WHERE: so it is
// the same under another filter. After Rows it is their number.
func (b *Bound) Combination() int { return b.f.combination }

// Rows calls emit with the JSON of every row that a query which [Bound.Streams] makes of a
// document. A row is valid during the call only; that of SELECT * is the document itself.
// It returns emit's error, or an *Error.
func (b *Bound) Rows(doc []byte, emit func(row []byte) error) error {
	b.f.beginDocument(doc)
	var failed error
	b.q.plan.eachRow(&b.f, func() bool {
		v := b.q.plan.row.eval(&b.f)
		if v.kind != undefined && b.f.err == nil {
			failed = emit(v.json())
		}
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	return b.f.endError()
}

// json is the value as JSON, without a copy if possible.
func (v value) json() []byte {
	if v.asWritten() {
		return v.raw
	}
	return v.appendJSON(nil)
}

// Condition reports whether a document meets a condition of [ParseCondition].
func (b *Bound) Condition(doc []byte) (bool, error) {
	met := false
	err := b.Rows(doc, func([]byte) error {
		met = true
		return nil
	})
	return met, err
}
